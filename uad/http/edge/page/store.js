// Conversations, kept in this browser: a key for each, and one for each of its messages. Nothing that is kept is written
// for two tabs together, so that what both keep at the same time stands side by side.

import { Coloured } from "./origins.js";

const CHAT = "uad.chat."; // uad.chat.ID: {created, title, settings}
const TURN = "uad.turn."; // uad.turn.ID.PLACE: a message; PLACE says when it was made
const OLD = "uad.conversations"; // all of them in one list, as earlier versions kept them

/** All conversations, newest first: {id, created, title, settings, messages}; messages is null until `read`. */
export const chats = [];

const random = () => crypto.getRandomValues(new Uint32Array(2)).join("-");

/** This tab, until it is loaded again. A message that is being written names the tab that writes it. */
export const TAB = random();

/** Where a browser lets pages keep nothing. */
class Nothing {
  getItem = () => null;
  removeItem = () => {};
  setItem() {
    throw new Error("nothing is kept");
  }
}

const kept = opened();
const unsaved = new Map(); // what the browser had no room for, by key
let isOldLeft = false;
let tellFull = () => {};
let tellChange = () => {};

function opened() {
  try {
    return localStorage;
  } catch {
    return new Nothing();
  }
}

const allKeys = () => Object.keys(kept).filter((key) => key.startsWith(CHAT) || key.startsWith(TURN));

/** full(isFull): the browser has no room left, or has again. changed(chat, message): another tab did something. */
export function start({ full, changed }) {
  tellFull = full;
  move();
  const keys = allKeys();
  for (const key of keys) if (key.startsWith(CHAT)) hear(key, kept.getItem(key));
  const whole = new Set(keys);
  for (const key of keys) if (!whole.has(CHAT + idOf(key))) kept.removeItem(key); // its conversation was being deleted
  tellChange = changed;
  addEventListener("storage", ({ key, newValue }) => {
    if (key === null) for (const chat of [...chats]) hear(CHAT + chat.id, null);
    else if (key.startsWith(CHAT) || key.startsWith(TURN)) hear(key, newValue);
    if (newValue === null) retry();
  });
  addEventListener("beforeunload", (event) => {
    if (unsaved.size) event.preventDefault(); // the browser asks whether to leave
  });
}

export const newChat = () => ({ id: random(), created: Date.now(), title: "", settings: {}, messages: [] });

const find = (id) => chats.find((chat) => chat.id === id);
const idOf = (key) => key.split(".")[2];
const turnKey = (chat, message) => `${TURN}${chat.id}.${message.place}`;
const timeOf = ({ place }) => Number(place.split("-")[0]);

/** A place for a message after all others, also after those of other tabs. */
export const newPlace = (chat) =>
  `${Math.max(Date.now(), ...chat.messages.slice(-1).map((last) => timeOf(last) + 1))}-${random()}`;

const inOrder = (one, other) => timeOf(one) - timeOf(other) || (one.place < other.place ? -1 : 1);

/** The messages of a conversation, read when they are first asked for. What cannot be read is left out. */
export function read(chat) {
  const prefix = `${TURN}${chat.id}.`;
  chat.messages ??= allKeys()
    .filter((key) => key.startsWith(prefix))
    .map((key) => revived(key, kept.getItem(key)))
    .filter(Boolean)
    .sort(inOrder);
  return chat.messages;
}

function revived(key, text) {
  try {
    const message = { ...JSON.parse(text), place: key.split(".")[3] };
    if (message.role !== "assistant") return message;
    return { ...message, said: new Coloured(message.said), thought: new Coloured(message.thought) };
  } catch {
    return null;
  }
}

// --- keeping

/** Keep what belongs to all of a conversation, unless it was deleted. */
export function keepChat(chat) {
  if (chat.isGone) return;
  if (!chats.includes(chat)) chats.unshift(chat);
  const { created, title, settings } = chat;
  write(CHAT + chat.id, JSON.stringify({ created, title, settings }));
}

/** Keep a message; a conversation is kept from its first message on. */
export function keep(chat, message) {
  if (chat.isGone) return;
  if (!chats.includes(chat)) keepChat(chat);
  const { place, ...rest } = message;
  write(turnKey(chat, message), JSON.stringify(rest));
}

