// Conversations, kept in this browser.

import { Coloured } from "./origins.js";

const KEY = "uad.conversations";

/** The conversations, newest first. What cannot be read is left out. */
export function load() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]").map((chat) => ({
      ...chat,
      messages: chat.messages.map(revived),
    }));
  } catch {
    return [];
  }
}

function revived(message) {
  return message.role === "assistant"
    ? { ...message, said: new Coloured(message.said), thought: new Coloured(message.thought) }
    : message;
}

/**
 * Keep the conversations. Where the browser has no room, the colours of old ones go first, then old ones. Returns how
 * many were dropped.
 */
export function save(chats) {
  const kept = chats.filter((chat) => chat.messages.length);
  for (let n_dropped = 0, plain = 0; ;) {
    const shown = kept
      .slice(0, kept.length - n_dropped)
      .map((chat, i) => (i >= kept.length - plain ? withoutColours(chat) : chat));
    try {
      localStorage.setItem(KEY, JSON.stringify(shown));
      return n_dropped;
    } catch {
      if (plain < kept.length) plain += 1;
      else if (n_dropped < kept.length) n_dropped += 1;
      else return n_dropped;
    }
  }
}

function withoutColours(chat) {
  const bare = (message) =>
    message.role === "assistant"
      ? { ...message, said: { text: message.said.text }, thought: { text: message.thought.text } }
      : message;
  return { ...chat, messages: chat.messages.map(bare) };
}

export const newChat = () => ({ id: crypto.getRandomValues(new Uint32Array(2)).join("-"), settings: {}, messages: [] });

export const titleOf = (chat) =>
  chat.messages
    .find((message) => message.role === "user")
    ?.text.trim()
    .slice(0, 60) || "New conversation";
