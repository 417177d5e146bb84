// A message of a conversation as it is drawn: what a user typed, what a tool gave back, an answer.

import { numbersOf } from "./answer.js";
import { h } from "./dom.js";
import { Coloured } from "./origins.js";
import { copyButton, Paper } from "./paper.js";
import { shown } from "./pictures.js";

const DEEPEST = 60; // levels of the arguments of a call

/**
 * A message's element and papers, and how to draw it again as it grows.
 * hooks: rejected() tells whether rejected guesses are shown, plain() whether answers are plain text, drawn() follows each drawing,
 * regenerate() and goOn() ask.
 */
export function drawTurn(message, hooks) {
  return message.role === "assistant" ? drawAnswer(message, hooks) : drawGiven(message);
}

function drawAnswer(message, { rejected, plain, drawn, regenerate, goOn }) {
  const options = { markdown: !plain(), rejected, drawn };
  const paper = (coloured) => new Paper(h("div", { class: "paper", dir: "auto" }), coloured, options);
  const [said, thought] = [paper(message.said), paper(message.thought)];
  const folded = h("details", { class: "thought", hidden: true }, h("summary", {}, "Thoughts"), thought.root);
  const calls = h("div");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const numbers = h("p", { class: "numbers", title: SAVED });
  const more = h("button", { type: "button", class: "quiet", onclick: goOn }, "Continue");
  const again = h("button", { type: "button", class: "quiet", onclick: regenerate }, "Regenerate");
  const footer = h("footer", { hidden: true }, numbers, copyButton(() => message.said.text), more, again);
  const element = h(
    "article",
    { class: "turn answer" },
    h("h2", {}, "Answer"),
    folded,
    said.root,
    calls,
    problem,
    footer,
  );
  const changed = () => {
    folded.hidden = !message.thought.text;
    if (message.thought.text) thought.changed();
    said.changed();
  };
  const draw = () => {
    folded.hidden = !message.thought.text;
    if (message.thought.text) thought.draw();
    said.draw();
    calls.replaceChildren(...message.calls.map(drawCall));
    problem.hidden = !message.problem;
    problem.textContent = message.problem ?? "";
    numbers.textContent = [
      message.numbers && numbersOf(message.numbers, message.saved),
      { stopped: "stopped", length: "cut off at max tokens" }[message.finish],
    ]
      .filter(Boolean)
      .join(" · ");
    element.classList.toggle("busy", Boolean(message.writer));
    footer.hidden = Boolean(message.writer);
    more.hidden = !canGoOn(message);
    drawn();
  };
  draw();
  return { element, papers: [said, thought], changed, draw };
}

const SAVED =
  "Time saved: what the same tokens take one by one, by the server's cost curve, less what this answer took";

/** Whether the model can go on where an answer was cut. It cannot in thoughts, whose marks the page does not know. */
export const canGoOn = ({ finish, said, calls }) =>
  ["stopped", "length"].includes(finish) && Boolean(said.text) && !calls.length;

function drawGiven(message) {
  const paper = new Paper(h("div", { class: "paper", dir: "auto" }), new Coloured({ text: message.text }), {
    markdown: false,
  });
  paper.draw();
  const title = message.role === "tool" ? `Result of ${message.name}` : "You";
  const element = h(
    "article",
    { class: "turn user" },
    h("h2", {}, title),
    ...(message.images ? [shown(message.images)] : []),
    paper.root,
  );
  return { element, papers: [], changed: () => {}, draw: () => {} };
}

function drawCall(call) {
  return h(
    "details",
    { class: "call", open: true },
    h("summary", {}, "Calls ", h("code", {}, call.name)),
    h("pre", {}, h("code", {}, pretty(call.arguments))),
  );
}

/** With a line for each member. What is nested deeply stays as it is: a line begins with two blanks for each level. */
function pretty(text) {
  let depth = 0;
  for (const sign of text.match(/[[\]{}]/g) ?? []) if ((depth += "[{".includes(sign) ? 1 : -1) > DEEPEST) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
