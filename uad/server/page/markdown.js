// A small Markdown: blocks as places in a text, and inline marks. It makes no HTML: who renders puts text nodes into
// elements.

export const LONG = 4000; // characters of a paragraph, from where on it is cut, so that what is drawn stays as it is
const MOST_INLINE = 20000;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,30})/;
const HEAD = /^ {0,3}(#{1,6})\s+/;
const ITEM = /^(\s{0,12})([-*+]|\d{1,9}[.)])(\s+)/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>\s?/;
const TABLE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/**
 * The blocks of text[from:]. The last one may go on as text comes. Lines are places, [start, end] without the end of
 * the line.
 * goesOn: text[from:] begins in the middle of a paragraph.
 */
export function blocks(text, from = 0, goesOn = false) {
  const found = [];
  let at = from;
  while (at < text.length) {
    const line = lineAt(text, at);
    const shown = text.slice(line[0], Math.min(line[1], line[0] + 400));
    let block;
    if (!shown.trim() && line[1] - line[0] < 400) {
      at = line[1] + 1;
      goesOn = false;
      continue;
    }
    if (goesOn) block = paragraph(text, line);
    else if (FENCE.test(shown)) block = code(text, line, FENCE.exec(shown));
    else if (HEAD.test(shown)) block = heading(line, HEAD.exec(shown));
    else if (RULE.test(shown)) block = { type: "rule", end: line[1] + 1 };
    else if (QUOTE.test(shown)) block = run(text, line, "quote", (one) => QUOTE.exec(one));
    else if (ITEM.test(shown)) block = list(text, line);
    else if (shown.includes("|") && isTable(text, line)) block = table(text, line);
    else block = paragraph(text, line);
    block.start = at;
    goesOn = Boolean(block.goesOn);
    found.push(block);
    at = block.end;
  }
  return found;
}

function lineAt(text, at) {
  const end = text.indexOf("\n", at);
  return [at, end < 0 ? text.length : end];
}

function code(text, line, [, fence, language]) {
  const start = Math.min(line[1] + 1, text.length);
  for (let at = start; ;) {
    const found = text.indexOf(fence, at);
    if (found < 0)
      return { type: "code", language, body: [start, withoutFence(text, start, fence)], end: text.length, open: true };
    const own = text.lastIndexOf("\n", found - 1) + 1;
    if (own >= start && !text.slice(own, found).trim()) {
      return { type: "code", language, body: [start, Math.max(own - 1, start)], end: lineAt(text, found)[1] + 1 };
    }
    at = found + 1;
  }
}

/** The end of what is surely code: a last line may become the fence, whose line end is no code. */
function withoutFence(text, start, fence) {
  const own = Math.max(text.lastIndexOf("\n") + 1, start);
  const last = text.slice(own, own + 40).trim();
  return fence.startsWith(last) ? Math.max(own - 1, start) : text.length;
}

function heading(line, [mark, signs]) {
  return { type: "heading", level: signs.length, lines: [[line[0] + mark.length, line[1]]], end: line[1] + 1 };
}

/** Lines that begin alike; `prefix` matches what is left out of each. */
function run(text, first, type, prefix) {
  const lines = [];
  let line = first;
  for (;;) {
    const match = prefix(text.slice(line[0], Math.min(line[1], line[0] + 80)));
    if (!match) break;
    lines.push([line[0] + match[0].length, line[1]]);
    if (line[1] >= text.length || line[1] - first[0] > LONG) return { type, lines, end: line[1] + 1 };
    line = lineAt(text, line[1] + 1);
  }
  return { type, lines, end: line[0] };
}

function list(text, first) {
  const items = [];
  let line = first;
  let end = line[1] + 1;
  for (;;) {
    const shown = text.slice(line[0], Math.min(line[1], line[0] + 80));
    const match = ITEM.exec(shown);
    const depth = match ? match[1].length >> 1 : 0;
    if (match && (items.length === 0 || depth > 0 || isOrdered(match) === items[0].ordered)) {
      items.push({
        depth: Math.min(depth, 5),
        ordered: isOrdered(match),
        number: parseInt(match[2], 10),
        lines: [[line[0] + match[0].length, line[1]]],
      });
    } else if (shown.trim() && /^\s{2,}/.test(shown)) {
      items.at(-1).lines.push([line[0] + shown.length - shown.trimStart().length, line[1]]);
    } else if (shown.trim()) {
      break;
    } else if (!ITEM.test(text.slice(line[1] + 1, line[1] + 80))) {
      break;
    }
    end = line[1] + 1;
    if (end >= text.length || end - first[0] > 4 * LONG) break;
    line = lineAt(text, end);
  }
  return { type: "list", items, end };
}

const isOrdered = (match) => /\d/.test(match[2]);

function isTable(text, line) {
  const next = lineAt(text, line[1] + 1);
  return (
    line[1] < text.length &&
    next[1] - next[0] < 1000 &&
    text.slice(...next).includes("-") &&
    TABLE.test(text.slice(...next))
  );
}

