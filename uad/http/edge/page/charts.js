// Two charts as SVG: bars by length, and a curve with the lengths chosen on it.

import { number } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 220;
const EDGE = { left: 58, right: 8, top: 10, bottom: 34 };
const inner = { width: WIDTH - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };

function s(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

function sheet(label, most, unit, xLabel) {
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    const y = EDGE.top + inner.height * (1 - share);
    svg.append(s("line", { class: "axis", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y, y2: y }));
    svg.append(s("text", { x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, unit(share * most)));
  }
  svg.append(s("text", { x: EDGE.left + inner.width / 2, y: HEIGHT - 3, "text-anchor": "middle" }, xLabel));
  return svg;
}

const xText = (x, text) => s("text", { x, y: HEIGHT - EDGE.bottom + 14, "text-anchor": "middle" }, text);

/** parts: {kind, counts}, stacked by length. */
export function lengthBars(parts) {
  const n = Math.max(...parts.map(({ counts }) => counts.length), 8);
  const totals = Array.from({ length: n }, (_, k) => parts.reduce((sum, { counts }) => sum + (counts[k] ?? 0), 0));
  const most = Math.max(...totals, 2);
  const all = totals.reduce((a, b) => a + b, 0);
  const mean = all ? totals.reduce((sum, count, k) => sum + k * count, 0) / all : 0;
  const svg = sheet(
    `${number(all)} drafts, ${number(mean, 1)} tokens accepted on average`,
    most,
    (value) => number(value),
    "tokens accepted of a draft",
  );
  const step = inner.width / n;
  for (let k = 0; k < n; k += 1) {
    let y = EDGE.top + inner.height;
    for (const { kind, counts } of parts) {
      const height = ((counts[k] ?? 0) / most) * inner.height;
      y -= height;
      if (height)
        svg.append(s("rect", { class: kind, x: EDGE.left + k * step + 1, y, width: Math.max(step - 2, 1), height }));
    }
    if (n <= 16 || k % 4 === 0) svg.append(xText(EDGE.left + (k + 0.5) * step, String(k)));
  }
  return svg;
}

/** curve[k]: ms of a pass of k + 1 rows. lengths[k]: rounds of late with k drafted rows. */
export function costCurve(curve, lengths) {
  const most = Math.max(...curve);
  const rounds = lengths.reduce((a, b) => a + b, 0);
  const svg = sheet(
    `A pass of one row takes ${number(curve[0], 1)} ms, one of ${curve.length} ${number(curve.at(-1), 1)} ms`,
    most,
    (value) => `${number(value, most < 20 ? 1 : 0)} ms`,
    "rows of a pass: one, plus the drafted tokens",
  );
  const x = (k) => EDGE.left + ((k + 0.5) / curve.length) * inner.width;
  const y = (ms) => EDGE.top + inner.height * (1 - ms / most);
  const reach = Math.min(curve.length, most / curve[0]); // rows, one by one, that take as long as the dearest pass
  svg.append(s("line", { class: "even", x1: x(0), y1: y(curve[0]), x2: x(reach - 1), y2: y(curve[0] * reach) }));
  svg.append(s("polyline", { class: "curve", points: curve.map((ms, k) => `${x(k)},${y(ms)}`).join(" ") }));
  curve.forEach((ms, k) => {
    if (k === 0 || (k + 1) % 4 === 0) svg.append(xText(x(k), String(k + 1)));
    const share = rounds ? (lengths[k] ?? 0) / rounds : 0;
    if (!share) return;
    const dot = s("circle", { class: "chosen", cx: x(k), cy: y(ms), r: 2.5 + 9 * Math.sqrt(share) });
    dot.append(s("title", {}, `${k} drafted: ${Math.round(100 * share)} % of the last ${rounds} rounds`));
    svg.append(dot);
  });
  return svg;
}
