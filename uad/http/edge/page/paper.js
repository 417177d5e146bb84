// Draws a coloured text as Markdown while it grows: blocks that are over stay as they are, the last one is drawn again.

import { h } from "./dom.js";
import { formula } from "./formulas.js";
import { blocks, definitions, LONG } from "./markdown.js";
import { kindOf, WORDS } from "./origins.js";

const SHORT = 80; // characters of a block
const PAUSE_MS = 33; // between two drawings; three times what the last one took, if that is more

export class Paper {
  #frozen = 0; // characters that are drawn for good
  #open = []; // blocks that may change still, {start, node}; of code {start, node, code, upto}
  #drawn = new Map(); // rows and items of those, by their places
  #links = {}; // definitions of links
  #guess = 0; // of the rejected guesses, the next that is not shown yet
  #goesOn = false; // whether what follows belongs to a paragraph that was cut
  #timer = 0;
  #cost = 0;

  /** options.markdown: else the text is shown as it is. options.rejected(): whether rejected guesses are shown. */
  constructor(root, coloured, { markdown = true, rejected = () => false, drawn = () => {} } = {}) {
    this.root = root;
    this.coloured = coloured;
    this.markdown = markdown;
    this.rejected = rejected;
    this.drawn = drawn;
    root.classList.toggle("plain", !markdown);
  }

  /** Draw soon. */
  changed() {
    this.#timer ||= setTimeout(
      () => {
        this.#timer = 0;
        this.draw();
      },
      Math.max(PAUSE_MS, 3 * this.#cost),
    );
  }

