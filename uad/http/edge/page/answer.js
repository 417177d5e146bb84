// One streamed chat answer: what it says, who wrote it, and its numbers.

import { events, first, request } from "./api.js";
import { number, percent, seconds } from "./dom.js";
import { Coloured, OriginQueue } from "./origins.js";

const TELLING_MS = 50; // saved or lost; nothing is said of less

/** Stream an answer into `message`, telling `changed()` of each piece. Throws what the server says, or AbortError. */
export async function ask(body, message, changed, signal) {
  const queue = new OriginQueue();
  const wanted = { ...body, stream: true, stream_options: { include_usage: true }, return_origins: true };
  for await (const chunk of events(await request("v1/chat/completions", wanted, signal))) {
    if (chunk.origins) queue.hear(chunk.origins);
    const delta = chunk.choices[0]?.delta ?? {};
    const at = chunk.origins_at;
    if (delta.reasoning_content) queue.take(delta.reasoning_content, message.thought, at);
    if (delta.content) queue.take(delta.content, message.said, at);
    for (const call of delta.tool_calls ?? []) hearCall(message, call);
    if (chunk.choices[0]?.finish_reason) message.finish = chunk.choices[0].finish_reason;
    if (chunk.timings)
      message.numbers = { timings: chunk.timings, uad: chunk.uad, n_prompt: chunk.usage?.prompt_tokens ?? 0 };
    changed();
  }
  if (!message.finish) throw new Error("The server ended the answer too early.");
}

function hearCall(message, piece) {
  const call = (message.calls[piece.index] ??= { id: "", name: "", arguments: "" });
  call.id = piece.id ?? call.id;
  call.name += piece.function?.name ?? "";
  call.arguments += piece.function?.arguments ?? "";
}

export function emptyAnswer() {
  return {
    role: "assistant",
    said: new Coloured(),
    thought: new Coloured(),
    calls: [],
    numbers: null,
    saved: null,
    finish: "", // also "stopped"
    writer: "", // the tab that waits for it
  };
}

/**
 * What the answer would have taken without drafts, less what it took, in ms, as the server's cost curve tells; null
 * where it tells nothing, and where the answer took more than twice as long: drafts never cost that much, so other
 * programs ran meanwhile.
 */
export async function timeSaved({ timings, uad, n_prompt }) {
  if (!timings.draft_n) return null;
  try {
    const { plain } = await first("live");
    const steps = timings.predicted_n - 1;
    if (!plain?.length || steps <= 0) return null;
    const alone = steps * between(plain, n_prompt + steps / 2);
    return timings.predicted_ms > 2 * alone ? null : alone - timings.predicted_ms;
  } catch {
    return null;
  }
}

/** The value at a place between points [place, value], which are in order. */
function between(points, place) {
  const i = points.findIndex(([at]) => at >= place);
  if (i <= 0) return points.at(i)[1];
  const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
  return y0 + ((y1 - y0) * (place - x0)) / (x1 - x0);
}

/** The line of numbers below an answer. */
export function numbersOf({ timings, uad }, saved = null) {
  const parts = [`${number(timings.predicted_n)} tokens`, `${number(timings.predicted_per_second, 1)} tokens/s`];
  if (!timings.draft_n) return joined([...parts, "nothing drafted"]);
  const [drafted, accepted] = [timings.draft_n, timings.draft_n_accepted];
  parts.push(`${number(accepted)} of ${number(drafted)} guesses accepted (${percent(accepted / drafted)})`);
  if (uad?.rounds) parts.push(`${number(timings.predicted_n / uad.rounds, 1)} tokens per target pass`);
  if (Math.abs(saved ?? 0) >= TELLING_MS) parts.push(saved >= 0 ? `${seconds(saved)} saved` : `${seconds(-saved)} lost`);
  return joined(parts);
}

/** Lines break between parts only. */
const joined = (parts) => parts.map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
