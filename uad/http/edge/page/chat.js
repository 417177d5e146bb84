// The chat: the open conversation, the composer, answers as they come.

import { ask, emptyAnswer, timeSaved } from "./answer.js";
import { $, announce, h } from "./dom.js";
import * as guard from "./guard.js";
import * as pictures from "./pictures.js";
import * as store from "./store.js";
import { isThere } from "./tabs.js";
import { drawTurn } from "./turn.js";

const KEEP_MS = 1000; // between two times that an answer is kept while it grows
const LOOK_MS = 5000; // between two questions whether the tab that writes an answer is still there
const LEAVING_MS = 5000;

const log = $("log");
let chat = null; // the one that is shown
let turns = new Map(); // how its messages are drawn
const running = new Map(); // answers that this tab waits for: {chat, control} by message
let left = -Infinity; // when the page was about to be left
let failed = null; // the conversation that the page failed on before it started

const PANELS = [
  ["show-settings", "settings"],
  ["show-side", "side"],
];
const HOOKS = {
  rejected: () => $("show-rejected").checked,
  plain: () => guard.hasFailed(chat),
  drawn: () => follow(),
  regenerate: () => regenerate(),
  goOn: () => isBusy(chat) || answer(chat.messages.at(-1)),
};

export function start() {
  $("composer").addEventListener("submit", (event) => (event.preventDefault(), send()));
  $("say").addEventListener("keydown", typed);
  $("say").addEventListener("input", grow);
  pictures.start(() => $("say").focus());
  $("stop").addEventListener("click", stop);
  $("new").addEventListener("click", () => open(store.newChat()));
  $("settings").addEventListener("input", settingsChanged);
  $("show-colours").addEventListener("change", () => log.classList.toggle("coloured", $("show-colours").checked));
  $("show-rejected").addEventListener("change", () => {
    for (const { papers } of turns.values()) for (const paper of papers) paper.again();
  });
  for (const [button, panel] of PANELS) $(button).addEventListener("click", () => toggle(button, panel));
  for (const id of ["hide-side", "shade"]) $(id).addEventListener("click", () => closePanels());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !closePanels()) stop();
  });
  addEventListener("beforeunload", () => (left = performance.now()));
  addEventListener("pagehide", keepStopped);
  log.classList.add("coloured");
  $("unsafe-open").addEventListener("click", () => open(failed));
  $("unsafe-draw").addEventListener("click", drawAgain);
  store.start({ full: (is) => ($("full").hidden = !is), changed: hear });
  guard.start(() => [...running.values()].some((one) => one.chat === chat));
  openFirst();
}

// --- what the page failed on

/** Show the newest conversation. A tab that was marked is asked before: where it is gone, it failed. */
async function openFirst() {
  const marks = guard.marks();
  if (!marks.size) return openNewest([]);
  const empty = store.newChat();
  open(empty);
  const failures = await guard.failures(marks);
  if (chat === empty && !chat.messages.length) openNewest(failures);
}

/** Show the newest conversation, unless it is one of those that the page failed on, or it failed just now. */
function openNewest(failures) {
  const [newest] = store.chats;
  failed = store.chats.find(({ id }) => failures.includes(id)) ?? (newest && guard.hasFailed(newest) ? newest : null);
  open(failed || !newest ? store.newChat() : newest);
}

function drawAgain() {
  guard.forgive(chat);
  open(chat);
}

/** The line about a conversation that the page failed on. */
function showFailed() {
  const isPlain = guard.hasFailed(chat);
  const isMissing = !isPlain && Boolean(failed) && !failed.isGone && !chat.messages.length;
  $("unsafe").hidden = !isPlain && !isMissing;
  $("unsafe-open").hidden = !isMissing;
  $("unsafe-draw").hidden = !isPlain;
  $("unsafe-text").textContent = isPlain
    ? "This conversation is shown as plain text: the page failed while it drew it."
    : isMissing
      ? `The page failed while it drew “${failed.title}”. It starts without that conversation, which is kept.`
      : "";
}

/** The conversation is seen again. */
export function appears() {
  if (chat?.messages.length) guard.draws(chat);
  else guard.unmark();
}

export const disappears = () => guard.unmark();

// --- panels

