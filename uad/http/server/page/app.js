// The page: which view is shown, whose model answers, the key.

import { json, onKeyWanted } from "./api.js";
import * as chat from "./chat.js";
import { $ } from "./dom.js";
import * as live from "./live.js";
import * as pictures from "./pictures.js";
import * as race from "./race.js";

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
  live.look(name === "live" && isSeen);
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

async function nameModel() {
  try {
    const { data } = await json("v1/models");
    $("model").textContent = data[0].id;
    pictures.allow(data[0].architecture.input_modalities.includes("image"));
    document.title = `${data[0].id} · uad`;
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
nameModel();
