// The AI SDK with its provider for OpenAI-compatible servers. Prints a line of JSON for each check, as kit.py does.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const baseURL = (process.env.UAD_CLIENTS_URL ?? "http://127.0.0.1:8080") + "/v1";
const provider = createOpenAICompatible({ name: "uad", baseURL, apiKey: "none", supportsStructuredOutputs: true, includeUsage: true });
const common = { model: provider("local"), temperature: 0, maxOutputTokens: 256, maxRetries: 0 };
// The server keeps nothing, so that earlier items are sent again instead of their names.
const stateless = { ...common, model: createOpenAI({ baseURL, apiKey: "none" }).responses("local"), providerOptions: { openai: { store: false } } };
const WEATHER = "What is the weather in Paris? Write a <tool_call>, and then tell me its answer.";
const INSTRUCTIONS = "When a tool has answered, tell the user its answer in one sentence.";
const PERSON = "Bob is 42 years old and lives in Rome. Give his name, age and city as JSON.";
const schema = z.object({ name: z.string(), age: z.number().int(), city: z.string() }).strict();
const lock = JSON.parse(readFileSync(new URL("package-lock.json", import.meta.url), "utf8"));
const version = lock.packages["node_modules/ai"].version;

function expect(holds, message) {
  if (!holds) throw new Error(message);
}

function weather(asked) {
  const execute = ({ city }) => {
    asked.push(city);
    return "It is 18 degrees and rains in Paris.";
  };
  return { get_weather: tool({ description: "Tells the weather of a city", inputSchema: z.object({ city: z.string() }), execute }) };
}

async function check(what, run) {
  let error = "";
  try {
    await run();
  } catch (problem) {
    error = `${problem.name}: ${problem.message}`.slice(0, 300);
  }
  console.log(JSON.stringify({ client: "ai", version, what, error }));
}

await check("generateObject", async () => {
  const { object } = await generateObject({ ...common, schema, prompt: PERSON });
  expect(object.name === "Bob" && object.age === 42 && object.city === "Rome", `another person: ${JSON.stringify(object)}`);
});

await check("generateText: a tool, called and answered", async () => {
  const asked = [];
  const { text } = await generateText({ ...common, system: INSTRUCTIONS, tools: weather(asked), stopWhen: stepCountIs(3), prompt: WEATHER });
  expect(asked[0] === "Paris", `no call for Paris: ${JSON.stringify(asked)}`);
  expect(text.includes("18"), `the tool's answer is not told: ${text}`);
});

await check("streamText: a tool that must be called", async () => {
  const asked = [];
  const { textStream, toolCalls } = streamText({ ...common, tools: weather(asked), toolChoice: { type: "tool", toolName: "get_weather" }, prompt: WEATHER });
  for await (const _ of textStream);
  const calls = await toolCalls;
  expect(calls.length === 1 && calls[0].input.city === "Paris", `other calls: ${JSON.stringify(calls)}`);
});

await check("responses: generateText: a tool, called and answered", async () => {
  const asked = [];
  const { text } = await generateText({ ...stateless, tools: weather(asked), stopWhen: stepCountIs(3), prompt: WEATHER });
  expect(asked[0] === "Paris", `no call for Paris: ${JSON.stringify(asked)}`);
  expect(text.includes("18"), `the tool's answer is not told: ${text}`);
});

await check("responses: generateObject", async () => {
  const { object } = await generateObject({ ...stateless, schema, prompt: PERSON });
  expect(object.name === "Bob" && object.age === 42 && object.city === "Rome", `another person: ${JSON.stringify(object)}`);
});

await check("responses: streamText", async () => {
  const { textStream, usage } = streamText({ ...stateless, prompt: "Say hello." });
  let text = "";
  for await (const piece of textStream) text += piece;
  expect(text.length > 0, "no text");
  expect((await usage).outputTokens > 0, "no tokens");
});