function toggle(button, panel) {
  const shown = $(button).getAttribute("aria-expanded") !== "true";
  $(button).setAttribute("aria-expanded", String(shown));
  if (panel === "settings") $(panel).hidden = !shown;
  else $(panel).classList.toggle("shown", shown);
  if (shown) $(panel).querySelector("textarea, button").focus();
}

/** Close what is open over or beside the conversation; whether anything was. */
function closePanels() {
  const open = PANELS.filter(([button]) => $(button).getAttribute("aria-expanded") === "true");
  for (const [button, panel] of open) {
    toggle(button, panel);
    $(button).focus();
  }
  return open.length > 0;
}

// --- conversations

/** Show a conversation. An answer of the one before goes on, and is kept there. */
function open(other) {
  chat = other;
  store.read(chat);
  showSettings();
  drawChats();
  drawLog();
  if ($("show-side").getAttribute("aria-expanded") === "true") toggle("show-side", "side");
  $("say").focus({ preventScroll: true });
}

function drop(other) {
  store.drop(other);
  guard.forgive(other);
  stop(other);
  if (other === chat) open(store.chats[0] ?? store.newChat());
  else drawChats();
}

/** What another tab did. */
function hear(other, message) {
  if (other.isGone) {
    stop(other);
    if (other === chat) {
      open(store.chats[0] ?? store.newChat());
      announce("This conversation was deleted in another tab.");
    }
  } else if (other === chat) {
    if (!message) showSettings();
    else if (turns.has(message) && chat.messages.includes(message)) {
      guard.draws(chat);
      const turn = drawTurn(message, HOOKS);
      turns.get(message).element.replaceWith(turn.element);
      turns.set(message, turn);
      showState();
    } else drawLog();
  }
  drawChats();
}

function drawChats() {
  const waits = new Set([...running.values()].map((one) => one.chat));
  const item = (one) =>
    h(
      "li",
      { "aria-current": one === chat, class: waits.has(one) ? "runs" : false },
      h("button", { type: "button", class: "quiet", onclick: () => open(one) }, h("bdi", {}, one.title)),
      h(
        "button",
        { type: "button", class: "quiet drop", "aria-label": `Delete ${one.title}`, onclick: () => drop(one) },
        "×",
      ),
    );
  $("chats").replaceChildren(...store.chats.map(item));
}

function showSettings() {
  for (const field of $("settings").elements)
    if (field.name && field !== document.activeElement) field.value = chat.settings[field.name] ?? "";
  checkTools();
}

function settingsChanged(event) {
  chat.settings[event.target.name] = event.target.value;
  checkTools();
  if (chat.messages.length) store.keepChat(chat);
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
  if (isBusy(chat) || !(text.trim() || pictures.areThere())) return;
  $("say").value = "";
  grow();
  const call = openCall();
  const images = pictures.taken();
  chat.title ||= store.titleOf([{ role: "user", text }]);
  const said = images.length ? { text, images } : { text };
  add(chat, call ? { role: "tool", ...said, id: call.id, name: call.name } : { role: "user", ...said });
  drawChats();
  drawLog();
  if (openCall()) $("say").focus();
  else answer();
}

function add(mine, message) {
  message.place = store.newPlace(mine);
  mine.messages.push(message);
  store.keep(mine, message);
  return message;
}

/** The answer of a conversation that is being written, in this tab or in another. */
const beingWritten = (one) => one.messages.find((message) => message.writer);
const isBusy = (one) => Boolean(beingWritten(one));

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
  const body = { messages: [...system, ...chat.messages.filter(saysSomething).map(sent)] };
  for (const name of ["temperature", "max_tokens", "seed"]) if (set[name]) body[name] = Number(set[name]);
  if (set.drafting) body.speculative = set.drafting === "off" ? { enabled: false } : { policy: set.drafting };
  const tools = checkTools();
  return tools?.length ? { ...body, tools } : body;
}

const saysSomething = ({ role, said, calls }) => role !== "assistant" || Boolean(said.text || calls.length);