function table(text, first) {
  const rows = [cells(text, first)];
  let line = lineAt(text, first[1] + 1);
  let end = line[1] + 1;
  while (end < text.length && end - first[0] < 4 * LONG) {
    line = lineAt(text, end);
    if (!text.slice(...line).includes("|")) break;
    rows.push(cells(text, line));
    end = line[1] + 1;
  }
  return { type: "table", rows, end };
}

function cells(text, [start, end]) {
  const found = [];
  let from = start;
  for (let i = start; i <= end; i += 1) {
    if (i < end && (text[i] !== "|" || text[i - 1] === "\\")) continue;
    const shown = text.slice(from, i);
    const before = shown.length - shown.trimStart().length;
    if (shown.trim() || (from > start && i < end)) found.push([from + before, from + before + shown.trim().length]);
    from = i + 1;
  }
  return found;
}

function paragraph(text, first) {
  const lines = [];
  let line = first;
  for (;;) {
    const room = first[0] + LONG;
    if (line[1] > room) {
      const cut = cutAt(text, line[0], room);
      lines.push([line[0], cut]);
      return { type: "paragraph", lines, end: cut, goesOn: true };
    }
    lines.push(line);
    if (line[1] >= text.length) return { type: "paragraph", lines, end: text.length };
    line = lineAt(text, line[1] + 1);
    const shown = text.slice(line[0], Math.min(line[1], line[0] + 400));
    if (!shown.trim() || FENCE.test(shown) || HEAD.test(shown) || ITEM.test(shown) || QUOTE.test(shown)) break;
  }
  return { type: "paragraph", lines, end: line[0] };
}

/** A place to cut a long line: behind a blank, and never within a pair of surrogates. */
function cutAt(text, start, end) {
  const blank = text.lastIndexOf(" ", end);
  if (blank > start + LONG / 2) return blank + 1;
  return (text.charCodeAt(end) & 0xfc00) === 0xdc00 ? end - 1 : end;
}

const ESCAPED = /\\([\\`*_{}[\]()#+\-.!|~<>])/;
const TICKS = /(`+)/;
const SIGN = /(\*\*|__|~~|\*|_)/;
const LINK = /\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()<>]{1,1000}|mailto:[^\s()<>]{1,200})\)/;
const ADDRESS = /(https?:\/\/[^\s<>"'`)\]]{1,1000})/;
const MARK = [ESCAPED, TICKS, SIGN, LINK, ADDRESS].map((one) => one.source).join("|");
const TAGS = { "**": "strong", __: "strong", "~~": "s", "*": "em", _: "em" };

/**
 * Inline marks of text[start:end]. put(start, end) shows a stretch; within(tag, attributes, work) does `work` inside
 * an element.
 */
export function inline(text, start, end, put, within) {
  if (end - start > MOST_INLINE) {
    put(start, end);
    return;
  }
  const missing = new Set(); // closers that were looked for in vain: each is looked for once
  let from = start;
  const mark = new RegExp(MARK, "g");
  mark.lastIndex = start;
  const show = (upto) => {
    if (upto > from) put(from, upto);
  };
  for (let match; (match = mark.exec(text)) && match.index < end;) {
    const [all, escaped, ticks, sign, label, target, address] = match;
    const at = match.index;
    const behind = at + all.length;
    if (behind > end) break;
    if (escaped) {
      show(at);
      from = at + 1;
    } else if (ticks || sign) {
      const close = missing.has(all)
        ? -1
        : ticks
          ? closingTicks(text, ticks, behind, end)
          : closingSign(text, sign, at, behind, end);
      if (close < 0) {
        if (ticks) missing.add(all);
        continue;
      }
      show(at);
      if (ticks) within("code", {}, () => put(behind, close));
      else within(TAGS[sign], {}, () => inline(text, behind, close, put, within));
      from = mark.lastIndex = close + all.length;
    } else {
      show(at);
      const link = { href: target || address, target: "_blank", rel: "noopener noreferrer nofollow" };
      within("a", link, () => (label ? put(at + 1, at + 1 + label.length) : put(at, behind)));
      from = behind;
    }
  }
  show(end);
}

function closingTicks(text, ticks, from, end) {
  for (let at = from; (at = text.indexOf(ticks, at)) >= 0 && at < end;) {
    let behind = at;
    while (text[behind] === "`") behind += 1;
    if (behind - at === ticks.length && behind <= end) return at;
    at = behind;
  }
  return -1;
}

function closingSign(text, sign, at, from, end) {
  const isWord = (char) => char !== undefined && /[\p{L}\p{N}]/u.test(char);
  if (/\s/.test(text[from] ?? " ") || (sign[0] === "_" && isWord(text[at - 1]))) return -1;
  const limit = Math.min(end, from + 2000);
  for (let close = from; (close = text.indexOf(sign, close)) >= 0 && close < limit; close += sign.length) {
    const behind = close + sign.length;
    if (behind > end || close === from || /\s/.test(text[close - 1])) continue;
    if (sign.length === 1 && (text[behind] === sign || text[close - 1] === sign)) continue;
    if (sign[0] === "_" && isWord(text[behind])) continue;
    return close;
  }
  return -1;
}
