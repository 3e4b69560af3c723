// Shared by all tests here: the service's address, the SDK under test, and waiting.
import assert from "node:assert/strict";

export const token = process.env.PARLEY_TOKEN;
export const url = `${process.env.PARLEY_URL}${process.env.PARLEY_PREFIX ?? "/api"}`;
export const page = "http://localhost:3000";
const name = process.env.PARLEY_SDK ?? "@langchain/langgraph-sdk";

export const sdk = await import(name);
export const react = () => import(`${name}/react`);

export function client(options = {}) {
  return new sdk.Client({ apiUrl: url, apiKey: token, callerOptions: { maxRetries: 0 }, ...options });
}

export function human(text) {
  return { messages: [{ type: "human", content: text }] };
}

// The agent's answer to "slowly please".
export const words = [...Array(12).keys()].map((n) => `word${n}`).join(" ");

// Creates a thread with one turn for each text. Returns their ids.
export async function threadsWith(...texts) {
  const { threads, runs } = client();
  const ids = [];
  for (const text of texts) {
    const { thread_id } = await threads.create();
    await runs.wait(thread_id, "lead_agent", { input: human(text) });
    ids.push(thread_id);
  }
  return ids;
}

export async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

// Returns the text of the message deltas in a stream.
export function spoken(parts) {
  const said = parts.filter((part) => part.event.split("|")[0] === "messages");
  return said
    .filter((part) => part.data[0].type === "AIMessageChunk")
    .map((part) => part.data[0].content)
    .join("");
}

export async function until(found, what, seen = () => "nothing", withinMs = 30_000) {
  const end = Date.now() + withinMs;
  for (;;) {
    const value = await found();
    if (value) return value;
    if (Date.now() > end) assert.fail(`never came: ${what}; last seen: ${seen()}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