function sent(message) {
  const content = pictures.contentOf(message);
  if (message.role === "tool") return { role: "tool", tool_call_id: message.id, content };
  if (message.role === "user") return { role: "user", content };
  const calls = message.calls.map(({ id, name, arguments: text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  return { role: "assistant", content: message.said.text, ...(calls.length ? { tool_calls: calls } : {}) };
}

/** Ask for an answer; begun: one that was cut, which goes on. It comes to its end whatever is shown meanwhile. */
async function answer(begun = null) {
  const mine = chat;
  const body = bodyOf();
  const message = begun ?? add(mine, emptyAnswer());
  const control = new AbortController();
  running.set(message, { chat: mine, control });
  Object.assign(message, { writer: store.TAB, finish: "", problem: "", numbers: null, saved: null });
  store.keep(mine, message);
  appears();
  if (!begun) showTurn(message);
  turns.get(message).draw();
  showState();
  drawChats();
  follow(true);
  let kept = performance.now();
  const changed = () => {
    turns.get(message)?.changed();
    if (performance.now() - kept < KEEP_MS) return;
    kept = performance.now();
    store.keep(mine, message);
  };
  try {
    await ask(body, message, changed, control.signal);
  } catch (error) {
    message.finish = "stopped";
    if (error.name !== "AbortError" && performance.now() - left > LEAVING_MS) message.problem = error.message;
  }
  running.delete(message);
  message.writer = "";
  if (message.problem && !saysSomething(message) && !message.thought.text) store.dropMessage(mine, message);
  else store.keep(mine, message);
  showEnd(mine, message);
  if (!message.numbers) return;
  message.saved = await timeSaved(message.numbers);
  if (message.saved === null || !mine.messages.includes(message)) return;
  store.keep(mine, message);
  turns.get(message)?.draw();
}

/** Say that the model of this name is being loaded; "": it is not. */
export function loads(name) {
  $("loading").hidden = !name;
  $("loading").textContent = `${name} is being loaded. The answer begins after that.`;
}

function showEnd(mine, message) {
  if (mine === chat) appears(); // until it is painted for the last time
  turns.get(message)?.draw();
  drawChats();
  showState();
  const which = mine === chat ? "The answer" : `The answer in ${mine.title}`;
  announce(`${which} ${message.problem ? "failed" : message.finish === "stopped" ? "was stopped" : "is complete"}.`);
}

/** End the answer that this tab waits for in a conversation. */
function stop(one = chat) {
  for (const { chat: mine, control } of running.values()) if (mine === one) control.abort();
}

/** The page is left, perhaps for good: answers that are being written end here. */
function keepStopped() {
  for (const [message, { chat: mine }] of running) store.keep(mine, { ...message, writer: "", finish: "stopped" });
}

function regenerate() {
  if (isBusy(chat)) return;
  const from = chat.messages.findLastIndex((message) => message.role === "assistant");
  for (const message of chat.messages.slice(from)) store.dropMessage(chat, message);
  drawLog();
  answer();
}

// --- drawing

function drawLog() {
  appears();
  showFailed();
  turns = new Map();
  log.replaceChildren(...(chat.messages.length ? [] : [greeting()]));
  for (const message of chat.messages) showTurn(message);
  showState();
  follow(true);
}

function showTurn(message) {
  const turn = drawTurn(message, HOOKS);
  turns.set(message, turn);
  log.append(turn.element);
}

function greeting() {
  return h(
    "div",
    { class: "start" },
    h("p", { class: "big" }, "Ask something."),
    h("p", {}, "Underlined text was guessed ahead and accepted by the target model, which wrote the rest itself."),
  );
}

/** What can be done now: send or stop, or wait for another tab. */
function showState() {
  const writer = beingWritten(chat)?.writer;
  const [isMine, isOther] = [writer === store.TAB, Boolean(writer) && writer !== store.TAB];
  $("send").hidden = isMine;
  $("send").disabled = isOther;
  $("stop").hidden = !isMine;
  const call = openCall();
  $("say").placeholder = isOther ? "Another tab is writing the answer" : call ? `Result of ${call.name}` : "Message";
  log.setAttribute("aria-busy", String(Boolean(writer)));
  if (isOther) look(chat, writer);
}

const looking = new Set(); // tabs that are asked

/** Wait for the other tab's answer. Where that tab is gone, what it wrote is all that comes. */
async function look(mine, writer) {
  if (looking.has(writer)) return;
  looking.add(writer);
  const isIts = () => beingWritten(mine)?.writer === writer;
  while (isIts() && (await isThere(writer))) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  looking.delete(writer);
  if (isIts()) {
    const message = beingWritten(mine);
    Object.assign(message, { writer: "", finish: "stopped" });
    store.keep(mine, message);
    turns.get(message)?.draw();
  }
  showState();
}

function follow(always = false) {
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}
