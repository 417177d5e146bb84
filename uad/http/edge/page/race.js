// The race: one prompt twice in the same slot, the target alone and with drafts, one after the other.

import { ask, emptyAnswer, numbersOf } from "./answer.js";
import { json } from "./api.js";
import { $, announce, h, percent, seconds } from "./dom.js";
import { Paper } from "./paper.js";

let running = null;

export function start() {
  const form = $("race-form");
  form.addEventListener("submit", (event) => (event.preventDefault(), race(form)));
  $("race-stop").addEventListener("click", () => running?.abort());
  form.elements.prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

async function race(form) {
  if (running) return;
  const control = (running = new AbortController());
  const lanes = [...document.querySelectorAll(".lane")].map((root) => new Lane(root));
  show(true);
  say("");
  try {
    const id_slot = await freeSlot(control.signal);
    const body = bodyOf(form, id_slot);
    const ways = [{ enabled: false }, form.elements.drafting.value ? { policy: form.elements.drafting.value } : {}];
    for (const [i, speculative] of ways.entries()) await lanes[i].run({ ...body, speculative }, control.signal);
    verdict(...lanes);
  } catch (error) {
    say(error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
  } finally {
    running = null;
    show(false);
  }
}

function bodyOf(form, id_slot) {
  const { prompt, temperature, max_tokens } = form.elements;
  const seed = crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
  const body = {
    messages: [{ role: "user", content: prompt.value }],
    max_tokens: Number(max_tokens.value),
    seed,
    id_slot,
  };
  if (temperature.value) body.temperature = Number(temperature.value);
  return { ...body, cache_prompt: false }; // both read the whole prompt
}

/** One that nobody uses; the first where the server does not tell. */
async function freeSlot(signal) {
  try {
    return (await json("slots", signal)).find((slot) => !slot.is_processing)?.id ?? 0;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return 0;
  }
}

function show(is) {
  $("race-start").hidden = is;
  $("race-stop").hidden = !is;
}

function say(text, isBad = false, ...more) {
  $("verdict").replaceChildren(text, ...more);
  $("verdict").classList.toggle("bad", isBad);
}

/** One of the two runs: its clock, its text, its numbers. */
class Lane {
  constructor(root) {
    this.root = root;
    this.clock = root.querySelector("[data-clock]");
    this.numbers = root.querySelector("[data-numbers]");
    this.answer = emptyAnswer();
    this.ms = 0;
    const place = root.querySelector("[data-paper]");
    place.replaceChildren();
    place.classList.add("coloured");
    this.paper = new Paper(place, this.answer.said, { markdown: false });
    this.clock.textContent = seconds(0);
    this.numbers.textContent = "\u00a0";
  }

  async run(body, signal) {
    const began = performance.now();
    const tick = setInterval(() => (this.clock.textContent = seconds(performance.now() - began)), 100);
    this.root.classList.add("runs");
    try {
      await ask({ ...body, reasoning_format: "none" }, this.answer, () => this.paper.changed(), signal);
    } finally {
      clearInterval(tick);
      this.ms = performance.now() - began;
      this.clock.textContent = seconds(this.ms);
      this.root.classList.remove("runs");
      this.paper.draw();
      if (this.answer.numbers) this.numbers.textContent = numbersOf(this.answer.numbers);
    }
  }
}

function verdict(plain, drafted) {
  const at = firstDifference(plain.answer.said.text, drafted.answer.said.text);
  const { draft_n = 0, draft_n_accepted = 0 } = drafted.answer.numbers?.timings ?? {};
  const times = plain.ms / drafted.ms;
  const same = h("b", {}, `same text: ${at < 0 ? "yes" : "no"}`);
  const speed =
    times >= 1
      ? `${times.toFixed(2)} times as fast with drafts`
      : `${(1 / times).toFixed(2)} times as long with drafts`;
  const guesses = draft_n
    ? `${draft_n_accepted} of ${draft_n} guesses accepted (${percent(draft_n_accepted / draft_n)})`
    : "nothing was drafted";
  const where =
    at < 0 ? "" : ` From character ${at + 1} on they differ: start the server with --exact for these weights.`;
  say(same, at >= 0, ` · ${speed} · ${guesses}.${where}`);
  announce(`Same text: ${at < 0 ? "yes" : "no"}. ${speed}.`);
}

function firstDifference(a, b) {
  if (a === b) return -1;
  let i = 0;
  while (i < a.length && a[i] === b[i]) i += 1;
  return i;
}
