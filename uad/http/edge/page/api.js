// Requests to the server that this page came from: keys, errors, server-sent events.

const KEY = "uad.key";
const base = new URL("./", location.href); // the page lies at --api-prefix, and so does the API
let askForKey = async () => null;
let model = null; // of several that the server has

/** From now on requests are for this one of the server's models; null: it has but one. */
export function askModel(name) {
  model = name;
}

const placeOf = (path, isPost) => {
  const place = new URL(path, base);
  if (model !== null && !isPost) place.searchParams.set("model", model);
  return place;
};

/** `ask(problem)` resolves to a key, or to null where the user gives none. */
export function onKeyWanted(ask) {
  askForKey = ask;
}

/**
 * A response with a good status. Where the server wants a key, the user is asked for it. Throws an Error with the
 * server's words.
 */
export async function request(path, body = undefined, signal = undefined) {
  for (let problem = ""; ; problem = "The server does not take this key.") {
    const key = sessionStorage.getItem(KEY);
    const headers = {
      ...(key ? { Authorization: `Bearer ${key}` } : {}),
      ...(body ? { "Content-Type": "application/json" } : {}),
    };
    const response = await fetch(placeOf(path, Boolean(body)), {
      method: body ? "POST" : "GET",
      headers,
      signal,
      body: body && JSON.stringify(model === null ? body : { ...body, model }),
    }).catch(plainly("The server cannot be reached."));
    if (response.ok) return response;
    if (response.status !== 401) throw new Error(await words(response));
    const given = await askForKey(key ? problem || "The server does not take this key." : "");
    if (!given) throw new Error("This server needs an API key.");
    sessionStorage.setItem(KEY, given);
  }
}

/** A handler of errors that gives those of the network, which each browser words differently, these words. */
const plainly = (text) => (error) => {
  throw error instanceof TypeError ? new Error(text) : error;
};

async function words(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status} ${response.statusText}`;
  }
}

export const json = async (path, signal) => (await request(path, undefined, signal)).json();

/** The objects of a stream of server-sent events. Throws an Error for one that tells of an error. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(plainly("The connection to the server was lost."));
      if (done) return;
      rest += value;
      let start = 0;
      for (let end; (end = rest.indexOf("\n\n", start)) >= 0; start = end + 2) {
        const frame = rest.slice(start, end);
        if (!frame.startsWith("data: ") || frame === "data: [DONE]") continue;
        const event = JSON.parse(frame.slice(6));
        if (event.error) throw new Error(event.error.message);
        yield event;
      }
      rest = rest.slice(start);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The first event of a stream; the stream is left then. */
export async function first(path) {
  for await (const event of events(await request(path))) return event;
  return null;
}
