// Markdown as a tree of nodes that know their places in the text, so that each character shows who wrote it. markdown-it
// parses; HTML is never made. A node is {tag, attributes, start, end, children}, or one of:
//   {text, start, end}             what is shown; as long as its place, except for an entity such as &amp;
//   {tex, display, text, start, end}                   a formula
//   {code, language, open, start, end}                 a block of code: its texts, and whether it may grow

import { addFormulas } from "./formulas.js";
import MarkdownIt from "./vendor/markdown-it-15.0.3/markdown-it.esm.min.mjs";

export const LONG = 4000; // characters of a paragraph, from where on it is cut, so that what is drawn stays as it is
const DEEPEST = 32; // levels of quotes, lists and items; of marks within a paragraph
const JOINT = "\u200b"; // before the rest of a paragraph that was cut, so that it begins no list or heading

const md = new MarkdownIt({ html: false, linkify: true });
md.core.ruler.disable(["linkify", "replacements", "smartquotes", "text_join"]);
md.inline.ruler2.disable("fragments_join");
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
md.validateLink = (url) => /^(https?:\/\/|mailto:)/i.test(url);
md.normalizeLinkText = (url) => url;
addFormulas(md);
keepPlaces(md.inline);
boundBlocks(md.block);

const TAGS = { s: "s", em: "em", strong: "strong", bullet_list: "ul", ordered_list: "ol", list_item: "li" };
const SAME = ["blockquote", "table", "thead", "tbody", "tr", "th", "td"]; // tags that are called as their tokens are

/**
 * The blocks of text[from:]. The last one or two may change as text comes. One that `goesOn` is a part of a paragraph.
 * goesOn: text[from:] begins in the middle of a paragraph. links: the definitions that there are.
 */
export function blocks(text, from = 0, goesOn = false, links = definitions(text, from)) {
  const isLong = ({ tag, start, end }) => tag === "p" && end - start > LONG;
  return new Tree(text, from, text.length, goesOn)
    .build(links)
    .flatMap((block) => (isLong(block) ? cutParagraph(text, block, links) : [block]));
}

/** What [name]: address defines in text[from:]. */
export function definitions(text, from) {
  const env = {};
  if (text.includes("]:", from)) md.parse(text.slice(from), env);
  return env.references ?? {};
}

function cutParagraph(text, block, links) {
  const parts = [];
  for (let { start } = block; start < block.end; start = parts.at(-1).end) {
    const end = block.end - start > LONG ? cutAt(text, start, start + LONG) : block.end;
    const children = new Tree(text, start, end, true).build(links).flatMap((part) => part.children);
    parts.push({ ...block, start, end, children, goesOn: end < block.end });
  }
  return parts;
}

/** A place to cut a long line: after a blank, and never within a pair of surrogates. */
function cutAt(text, start, end) {
  const blank = text.lastIndexOf(" ", end);
  if (blank > start + LONG / 2) return blank + 1;
  return (text.charCodeAt(end) & 0xfc00) === 0xdc00 ? end - 1 : end;
}

/** Makes nodes of markdown-it's tokens. */
class Tree {
  #root = { children: [] };
  #open = [this.#root];
  #lines = [0]; // where each begins
  #cell = 0; // where to look for the text of the next cell of a table

  constructor(text, from, end, goesOn) {
    this.from = from;
    this.offset = goesOn ? from - JOINT.length : from; // from places in this.text to those in the whole text
    const own = text.slice(from, end).replaceAll("\r\n", " \n").replaceAll("\r", "\n");
    this.text = goesOn ? JOINT + own : own;
    for (let at = 0; (at = this.text.indexOf("\n", at) + 1) > 0;) this.#lines.push(at);
  }

  build(links) {
    for (const token of md.parse(this.text, { references: { ...links } })) this.#add(token);
    return this.#root.children;
  }

