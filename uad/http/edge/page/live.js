// The live view: one stream of events, open only while it is looked at.

import { events, request } from "./api.js";
import { costCurve, lengthBars } from "./charts.js";
import { $, h, number, percent } from "./dom.js";
import { kindOf, WORDS } from "./origins.js";

const AGAIN_MS = 2000;
let control = null;

/** Look, or stop looking: a page that nobody sees costs the server nothing. */
export function look(wanted) {
  if (wanted && !control) {
    control = new AbortController();
    follow(control.signal);
  } else if (!wanted && control) {
    control.abort();
    control = null;
  }
}

async function follow(signal) {
  while (!signal.aborted) {
    try {
      let before = null;
      for await (const now of events(await request("live", undefined, signal))) {
        if (signal.aborted) return;
        draw(now, before);
        before = now;
      }
      tell("The server ended the stream.");
    } catch (error) {
      if (signal.aborted) return;
      tell(`No data: ${error.message.replace(/\.$/, "")}. Trying again.`);
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function tell(text) {
  if ($("live-state").textContent !== text) $("live-state").textContent = text;
}

function draw(now, before) {
  tell(policyWords(now));
  drawNumbers(now, before);
  drawSlots(now);
  $("live-drafters").replaceChildren(drafterTable(now));
  const parts = ["model", "beside", "text", "grammar"].map((kind) => ({
    kind,
    counts: sumOf(now.drafters.filter((one) => kindOf(one.type) === kind)),
  }));
  $("live-lengths").replaceChildren(lengthBars(parts.filter(({ counts }) => counts.length)));
  $("live-curve").replaceChildren(now.curve.length ? costCurve(now.curve, now.lengths) : "No costs are measured here.");
  $("live-cost").textContent = now.curve.length
    ? `Time of one pass by its rows, after ${number(now.depth)} tokens. ` +
      "Dots: what the last rounds chose. Dotted line: the same rows one by one."
    : "";
}

function policyWords({ policy, drafters, asleep }) {
  if (asleep) return "Asleep: the models are unloaded. The next request loads them again.";
  if (!drafters.length) return "This server makes no drafts: start it with --draft or --spec-type.";
  if (policy === "off") return "Drafts are off, unless a request asks for them (--no-draft).";
  return policy === "fixed"
    ? "Policy fixed: drafters are asked in every round, whatever that costs."
    : "Policy auto: a drafter is asked while it saves more than it costs here.";
}

function sumOf(drafters) {
  const n = Math.max(0, ...drafters.map((one) => one.accepted.length));
  return Array.from({ length: n }, (_, k) => drafters.reduce((sum, one) => sum + (one.accepted[k] ?? 0), 0));
}

function drawNumbers(now, before) {
  const drafted = now.drafters.reduce((sum, one) => sum + one.draft_n, 0);
  const accepted = now.drafters.reduce((sum, one) => sum + one.draft_n_accepted, 0);
  const elapsed = before ? now.time - before.time : 0;
  const tiles = {
    "Tokens per second": elapsed > 0 ? number((now.tokens - before.tokens) / elapsed, 1) : "–",
    "Tokens per target pass": now.rounds ? number(now.tokens / now.rounds, 2) : "–",
    "Guesses accepted": drafted ? percent(accepted / drafted) : "–",
    Running: String(now.busy),
    Waiting: String(now.queue),
    "Answers so far": number(now.requests),
    ...cacheTiles(now.cache),
  };
  $("live-numbers").replaceChildren(
    ...Object.entries(tiles).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** What came from the prompt cache, once something did. */
function cacheTiles({ memory, disk, saved_ms }) {
  if (!memory && !disk) return {};
  return {
    "Prompts from memory": number(memory),
    "Prompts from disk": number(disk),
    "Seconds of prompts saved": number(saved_ms / 1000, 1),
  };
}

function drawSlots({ slots, n_ctx }) {
  const item = ({ id, n_past, is_processing }) =>
    h(
      "li",
      { class: is_processing ? "runs" : false },
      `${id}: ${is_processing ? "writing" : n_past ? "idle" : "empty"}, ${number(n_past)} of ${number(n_ctx)} tokens`,
      h("progress", { max: n_ctx, value: n_past, "aria-label": `Slot ${id}: tokens in use` }),
    );
  $("live-slots").replaceChildren(
    ...(slots ? slots.map(item) : [h("li", {}, "The server does not show its slots (--no-slots).")]),
  );
}

function drafterTable(now) {
  const name = ({ type, file }) => (file ? `${type}, ${file}` : type);
  const row = (one) =>
    h(
      "tr",
      {},
      h("td", {}, h("span", { class: `swatch ${kindOf(one.type)}`, title: WORDS[kindOf(one.type)] }), name(one)),
      h("td", {}, one.draft_n ? percent(one.draft_n_accepted / one.draft_n) : "–"),
      h("td", {}, `${number(one.draft_n_accepted)} of ${number(one.draft_n)}`),
      h("td", {}, number(one.drafts)),
      h("td", {}, one.calls ? `${number(one.ms / one.calls, 2)} ms` : "–"),
      h("td", {}, why(one, now.policy)),
    );
  const heads = ["Drafter", "Accepted", "Tokens", "Drafts", "Per call", "Now"].map((text) =>
    h("th", { scope: "col" }, text),
  );
  return h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...now.drafters.map(row)));
}

/** Whether a drafter is asked, and why. */
function why(one, policy) {
  if (one.off) return `Off after a failure (${number(one.failures)} so far); it is tried again soon.`;
  if (one.type === "grammar") return "On where a constraint forces the text.";
  if (one.type === "prediction") return "On where a request has a prediction.";
  if (!one.asked) return "Off, unless a request names it in speculative.types.";
  if (policy === "fixed") return "On in every round.";
  if (one.saves === null) return "On; not measured yet.";
  const [saves, costs] = [one.saves, one.costs].map((value) => number(value, 2));
  return one.saves >= one.costs
    ? `On: a round saves ${saves} of a plain pass and costs ${costs}.`
    : `Not asked: a round would save ${saves} of a plain pass and cost ${costs}. It is tried again now and then.`;
}
