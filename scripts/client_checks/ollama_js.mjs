// Ollama's own package for JavaScript. Prints a line of JSON for each check, as checks.py does.
import { readFileSync } from "node:fs";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.UAD_CLIENTS_URL ?? "http://127.0.0.1:8080" });
const options = { temperature: 0, num_predict: 256 };
const WEATHER = "What is the weather in Paris? Write a <tool_call>, and then tell me its answer.";
const REPORT = "It is 18 degrees and rains in Paris.";
const PERSON = "Bob is 42 years old and lives in Rome. Give his name, age and city as JSON.";
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });
const schema = object({ name: { type: "string" }, age: { type: "integer" }, city: { type: "string" } });
const parameters = object({ city: { type: "string", description: "name of the city" } });
const tools = [{ type: "function", function: { name: "get_weather", description: "Tells the weather of a city", parameters } }];
const lock = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url), "utf8"));
const version = lock.packages["node_modules/ollama"].version;

function expect(holds, message) {
  if (!holds) throw new Error(message);
}

function chat(messages, fields = {}) {
  return client.chat({ model: "local", messages, options, ...fields });
}

async function check(what, run) {
  let error = "";
  try {
    await run();
  } catch (problem) {
    error = `${problem.name}: ${problem.message}`.slice(0, 300);
  }
  console.log(JSON.stringify({ client: "ollama-js", version, what, error }));
}

await check("list, show, ps, version", async () => {
  const { models } = await client.list();
  const shown = await client.show({ model: models[0].model });
  expect(shown.capabilities.includes("completion"), `other capabilities: ${shown.capabilities}`);
  await client.generate({ model: "local", prompt: "" }); // loads it, where the checks of another client unloaded it
  expect((await client.ps()).models[0].digest === models[0].digest, "another model is running");
});

await check("chat, and the same streamed", async () => {
  const messages = [{ role: "user", content: "Say hello." }];
  const whole = (await chat(messages)).message.content;
  let text = "";
  for await (const part of await chat(messages, { stream: true })) text += part.message.content;
  expect(text.length > 0 && text === whole, `another text: ${text}`);
});

await check("a tool, and the result answered", async () => {
  const messages = [{ role: "user", content: WEATHER }];
  const { message } = await chat(messages, { tools });
  const { name, arguments: given } = message.tool_calls[0].function;
  expect(name === "get_weather" && given.city === "Paris", `another call: ${name} ${JSON.stringify(given)}`);
  messages.push(message, { role: "tool", tool_name: name, content: REPORT });
  const answer = (await chat(messages, { tools })).message.content;
  expect(answer.includes("18"), `the tool's answer is not told: ${answer}`);
});

await check("format: a schema", async () => {
  const { message } = await chat([{ role: "user", content: PERSON }], { format: schema });
  const person = JSON.parse(message.content);
  expect(person.name === "Bob" && person.age === 42 && person.city === "Rome", `another person: ${message.content}`);
});

await check("abort: a stream that is left", async () => {
  const stream = await chat([{ role: "user", content: "Count to a thousand." }], { stream: true });
  let name = "";
  try {
    for await (const _ of stream) stream.abort();
  } catch (problem) {
    name = problem.name;
  }
  expect(name === "AbortError", `another error: ${name}`);
  expect((await chat([{ role: "user", content: "Say hello." }])).message.content.length > 0, "no text afterwards");
});