  #add(token) {
    const { children } = this.#open.at(-1);
    if (token.type === "inline") this.#inline(this.#open.at(-1), token);
    else if (token.nesting > 0) this.#enter(token);
    else if (token.nesting < 0) this.#leave();
    else if (token.type === "formula") children.push(this.#formula(token, this.#span(token)));
    else if (token.type === "hr") children.push({ tag: "hr", attributes: {}, children: [], ...this.#span(token) });
    else children.push(this.#code(token));
  }

  #enter(token) {
    const type = token.type.replace("_open", "");
    const attributes = { dir: "auto", start: token.attrGet("start") };
    let tag = TAGS[type] ?? (SAME.includes(type) ? type : "p");
    if (type === "heading") tag = `h${Math.min(Number(token.tag[1]) + 2, 5)}`;
    if (type === "tr") this.#cell = this.#lines[token.map[0]];
    if (token.attrGet("style")) attributes.class = token.attrGet("style").slice("text-align:".length);
    this.#open.push({ tag, attributes, children: [], ...(token.map ? this.#span(token) : {}) });
  }

  /** The end of a node. A list's item or a quote shows a paragraph bare that has nothing but lists after it. */
  #leave() {
    const node = this.#open.pop();
    const [first, ...rest] = node.children;
    const isBare = first?.tag === "p" && rest.every(({ tag }) => tag === "ul" || tag === "ol");
    if (isBare && (node.tag === "li" || node.tag === "blockquote")) node.children = [...first.children, ...rest];
    this.#open.at(-1).children.push(node);
  }

  /** The place of whole lines. */
  #span({ map: [first, behind] }) {
    const placeOf = (line) => this.offset + Math.min(this.#lines[line] ?? Infinity, this.text.length);
    return { start: Math.max(placeOf(first), this.from), end: placeOf(behind) };
  }

  #code(token) {
    const { markup, map, content } = token;
    const isFence = token.type === "fence";
    const last = this.text.slice(this.#lines[map[1] - 1], this.#lines[map[1]]).trimEnd();
    const open = isFence && (map[1] - map[0] < 2 || !last.endsWith(markup) || /[^\s>`~]/.test(last));
    let shown = content.replace(/\n$/, "");
    const cut = shown.lastIndexOf("\n");
    const mayClose = shown.slice(cut + 1).trim();
    if (open && mayClose && markup.startsWith(mayClose)) shown = shown.slice(0, Math.max(cut, 0));
    const language = token.info.trim().split(/\s/)[0].slice(0, 30);
    return { code: this.#pieces(shown, isFence ? map[0] + 1 : map[0]), language, open, ...this.#span(token) };
  }

  /** A text of whole lines, `line` and those after it, as pieces that know their places. */
  #pieces(shown, line) {
    const found = [];
    for (const one of shown.split(/(?<=\n)/)) {
      const start = this.offset + this.#suffix(one.replace("\n", ""), line);
      line += 1;
      if (found.at(-1)?.end === start) {
        found.at(-1).text += one;
        found.at(-1).end += one.length;
      } else if (one) found.push({ text: one, start, end: start + one.length });
    }
    return found;
  }

  /** Where the end of a line begins that reads so: the marks of quotes and lists stand before it, or half a tab. */
  #suffix(shown, line) {
    const end = (this.#lines[line + 1] ?? this.text.length + 1) - 1;
    const bare = shown.trimStart();
    const found = this.text.lastIndexOf(bare, end - bare.length);
    return Math.max(found, this.#lines[line] ?? end) - (shown.length - bare.length);
  }

  /** [place in content, place in this.text] of each line of a token's content. */
  #linesOf({ content, map }) {
    let at = 0;
    return content.split("\n").map((line, i) => {
      const start = [at, this.#suffix(line, map[0] + i)];
      at += line.length + 1;
      return start;
    });
  }

  /** The same of a cell of a table, whose content has no backslashes before its bars. */
  #cellOf({ content }) {
    const typed = content.replaceAll("|", "\\|");
    const begin = Math.max(this.text.indexOf(typed, this.#cell), this.#cell);
    this.#cell = begin + typed.length;
    const bars = [...content.matchAll(/\|/g)].map(({ index }, i) => [index, begin + index + i + 1]);
    return [[0, begin], ...bars];
  }

  /** A function from places in the content of a token to places in the whole text. */
  #placer(starts) {
    let i = 0;
    return (at) => {
      while (i > 0 && starts[i][0] > at) i -= 1;
      while (i + 1 < starts.length && starts[i + 1][0] <= at) i += 1;
      return this.offset + starts[i][1] + at - starts[i][0];
    };
  }

  #inline(top, token) {
    const starts = token.map ? this.#linesOf(token) : this.#cellOf(token);
    const placeOf = this.#placer(starts);
    if (depthOf(token.children) > DEEPEST) return top.children.push(...this.#asWritten(token, starts, placeOf));
    const stack = [top];
    for (const child of token.children) {
      const { children } = stack.at(-1);
      if (child.nesting > 0) {
        const tag = TAGS[child.type.replace("_open", "")] ?? "a";
        const inner = { tag, attributes: tag === "a" ? outward(child.attrGet("href")) : {}, children: [] };
        children.push(inner);
        stack.push(inner);
      } else if (child.nesting < 0) stack.pop();
      else if (child.content || child.type !== "text") children.push(this.#leaf(child, ...child.place.map(placeOf)));
    }
  }

  /** The content of a token as texts, one for each of its lines. */
  #asWritten({ content }, starts, placeOf) {
    return starts.flatMap(([at], i) => {
      const text = content.slice(at, starts[i + 1]?.[0]);
      return text ? [this.#leaf({ type: "text", content: text }, placeOf(at), placeOf(at) + text.length)] : [];
    });
  }

  #leaf(token, start, end) {
    if (token.type === "formula") return this.#formula(token, { start, end });
    if (token.type.endsWith("break")) return { text: "\n", start, end: start + 1 };
    const isJoint = start < this.from;
    const shown = { text: token.content.slice(isJoint ? JOINT.length : 0), start: isJoint ? this.from : start, end };
    if (token.type === "code_inline") return { tag: "code", attributes: {}, children: [shown] };
    if (token.type !== "image") return shown;
    const href = token.attrGet("src"); // what other hosts have is not fetched
    return { tag: "a", attributes: outward(href), children: [{ ...shown, text: shown.text || href }] };
  }

  #formula({ content, block }, { start, end }) {
    const text = this.text.slice(start - this.offset, end - this.offset).trimEnd();
    return { tex: content, display: block, text, start, end };
  }
}

const outward = (href) => ({ href, target: "_blank", rel: "noopener noreferrer nofollow" });

/** How many tokens stand within each other at most. */
function depthOf(tokens) {
  let depth = 0;
  return tokens.reduce((most, { nesting }) => Math.max(most, (depth += nesting)), 0);
}

/** Quotes and lists that stand too deep are text. Without this markdown-it leaves out what they hold from level 100 on. */
function boundBlocks({ ruler }) {
  for (const { name, fn, alt } of ruler.__rules__)
    if (name === "blockquote" || name === "list")
      ruler.at(name, (state, ...more) => state.level < DEEPEST && fn(state, ...more), { alt });
}

/** Makes the tokens of inline rules say where in the content they stand: token.place. */
function keepPlaces(inline) {
  for (const { name, fn } of inline.ruler.__rules__) inline.ruler.at(name, placed(fn));

  // A text that waits ends where the rule began that pushes it out, or at the end.
  inline.State = class extends inline.State {
    pushPending() {
      const token = super.pushPending();
      const { content } = token;
      const start = this.src.lastIndexOf(content, (this.began ?? this.pos) - content.length);
      token.place = [start, start + content.length];
      return token;
    }
  };
  const { tokenize } = inline;
  inline.tokenize = function (state) {
    const outer = state.began;
    state.began = null;
    tokenize.call(this, state); // of a link's text, too
    state.began = outer;
  };
}

function placed(rule) {
  return (state, silent) => {
    if (silent) return rule(state, true);
    const [outer, began, n] = [state.began, state.pos, state.tokens.length];
    state.began = began;
    const isHere = rule(state, false);
    state.began = outer;
    let at = began;
    for (const token of state.tokens.slice(n)) {
      token.place ??= placeIn(state, token, at, began);
      at = Math.max(at, token.place[1]);
    }
    return isHere;
  };
}

/** Where a rule's token stands: its content, if the text has it as it is, else all that the rule took. */
function placeIn({ src, pos }, { type, content, markup }, at, began) {
  if (type.endsWith("_open")) return [at, at];
  if (type.endsWith("break")) return [src.indexOf("\n", at), src.indexOf("\n", at) + 1];
  if (type === "formula" || !content) return [began, pos];
  const from = type === "code_inline" ? at + markup.length : at;
  const found = src.slice(from, pos).replaceAll("\n", " ").indexOf(content);
  if (found >= 0) return [from + found, from + found + content.length];
  const before = pos - content.length; // a bare address: its rule begins at the colon
  return src.startsWith(content, before) ? [before, pos] : [began, pos];
}
