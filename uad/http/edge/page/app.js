// The page: which view is shown, whose model answers, the key.

import { askModel, events, json, onKeyWanted, request } from "./api.js";
import * as chat from "./chat.js";
import { $, h } from "./dom.js";
import * as live from "./live.js";
import * as pictures from "./pictures.js";
import * as race from "./race.js";

const MODEL = "uad.model";
const RETRY_MS = 2000; // before the events of models are asked for again
let isNamed = false; // which model is asked is known
let watching = null; // what ends the stream of a router's events
let offered = []; // a router's models, as it listed them last
const states = new Map(); // of these, by name
const VIEWS = ["chat", "race", "live"];

function show() {
  const name = VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "chat";
  for (const view of VIEWS) $(view).hidden = view !== name;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const isSeen = document.visibilityState === "visible";
  if (name === "chat" && isSeen) chat.appears();
  else chat.disappears();
  live.look(name === "live" && isSeen && isNamed);
  watch(isSeen && states.size > 0);
}

/** Asks for the key in a dialog; one question for all who wait. */
let question = null;
function askForKey(problem) {
  question ??= new Promise((resolve) => {
    const dialog = $("key");
    $("key-problem").hidden = !problem;
    $("key-problem").textContent = problem;
    $("key-text").value = "";
    const closed = () => {
      question = null;
      resolve(dialog.returnValue === "ok" ? $("key-text").value.trim() : null);
    };
    dialog.addEventListener("close", closed, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });
  return question;
}

function name(one) {
  pictures.allow(one.architecture.input_modalities.includes("image"));
  document.title = `${one.id} · uad`;
  const warnings = one.warnings ?? []; // a router knows those of loaded models
  $("warnings").hidden = !warnings.length;
  $("warnings").textContent = warnings.join(" ");
}

/** A list of a router's models, those that are loaded with a word. A tab keeps its choice, and the list stays as it is
    while it has the same models: it may be open. */
function chooseOf(models) {
  const isNew = models.map(({ id }) => id).join("\n") !== offered.map(({ id }) => id).join("\n");
  offered = models;
  if (isNew) $("model").replaceChildren(listOf(models));
  states.clear();
  for (const { id, status } of models) showState(id, status.value);
  if (isNew) take();
  else name(chosen());
}

function listOf(models) {
  const list = h(
    "select",
    { id: "models", "aria-label": "Model" },
    ...models.map(({ id }) => h("option", { value: id })),
  );
  const before = sessionStorage.getItem(MODEL);
  const first = models.find((one) => one.status.value === "loaded") ?? models[0];
  list.value = models.some((one) => one.id === before) ? before : first.id;
  list.addEventListener("change", take);
  return list;
}

function chosen() {
  return offered.find((one) => one.id === $("models").value);
}

/** Ask the model that is chosen in the list from now on. */
function take() {
  const one = chosen();
  sessionStorage.setItem(MODEL, one.id);
  askModel(one.id);
  name(one);
  showState(one.id, states.get(one.id));
  live.look(false); // the stream of another model
  show();
}

function showState(id, state) {
  states.set(id, state);
  const option = [...$("models").options].find((one) => one.value === id);
  if (option) option.textContent = state === "unloaded" ? id : `${id} (${state})`;
  if (id === $("models").value) chat.loads(state === "loading" ? id : "");
}

/** Follow what becomes of a router's models, while the page is seen: browsers have few connections for all tabs. */
async function watch(isWanted) {
  if (isWanted === Boolean(watching)) return;
  watching?.abort();
  const mine = (watching = isWanted ? new AbortController() : null);
  while (mine && watching === mine) {
    try {
      const stream = events(await request("models/sse", undefined, mine.signal));
      await nameModel(); // what happened before the stream began
      for await (const { model, event, data } of stream) {
        if (event === "models_reload") await nameModel();
        else if (data?.status) showState(model, data.status);
      }
    } catch {
      // the page is hidden, or the server is gone: it is asked again
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function nameModel() {
  try {
    const { data } = await json("v1/models");
    if (!data.length) throw new Error("The server has no models.");
    if (data[0].status) {
      chooseOf(data);
      return;
    }
    $("model").textContent = data[0].id;
    name(data[0]);
  } catch (error) {
    $("model").textContent = error.message;
  }
}

onKeyWanted(askForKey);
$("key-cancel").addEventListener("click", () => $("key").close());
chat.start();
race.start();
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", show);
show();
nameModel().finally(() => {
  isNamed = true;
  show();
});