  /** Draw what is there now. */
  draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const began = performance.now();
    this.#drawSafely();
    this.#cost = performance.now() - began;
    this.drawn();
  }

  /** Draw all of it again, as after a change of what is shown. */
  again() {
    this.#forget();
    this.draw();
  }

  #forget() {
    this.root.replaceChildren();
    this.#frozen = 0;
    this.#open = [];
    this.#drawn.clear();
    this.#goesOn = false;
  }

  /** What cannot be drawn as Markdown is shown as it was written. */
  #drawSafely() {
    if (!this.markdown) return this.#drawPlain();
    try {
      this.#drawBlocks();
    } catch (error) {
      this.markdown = false;
      this.root.classList.add("plain");
      this.root.title = `Shown as it was written, since it cannot be drawn: ${error.message}`;
      this.#forget();
      this.#drawPlain();
    }
  }

  #drawPlain() {
    for (const { node } of this.#open) node.remove();
    const upto = this.coloured.text.length;
    let from = this.#frozen;
    this.#seek(from);
    for (; upto - from > LONG; from = this.#frozen) {
      const end = this.coloured.runs[this.coloured.runAt(from + LONG / 2)]?.end ?? upto;
      if (end >= upto) break;
      this.#put(this.root, this.#stretch(from, end));
      this.#frozen = end;
    }
    const last = h("span");
    this.#put(last, this.#stretch(from, upto));
    this.root.append(last);
    this.#open = [{ node: last }];
  }

  #drawBlocks() {
    const { text } = this.coloured;
    const links = { ...this.#links, ...definitions(text, this.#frozen) };
    const areNew = JSON.stringify(links) !== JSON.stringify(this.#links);
    this.#links = links;
    if (areNew && this.#frozen) return this.again(); // what is drawn may name them
    const found = blocks(text, this.#frozen, this.#goesOn, links);
    const code = found.length && this.#grows(this.#open[0], found[0]) ? this.#open[0] : null;
    for (const one of this.#open) if (one !== code) one.node.remove();
    const kept = new Map();
    const drawn = found.map((block, i) => {
      this.#seek(code && i === 0 ? code.upto : block.start);
      if (code && i === 0) return this.#growCode(code, block);
      const made = block.code ? this.#code(block) : { node: this.#node(block, kept) };
      if (i ? found[i - 1].goesOn : this.#goesOn) made.node.classList.add("on");
      this.root.append(made.node);
      return { start: block.start, language: block.language, ...made };
    });
    const nOpen = openOf(found);
    const last = found.length - nOpen - 1; // of those that stay as they are
    if (last >= 0) {
      this.#frozen = found[last].end;
      this.#goesOn = Boolean(found[last].goesOn);
    }
    this.#open = drawn.slice(last + 1);
    this.#drawn = nOpen ? kept : new Map();
  }

  /** Whether what is drawn of a block of code only needs what follows; not where a tab was cut in two. */
  #grows(open, { code, start, language }) {
    return (
      open?.code &&
      code &&
      open.start === start &&
      open.language === language &&
      code.every((one) => this.coloured.text.slice(one.start, one.end) === one.text)
    );
  }

  #growCode(open, { code }) {
    for (const { text, start, end } of code) {
      const from = Math.max(open.upto, start);
      if (from < end) this.#put(open.code, { text: text.slice(from - start), start: from, end });
      open.upto = Math.max(open.upto, end);
    }
    return open;
  }

  /** What shows a block of code: {node, code, upto}. */
  #code({ code: pieces, language }) {
    const code = h("code");
    for (const one of pieces) this.#put(code, one);
    const label = language ? `Code, ${language}` : "Code";
    const node = h("pre", { dir: "ltr", tabindex: "0", "aria-label": label }, code, copyButton(() => code.textContent, "copy"));
    return { node, code, upto: pieces.at(-1)?.end ?? 0 };
  }

  /** What shows a node. kept: filled with the rows and items that are drawn, which stay as they are in long ones. */
  #node(node, kept) {
    if (node.code) return this.#code(node).node;
    if (node.tex !== undefined) return this.#formula(node);
    const isPart = node.tag === "li" || node.tag === "tr";
    const key = `${node.start} ${node.end}`;
    const isOver = isPart && node.end < this.coloured.text.length - SHORT;
    const old = isOver && this.#drawn.get(key);
    const element = old || h(node.tag, node.attributes);
    if (isOver) kept.set(key, element);
    if (old) this.#seek(node.end);
    else
      for (const child of node.children) {
        if (child.tag || child.code || child.tex !== undefined) element.append(this.#node(child, kept));
        else this.#put(element, child);
      }
    return node.tag === "table" ? h("div", { class: "wide", tabindex: "0" }, element) : element;
  }

  /** A formula has the colour of the one who wrote most of it. */
  #formula(node) {
    const { runs } = this.coloured;
    const sizes = new Map();
    for (
      let i = this.coloured.runAt(node.start), at = node.start;
      at < node.end;
      at = runs[i]?.end ?? node.end, i += 1
    ) {
      const kind = runs[i] ? kindOf(runs[i].by) : "target";
      sizes.set(kind, (sizes.get(kind) ?? 0) + Math.min(runs[i]?.end ?? node.end, node.end) - at);
    }
    const [kind] = [...sizes].sort(([, one], [, other]) => other - one)[0];
    const drawn = formula(node);
    if (kind === "target") return drawn;
    return h("mark", { class: kind, title: `${WORDS[kind]}: most of this formula, accepted` }, drawn);
  }

  #stretch(start, end) {
    return { text: this.coloured.text.slice(start, end), start, end };
  }

  /** What is shown next stands at a place. */
  #seek(place) {
    this.#guess = this.rejected() ? firstFrom(this.coloured.rejected, place) : this.coloured.rejected.length;
  }

  /** Show a text that has a place: what the target wrote as it is, the rest marked, and the rejected guesses before. */
  #put(parent, { text, start, end }) {
    const { runs, rejected } = this.coloured;
    const tell = (upto) => {
      for (; this.#guess < rejected.length && rejected[this.#guess].at <= upto; this.#guess += 1)
        parent.append(h("del", { title: "a guess that the target rejected" }, rejected[this.#guess].text));
    };
    tell(start);
    if (text.length !== end - start) {
      parent.append(...pieces(text, runs[this.coloured.runAt(start)])); // an entity is one character
      return;
    }
    for (let i = this.coloured.runAt(start), at = start; at < end; i += 1) {
      const upto = Math.min(runs[i]?.end ?? end, end);
      for (let next; at < upto; at = next) {
        tell(at);
        next = Math.min(rejected[this.#guess]?.at ?? upto, upto);
        parent.append(...pieces(text.slice(at - start, next - start), runs[i]));
      }
    }
  }
}

/** How many blocks at the end may change still: a short one may turn out to belong to the one before it. */
function openOf(found) {
  const last = found.at(-1);
  if (!last || last.goesOn) return 0;
  return last.end - last.start > SHORT ? 1 : Math.min(2, found.length);
}

const BLANK = /(^\s+|\s*\n\s*|\s+$)/; // no line under what stands between words and lines

function pieces(text, run) {
  const kind = run ? kindOf(run.by) : "target";
  if (kind === "target") return [text];
  const n = run.n === 1 ? "1 token" : `${run.n} tokens`;
  const title = `${WORDS[kind]} (${run.by}): ${n}, accepted`;
  return text
    .split(BLANK)
    .filter(Boolean)
    .map((part) => h("mark", { class: kind, title, "data-blank": !part.trim() }, part));
}

function firstFrom(rejected, start) {
  let low = 0;
  for (let high = rejected.length; low < high;) {
    const middle = (low + high) >> 1;
    if (rejected[middle].at >= start) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Copies what `text` returns; nothing where the browser cannot. */
export function copyButton(text, kind = "") {
  if (!navigator.clipboard) return ""; // browsers have it at https and at this machine only
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  const button = h("button", { type: "button", class: `quiet ${kind}`, onclick: copy }, "Copy");
  return button;
}
