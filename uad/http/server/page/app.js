// The page: which view is shown, whose model answers, the key.

import { askModel, json, onKeyWanted } from "./api.js";
import * as chat from "./chat.js";
import { $, h } from "./dom.js";
import * as live from "./live.js";
import * as pictures from "./pictures.js";
import * as race from "./race.js";

const MODEL = "uad.model";
let isNamed = false; // which model is asked is known
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
}

/** A list of a router's models, those that are loaded with a word. A tab keeps its choice. */
function chooseOf(models) {
  const list = h(
    "select",
    { id: "models", "aria-label": "Model" },
    ...models.map(({ id, status }) =>
      h("option", { value: id }, status.value === "unloaded" ? id : `${id} (${status.value})`),
    ),
  );
  const take = () => {
    const one = models.find((each) => each.id === list.value);
    sessionStorage.setItem(MODEL, one.id);
    askModel(one.id);
    name(one);
    live.look(false); // the stream of another model
    show();
  };
  const before = sessionStorage.getItem(MODEL);
  const first = models.find((one) => one.status.value === "loaded") ?? models[0];
  list.value = models.some((one) => one.id === before) ? before : first.id;
  list.addEventListener("change", take);
  $("model").replaceChildren(list);
  take();
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
