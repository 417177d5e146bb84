// The chat: conversations, the composer, answers as they come.

import { ask, emptyAnswer, numbersOf, timeSaved } from "./answer.js";
import { $, announce, h } from "./dom.js";
import { Coloured } from "./origins.js";
import { Paper } from "./paper.js";
import { load, newChat, save, titleOf } from "./store.js";

const log = $("log");
let chats = load();
let chat = chats[0] ?? newChat();
let running = null; // the AbortController of the answer that comes
let papers = [];

const PANELS = [
  ["show-settings", "settings"],
  ["show-side", "side"],
];

export function start() {
  $("composer").addEventListener("submit", (event) => (event.preventDefault(), send()));
  $("say").addEventListener("keydown", typed);
  $("say").addEventListener("input", grow);
  $("stop").addEventListener("click", stop);
  $("new").addEventListener("click", () => open(newChat()));
  $("settings").addEventListener("input", settingsChanged);
  $("show-colours").addEventListener("change", () => log.classList.toggle("coloured", $("show-colours").checked));
  $("show-rejected").addEventListener("change", () => papers.forEach((paper) => paper.again()));
  for (const [button, panel] of PANELS) $(button).addEventListener("click", () => toggle(button, panel));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (running) stop();
    else
      for (const [button, panel] of PANELS)
        if ($(button).getAttribute("aria-expanded") === "true") close(button, panel);
  });
  log.classList.add("coloured");
  open(chat);
}

function toggle(button, panel) {
  const shown = $(button).getAttribute("aria-expanded") !== "true";
  $(button).setAttribute("aria-expanded", String(shown));
  if (panel === "settings") $(panel).hidden = !shown;
  else $(panel).classList.toggle("shown", shown);
  if (shown) $(panel).querySelector("textarea, button").focus();
}

function close(button, panel) {
  toggle(button, panel);
  $(button).focus();
}

// --- conversations

function open(other) {
  stop();
  chat = other;
  for (const field of $("settings").elements) if (field.name) field.value = chat.settings[field.name] ?? "";
  checkTools();
  drawChats();
  drawLog();
  $("side").classList.remove("shown");
  $("show-side").setAttribute("aria-expanded", "false");
  $("say").focus({ preventScroll: true });
}

function keep() {
  if (!chats.includes(chat)) chats.unshift(chat);
  const n = save(chats);
  if (n) announce(`This browser has no room left: ${n} old conversations are not kept.`);
  drawChats();
}

function drop(other) {
  chats = chats.filter((one) => one !== other);
  save(chats);
  if (other === chat) open(chats[0] ?? newChat());
  else drawChats();
}

function drawChats() {
  $("chats").replaceChildren(
    ...chats.map((one) =>
      h(
        "li",
        { "aria-current": one === chat },
        h("button", { type: "button", class: "quiet", onclick: () => open(one) }, h("bdi", {}, titleOf(one))),
        h(
          "button",
          { type: "button", class: "quiet drop", "aria-label": `Delete ${titleOf(one)}`, onclick: () => drop(one) },
          "×",
        ),
      ),
    ),
  );
}

function settingsChanged(event) {
  chat.settings[event.target.name] = event.target.value;
  checkTools();
  if (chat.messages.length) keep();
}

/** The tools as a list; null where the field holds none. */
function checkTools() {
  const text = (chat.settings.tools ?? "").trim();
  let problem = "";
  let tools = null;
  if (text) {
    try {
      tools = JSON.parse(text);
      if (!Array.isArray(tools)) problem = "Tools: must be a JSON list, as in the API.";
    } catch (error) {
      problem = `Tools: ${error.message}`;
    }
  }
  $("settings-problem").hidden = !problem;
  $("settings-problem").textContent = problem;
  return problem ? null : tools;
}

// --- asking

function typed(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
}