export function dropMessage(chat, message) {
  chat.messages = chat.messages.filter((one) => one !== message);
  remove(turnKey(chat, message));
}

export function drop(chat) {
  forget(chat);
  remove(CHAT + chat.id); // first, so that other tabs write nothing more
  removeMessages(chat);
}

function removeMessages(chat) {
  const prefix = `${TURN}${chat.id}.`;
  for (const key of [...allKeys(), ...unsaved.keys()]) if (key.startsWith(prefix)) remove(key);
}

function forget(chat) {
  chat.isGone = true;
  chats.splice(chats.indexOf(chat), 1);
}

function write(key, text) {
  unsaved.delete(key);
  try {
    if (unsaved.has(CHAT + idOf(key))) throw new Error("a message without its conversation would be lost");
    kept.setItem(key, text);
  } catch {
    unsaved.set(key, text);
  }
  tellFull(unsaved.size > 0 || isOldLeft);
}

function remove(key) {
  unsaved.delete(key);
  kept.removeItem(key);
  retry();
}

/** There may be room again. */
function retry() {
  for (const [key, text] of [...unsaved]) write(key, text);
  if (isOldLeft) move();
  tellFull(unsaved.size > 0 || isOldLeft);
}

// --- what other tabs do

function hear(key, text) {
  const chat = find(idOf(key));
  if (key.startsWith(TURN)) {
    if (chat?.messages) hearMessage(chat, key, text);
  } else if (text !== null) {
    hearChat(chat, key, text);
  } else if (chat) {
    forget(chat);
    removeMessages(chat); // those that this tab wrote while the other one deleted
    tellChange(chat);
  }
}

function hearChat(old, key, text) {
  let chat;
  try {
    chat = Object.assign(old ?? { id: idOf(key), messages: null }, JSON.parse(text));
  } catch {
    return;
  }
  if (!old) {
    const at = chats.findIndex((other) => other.created <= chat.created);
    chats.splice(at < 0 ? chats.length : at, 0, chat);
  }
  tellChange(chat);
}

function hearMessage(chat, key, text) {
  const old = chat.messages.find((message) => turnKey(chat, message) === key);
  if (old?.writer === TAB) return;
  const now = text === null ? null : revived(key, text);
  if (old && now) Object.assign(old, now);
  else if (now) chat.messages = [...chat.messages, now].sort(inOrder);
  else chat.messages = chat.messages.filter((message) => message !== old);
  tellChange(chat, old ?? now);
}

// --- what earlier versions kept

/** Move conversations out of the old list. Where both do not fit, one after the other, as far as they do. */
function move() {
  let old;
  try {
    old = JSON.parse(kept.getItem(OLD) ?? "[]").filter((chat) => chat.messages.length);
  } catch {
    return; // not ours
  }
  const now = Date.now();
  isOldLeft = false;
  while (old.length && !isOldLeft) {
    const chat = old.pop();
    const created = now - old.length; // the newest is the first
    if (moved(chat, created)) continue;
    kept.setItem(OLD, JSON.stringify(old)); // makes room
    if (moved(chat, created)) continue;
    kept.setItem(OLD, JSON.stringify([...old, chat]));
    isOldLeft = true;
  }
  if (isOldLeft) tellFull(true);
  else kept.removeItem(OLD);
}

/** Whether a conversation of the old list is kept by its messages now; where not, nothing of it is. */
function moved(chat, created) {
  const facts = JSON.stringify({ created, title: titleOf(chat.messages), settings: chat.settings ?? {} });
  const all = [[CHAT + chat.id, facts]];
  for (const [i, { said, thought, ...message }] of chat.messages.entries()) {
    if (message.role === "assistant")
      Object.assign(message, { said: new Coloured(said), thought: new Coloured(thought) });
    all.push([`${TURN}${chat.id}.${i}-0`, JSON.stringify(message)]);
  }
  try {
    for (const one of all) kept.setItem(...one);
  } catch {
    for (const [key] of all) kept.removeItem(key);
    return false;
  }
  hear(...all[0]);
  return true;
}

export const titleOf = (messages) =>
  messages
    .find((message) => message.role === "user")
    ?.text.trim()
    .slice(0, 60) || "New conversation";
