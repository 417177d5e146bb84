// Formulas in Markdown: where they are, and how they are drawn. KaTeX is fetched when the first one occurs.

import { h } from "./dom.js";

const KATEX = new URL("./vendor/katex-0.19.1/", import.meta.url);
const LONGEST = 3000; // characters of a formula
const DEEPEST = 40; // levels of KaTeX's tree: two for a fraction, three for a matrix or a brace
const LIMITS = { maxExpand: 500, maxSize: 20, strict: "ignore", trust: false }; // sizes in em
const DEFINITIONS = "def gdef edef xdef let futurelet newcommand renewcommand providecommand".split(" ");

/** Adds the token `formula` to markdown-it: content is the TeX, markup is what it begins with, block whether it displays. */
export function addFormulas(md) {
  md.inline.ruler.before("escape", "formula", inline);
  md.block.ruler.before("fence", "formula", block, { alt: ["paragraph", "reference", "blockquote", "list"] });
}

/** \(…\), \[…\], $$…$$ and $…$ within a paragraph. */
function inline(state, silent) {
  const opener = ["\\(", "\\[", "$$", "$"].find((one) => state.src.startsWith(one, state.pos));
  if (!opener) return false;
  const from = state.pos + opener.length;
  const near = state.src.slice(0, from + LONGEST);
  const end = opener === "$" ? closingDollar(near, from) : near.indexOf(closerOf(opener), from);
  if (end < 0 || end + opener.length > state.posMax || !state.src.slice(from, end).trim()) return false;
  if (!silent) push(state, opener, state.src.slice(from, end));
  state.pos = end + opener.length;
  return true;
}

function push(state, opener, tex) {
  const token = state.push("formula", "", 0);
  token.content = tex;
  token.markup = opener;
  token.block = opener === "$$" || opener === "\\[";
  return token;
}

const closerOf = (opener) => ({ "\\(": "\\)", "\\[": "\\]", $$: "$$" })[opener];

/**
 * Where a formula that begins after a single dollar ends; -1 where the dollar is one of money or of a shell's variable.
 * As in Pandoc no blank stands inside the dollars, and nothing of a word touches them: "$5 and $10" has none.
 */
function closingDollar(src, from) {
  let end = src.indexOf("$", from);
  while (end > 0 && src[end - 1] === "\\") end = src.indexOf("$", end + 1);
  if (end < 0 || src[end + 1] === "$" || /\s/.test(src[from] + src[end - 1])) return -1;
  if (/[\p{L}\p{N}]/u.test((src[from - 2] ?? "") + (src[end + 1] ?? ""))) return -1;
  const tex = src.slice(from, end);
  const isProse = /^\d/.test(tex) && /\s\p{L}{2,}/u.test(tex) && !/[\\^_={}]/.test(tex); // "$5 a day, or 9$"
  return isProse || /\n\s*\n/.test(tex) ? -1 : end;
}

/** A formula on lines of its own, without an empty line in it. */
function block(state, startLine, endLine, silent) {
  const at = state.bMarks[startLine] + state.tShift[startLine];
  const opener = ["$$", "\\["].find((one) => state.src.startsWith(one, at));
  if (!opener || state.sCount[startLine] - state.blkIndent >= 4) return false;
  const closer = closerOf(opener);
  if (!state.src.slice(at + opener.length, at + LONGEST).includes(closer)) return false;
  let line = startLine;
  for (let from = at + opener.length; ; from = state.bMarks[line]) {
    const end = state.src.slice(from, state.eMarks[line]).indexOf(closer);
    if (end >= 0 && state.src.slice(from + end + 2, state.eMarks[line]).trim()) return false;
    if (end >= 0) break;
    line += 1;
    if (line >= endLine || state.isEmpty(line) || state.sCount[line] < state.blkIndent) return false;
  }
  const lines = state.getLines(startLine, line + 1, state.blkIndent, false).trim();
  const tex = lines.slice(opener.length, -closer.length);
  if (!tex.trim()) return false;
  if (silent) return true;
  state.line = line + 1;
  push(state, opener, tex).map = [startLine, state.line];
  return true;
}

let katex = null;
let loading = null;
let waiting = [];

/** An element that shows a formula; as it was typed until KaTeX is here, and where KaTeX cannot read it. */
export function formula({ tex, display, text }) {
  const element = h(display ? "div" : "span", { class: display ? "formula display" : "formula", dir: "ltr" }, text);
  if (katex) draw(element, tex, display);
  else {
    waiting.push(() => draw(element, tex, display));
    loading ??= load();
  }
  return element;
}

async function load() {
  document.head.append(h("link", { rel: "stylesheet", href: new URL("katex.min.css", KATEX).href }));
  try {
    await import(new URL("katex.min.js", KATEX).href);
  } catch {
    loading = null; // the network: the next formula tries again
    return;
  }
  katex = globalThis.katex;
  allowStyles(katex.__domTree.SvgNode);
  for (const one of waiting) one();
  waiting = [];
}

/** The page's policy forbids attributes of style, and KaTeX sets one for arrows: the same through the style object. */
function allowStyles(SvgNode) {
  const { toNode } = SvgNode.prototype;
  SvgNode.prototype.toNode = function () {
    const { style, ...attributes } = this.attributes;
    this.attributes = attributes;
    const node = toNode.call(this);
    if (style) node.style.cssText = style;
    return node;
  };
}

/** A formula's own commands could make a tree of any size of a few characters. */
const defines = (tex) => [...tex.matchAll(/\\([a-z@]+|.)/gis)].some(([, name]) => DEFINITIONS.includes(name));

/** Whether a tree has more levels than any browser draws without an overflow of its stack. Does not recurse itself. */
function isDeep(tree) {
  let level = tree;
  for (let depth = 0; depth < DEEPEST && level.length; depth += 1) level = level.flatMap(childrenOf);
  return level.length > 0;
}

/** The nodes below one, also those in lists of lists; `loc` and `token` are places in the text. */
const childrenOf = (node) =>
  Object.entries(node).flatMap(([name, value]) => {
    const found = Array.isArray(value) ? value.flat(Infinity) : [value];
    return name === "loc" || name === "token" ? [] : found.filter((one) => one && typeof one === "object");
  });

function draw(element, tex, display) {
  const drawn = h("span");
  try {
    const options = { ...LIMITS, displayMode: display, throwOnError: true };
    if (defines(tex)) throw new Error("Not drawn: it defines commands");
    if (isDeep(katex.__parse(tex, options))) throw new Error("Not drawn: it is nested too deeply");
    katex.render(tex, drawn, options);
  } catch (error) {
    element.title = error.message.replace(/^KaTeX parse error: /, "Not drawn: ");
    return;
  }
  element.replaceChildren(...drawn.childNodes);
}