function grow() {
  const box = $("say");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

function send() {
  const text = $("say").value;
  if (running || !text.trim()) return;
  $("say").value = "";
  grow();
  const call = openCall();
  chat.messages.push(call ? { role: "tool", text, id: call.id, name: call.name } : { role: "user", text });
  keep();
  drawLog();
  if (openCall()) $("say").focus();
  else answer();
}

/** The first call of a tool without a result. */
function openCall() {
  const last = chat.messages.findLastIndex((message) => message.role === "assistant");
  const told = new Set(chat.messages.slice(last + 1).map((message) => message.id));
  return last < 0 || chat.messages.slice(last + 1).some((message) => message.role === "user")
    ? undefined
    : chat.messages[last].calls.find((call) => !told.has(call.id));
}

function bodyOf() {
  const set = chat.settings;
  const system = (set.system ?? "").trim() ? [{ role: "system", content: set.system }] : [];
  const body = { messages: [...system, ...chat.messages.map(sent)] };
  for (const name of ["temperature", "max_tokens", "seed"]) if (set[name]) body[name] = Number(set[name]);
  if (set.drafting) body.speculative = set.drafting === "off" ? { enabled: false } : { policy: set.drafting };
  const tools = checkTools();
  return tools?.length ? { ...body, tools } : body;
}

function sent(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.id, content: message.text };
  if (message.role === "user") return { role: "user", content: message.text };
  const calls = message.calls.map(({ id, name, arguments: text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  return { role: "assistant", content: message.said.text, ...(calls.length ? { tool_calls: calls } : {}) };
}

async function answer() {
  const mine = chat;
  const body = bodyOf();
  const message = emptyAnswer();
  mine.messages.push(message);
  const turn = drawTurn(message);
  log.append(turn.element);
  follow(true);
  const control = (running = new AbortController());
  showRunning(true);
  turn.element.classList.add("busy");
  log.setAttribute("aria-busy", "true");
  try {
    await ask(body, message, turn.changed, control.signal);
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.problem = error.message;
  }
  if (running === control) running = null;
  showRunning(false);
  turn.element.classList.remove("busy");
  log.removeAttribute("aria-busy");
  turn.draw();
  announce(
    message.problem
      ? "The answer failed."
      : message.finish === "stopped"
        ? "The answer was stopped."
        : "The answer is complete.",
  );
  if (!message.said.text && !message.thought.text && !message.calls.length && message.problem) mine.messages.pop();
  keep();
  if (message.numbers) message.saved = await timeSaved(message.numbers);
  turn.draw();
  if (message.saved !== null) save(chats);
}

function stop() {
  running?.abort();
  running = null;
}

function regenerate() {
  if (running) return;
  chat.messages = chat.messages.slice(
    0,
    chat.messages.findLastIndex((message) => message.role === "assistant"),
  );
  drawLog();
  answer();
}

function showRunning(is) {
  $("send").hidden = is;
  $("stop").hidden = !is;
}

// --- drawing

function drawLog() {
  papers = [];
  const turns = chat.messages.map((message) => drawTurn(message).element);
  log.replaceChildren(...(turns.length ? turns : [greeting()]));
  const call = openCall();
  $("say").placeholder = call ? `Result of ${call.name}` : "Message";
  follow(true);
}

function greeting() {
  return h(
    "div",
    { class: "start" },
    h("p", { class: "big" }, "Say something."),
    h("p", {}, "What is underlined was guessed ahead, and the target model accepted it. The rest it wrote itself."),
  );
}

function follow(always = false) {
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}

/** A message of the log: its element, and how to draw it again as it grows. */
function drawTurn(message) {
  if (message.role !== "assistant") return drawGiven(message);
  log.querySelector(".start")?.remove();
  const paper = (coloured) => {
    const made = new Paper(h("div", { class: "paper", dir: "auto" }), coloured, {
      rejected: () => $("show-rejected").checked,
      drawn: follow,
    });
    papers.push(made);
    return made;
  };
  const said = paper(message.said);
  const thought = paper(message.thought);
  const parts = {
    thought: h("details", { class: "thought", hidden: true }, h("summary", {}, "Thoughts"), thought.root),
    calls: h("div"),
    problem: h("p", { class: "problem", role: "alert", hidden: true }),
    numbers: h("p", {
      class: "numbers",
      title: "Time saved: as many passes of one row by the server's cost curve, less what this answer took",
    }),
    again: h("button", { type: "button", class: "quiet", onclick: regenerate }, "Regenerate"),
  };
  const footer = h("footer", { hidden: true }, parts.numbers, parts.again);
  const element = h(
    "article",
    { class: "turn answer" },
    h("h2", {}, "Answer"),
    parts.thought,
    said.root,
    parts.calls,
    parts.problem,
    footer,
  );
  const changed = () => {
    parts.thought.hidden = !message.thought.text;
    if (message.thought.text) thought.changed();
    said.changed();
  };
  const draw = () => {
    parts.thought.hidden = !message.thought.text;
    if (message.thought.text) thought.draw();
    said.draw();
    parts.calls.replaceChildren(...message.calls.map(drawCall));
    parts.problem.hidden = !message.problem;
    parts.problem.textContent = message.problem ?? "";
    const numbers = message.numbers
      ? numbersOf(message.numbers, message.saved)
      : message.finish === "stopped"
        ? "stopped"
        : "";
    parts.numbers.textContent = numbers + (message.finish === "length" ? " · cut off at the limit" : "");
    footer.hidden = element.classList.contains("busy");
    const call = openCall();
    $("say").placeholder = call ? `Result of ${call.name}` : "Message";
    follow();
  };
  draw();
  return { element, changed, draw };
}

/** What a user said, or what a tool gave back. */
function drawGiven(message) {
  const paper = new Paper(h("div", { class: "paper", dir: "auto" }), new Coloured({ text: message.text }), {
    markdown: false,
  });
  paper.draw();
  return {
    element: h(
      "article",
      { class: "turn user" },
      h("h2", {}, message.role === "tool" ? `Result of ${message.name}` : "You"),
      paper.root,
    ),
  };
}

function drawCall(call) {
  return h(
    "details",
    { class: "call", open: true },
    h("summary", {}, "Calls ", h("code", {}, call.name)),
    h("pre", {}, h("code", {}, pretty(call.arguments))),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
