// What the page draws, so that its next start knows what a tab failed on. A tab that crashed or hangs says nothing more:
// a mark of its own is all that it leaves.

import { isThere } from "./tabs.js";
import { chats, TAB } from "./store.js";

const MARK = "uad.drawing."; // uad.drawing.TAB: the conversation that this tab draws now
const FAILED = "uad.failed"; // the conversations that a tab failed on
const own = MARK + TAB;

let isGrowing = () => false;
let drawings = 0; // that are not painted yet

/** Where the browser lets the page keep nothing, or has no room, nothing is guarded. */
function tried(work, otherwise) {
  try {
    return work();
  } catch {
    return otherwise;
  }
}

/** growing(): whether the conversation that is shown grows in this tab. */
export function start(growing) {
  isGrowing = growing;
  addEventListener("pagehide", unmark);
}

/** A conversation is about to be drawn, or to be seen: the tab is marked until it was painted, and while it grows. */
export function draws({ id }) {
  if (document.visibilityState !== "visible") return unmark();
  tried(() => localStorage.setItem(own, id));
  drawings += 1;
  requestAnimationFrame(() => requestAnimationFrame(painted)); // the first comes before the paint
}

function painted() {
  drawings -= 1;
  if (!drawings && !isGrowing()) unmark();
}

/** This tab is left, or hidden: a browser that ends it now does so for reasons of its own. */
export function unmark() {
  tried(() => localStorage.removeItem(own));
}

/** The conversations that tabs are marked with, by the tab. */
export function marks() {
  const keys = tried(() => Object.keys(localStorage), []).filter((key) => key.startsWith(MARK) && key !== own);
  return new Map(keys.map((key) => [key.slice(MARK.length), localStorage.getItem(key)]));
}

/** Writes down the conversations of those tabs that do not answer, and returns them. */
export async function failures(marked) {
  const found = [];
  const look = async ([tab, id]) => {
    if (await isThere(tab)) return;
    localStorage.removeItem(MARK + tab);
    found.push(id);
  };
  await Promise.all([...marked].map(look));
  keep([...new Set([...all(), ...found])]);
  return found;
}

function all() {
  const ids = tried(() => JSON.parse(localStorage.getItem(FAILED) ?? "[]"), []);
  return Array.isArray(ids) ? ids : [];
}

function keep(failed) {
  const ids = failed.filter((id) => chats.some((chat) => chat.id === id));
  tried(() => (ids.length ? localStorage.setItem(FAILED, JSON.stringify(ids)) : localStorage.removeItem(FAILED)));
}

/** Whether a tab failed on a conversation: then it is shown as plain text. */
export const hasFailed = ({ id }) => all().includes(id);

/** It may be drawn again, or is deleted. */
export const forgive = ({ id }) => keep(all().filter((one) => one !== id));
