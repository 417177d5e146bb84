// Whether another tab of this page is still there.

import { TAB } from "./store.js";

const PATIENCE_MS = 800;
const channel = new BroadcastChannel("uad");
const waiting = new Map(); // who wants to know, by tab

channel.addEventListener("message", ({ data }) => {
  if (data.ask === TAB) channel.postMessage({ here: TAB });
  waiting.get(data.here)?.(true);
});

/** Whether a tab answers. One that was closed or loaded again does not. */
export async function isThere(tab) {
  const answered = new Promise((resolve) => {
    waiting.set(tab, resolve);
    setTimeout(() => resolve(false), PATIENCE_MS);
  });
  channel.postMessage({ ask: tab });
  const found = await answered;
  waiting.delete(tab);
  return found;
}
