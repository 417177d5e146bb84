// Draws a coloured text as Markdown while it grows: blocks that are over stay as they are, the last one is drawn anew.

import { blocks, inline, LONG } from "./markdown.js";
import { h } from "./dom.js";
import { kindOf, WORDS } from "./origins.js";

const SHORT = 80; // characters of a block
const PAUSE_MS = 33; // between two drawings; three times what the last one took, if that is more

export class Paper {
  #frozen = 0; // characters that are drawn for good
  #open = []; // blocks that may change still, {start, node}; of code {start, node, code, upto}
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
    if (this.markdown) this.#drawBlocks();
    else this.#drawPlain();
    this.#cost = performance.now() - began;
    this.drawn();
  }

  /** Draw all of it anew, as after a change of what is shown. */
  again() {
    this.root.replaceChildren();
    this.#frozen = 0;
    this.#open = [];
    this.#goesOn = false;
    this.draw();
  }

  #drawPlain() {
    for (const { node } of this.#open) node.remove();
    const upto = this.coloured.text.length;
    let from = this.#frozen;
    for (; upto - from > LONG; from = this.#frozen) {
      const end = this.coloured.runs[this.coloured.runAt(from + LONG / 2)].end;
      if (end >= upto) break;
      this.#put(this.root, from, end);
      this.#frozen = end;
    }
    const last = h("span");
    this.#put(last, from, upto);
    this.root.append(last);
    this.#open = [{ node: last }];
  }

  #drawBlocks() {
    const found = blocks(this.coloured.text, this.#frozen, this.#goesOn);
    const code =
      this.#open[0]?.code && found[0]?.start === this.#open[0].start && found[0].type === "code" ? this.#open[0] : null;
    for (const one of this.#open) if (one !== code) one.node.remove();
    const drawn = found.map((block, i) => {
      if (i === 0 && code) return this.#growCode(code, block);
      const made = this.#block(block, i ? found[i - 1].goesOn : this.#goesOn);
      this.root.append(made.node);
      return { start: block.start, ...made };
    });
    const nOpen = openOf(found);
    const last = found.length - nOpen - 1; // of those that stay as they are
    if (last >= 0) {
      this.#frozen = found[last].end;
      this.#goesOn = Boolean(found[last].goesOn);
    }
    this.#open = drawn.slice(last + 1);
  }

  #growCode(open, { body }) {
    if (body[1] > open.upto) this.#put(open.code, open.upto, body[1]);
    open.upto = Math.max(open.upto, body[1]);
    return open;
  }

  /** What shows a block: {node}, of code {node, code, upto}. */
  #block(block, goesOn) {
    switch (block.type) {
      case "code": {
        const code = h("code");
        this.#put(code, ...block.body);
        const label = block.language ? `Code, ${block.language}` : "Code";
        const node = h("pre", { dir: "ltr", tabindex: "0", "aria-label": label }, code, copyButton(code));
        return { node, code, upto: block.body[1] };
      }
      case "heading":
        return { node: this.#lines(h(`h${Math.min(block.level + 2, 5)}`, { dir: "auto" }), block.lines) };
      case "rule":
        return { node: h("hr") };
      case "quote":
        return { node: this.#lines(h("blockquote", { dir: "auto" }), block.lines) };
      case "list":
        return { node: this.#list(block.items) };
      case "table":
        return { node: this.#table(block.rows) };
      default:
        return { node: this.#lines(h("p", { dir: "auto", class: goesOn ? "on" : false }), block.lines) };
    }
  }

  #lines(element, lines) {
    lines.forEach(([start, end], i) => {
      if (i) element.append("\n");
      this.#inline(element, start, end);
    });
    return element;
  }

  #inline(element, start, end) {
    const stack = [element];
    const put = (from, upto) => this.#put(stack.at(-1), from, upto);
    const within = (tag, attributes, work) => {
      const inner = h(tag, attributes);
      stack.at(-1).append(inner);
      stack.push(inner);
      work();
      stack.pop();
    };
    inline(this.coloured.text, start, end, put, within);
  }

  #list(items) {
    const make = (item) =>
      h(item.ordered ? "ol" : "ul", { dir: "auto", start: item.ordered && item.number !== 1 ? item.number : false });
    const root = make(items[0]);
    const open = [{ depth: items[0].depth, list: root }];
    for (const item of items) {
      while (open.length > 1 && open.at(-1).depth > item.depth) open.pop();
      if (item.depth > open.at(-1).depth && open.at(-1).list.lastChild) {
        const inner = make(item);
        open.at(-1).list.lastChild.append(inner);
        open.push({ depth: item.depth, list: inner });
      }
      open.at(-1).list.append(this.#lines(h("li"), item.lines));
    }
    return root;
  }

  #table(rows) {
    const row = (cells, tag) => h("tr", {}, ...cells.map((cell) => this.#lines(h(tag, { dir: "auto" }), [cell])));
    const body = h("tbody", {}, ...rows.slice(1).map((cells) => row(cells, "td")));
    return h("div", { class: "wide", tabindex: "0" }, h("table", {}, h("thead", {}, row(rows[0], "th")), body));
  }

  /** Show text[start:end]: what the target wrote as it is, the rest marked. */
  #put(parent, start, end) {
    const { text, runs, rejected } = this.coloured;
    let guesses = this.rejected() ? firstFrom(rejected, start) : rejected.length;
    const tell = (upto) => {
      for (; guesses < rejected.length && rejected[guesses].at <= upto; guesses += 1)
        parent.append(h("del", { title: "a guess that the target rejected" }, rejected[guesses].text));
    };
    for (let i = this.coloured.runAt(start), at = start; at < end; i += 1) {
      const run = runs[i];
      const upto = Math.min(run?.end ?? end, end);
      tell(at);
      for (let next; at < upto; at = next) {
        next = Math.min(guesses < rejected.length ? rejected[guesses].at : upto, upto);
        parent.append(...pieces(text.slice(at, next), run));
        if (next < upto) tell(next);
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

function copyButton(source) {
  if (!navigator.clipboard) return ""; // browsers have it at https and at this machine only
  const copy = async () => {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  const button = h("button", { type: "button", class: "quiet copy", onclick: copy }, "Copy");
  return button;
}
