// Small helpers for the document. Text of models goes through textContent only.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; children that are no nodes become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Tell screen readers one short sentence. */
export function announce(text) {
  $("said").textContent = text;
}

export const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export const percent = (share) => `${Math.round(100 * share)} %`;

export const seconds = (ms) => `${number(ms / 1000, 1)} s`;
