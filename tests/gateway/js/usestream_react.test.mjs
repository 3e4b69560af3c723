// useStream of @langchain/react, which speaks the newer streaming protocol.
import assert from "node:assert/strict";
import test from "node:test";

import { useMessageMetadata, useStream } from "@langchain/react";
import { WebSocket } from "ws";

import { idle, mount } from "./page.mjs";
import { client, human, threadsWith, token, until, url, words } from "./service.mjs";

// A page cannot set headers of a WebSocket. There, a cookie or a proxy must supply the token; here, the factory does.
const headers = { "x-api-key": token };
const withToken = (target, init) => fetch(target, { ...init, headers: { ...init?.headers, ...headers } });
const overSockets = {
  client: client({ apiKey: null, callerOptions: { fetch: withToken } }),
  transport: "websocket",
  webSocketFactory: (target) => new WebSocket(target, { headers }),
};
const overHttp = { apiUrl: url, apiKey: token };
const way = process.env.PARLEY_TRANSPORT === "websocket" ? overSockets : overHttp;


function show(stream) {
  const asked = stream.messages.findLast((message) => message.type === "human");
  const metadata = useMessageMetadata(stream, asked?.id);
  return {
    said: stream.messages.map((message) => message.text),
    loading: stream.isLoading,
    error: stream.error,
    tools: stream.toolCalls,
    parent: metadata?.parentCheckpointId,
  };
}

function open(options = {}) {
  return mount(useStream, { ...way, assistantId: "lead_agent", ...options }, show);
}

async function texts(threadId) {
  const { values } = await client().threads.getState(threadId);
  return values.messages.map((message) => message.content);
}

test("messages grow while the answer comes", async () => {
  const ended = [];
  let run;
  const opened = open({ onCreated: (made) => (run = made.runId), onCompleted: (end) => ended.push(end) });
  await opened.ready();
  opened.hook.submit(human("slowly please"));
  await idle(opened, ["slowly please", words]);
  const lengths = [...new Set(opened.renders.map((now) => now.said[1]?.length ?? 0))];
  assert.ok(lengths.length > 4, `seen lengths ${lengths}`);
  assert.deepEqual(lengths, lengths.toSorted((a, b) => a - b), "it only grows");
  await until(() => ended.length, "the end to be told");
  assert.deepEqual(ended, [{ runId: run, reason: "success" }]);
  opened.hook.submit(human("and more"));
  await idle(opened, ["slowly please", words, "and more", "You said: and more"]);
  opened.leave();
});

test("tools and what they answered are shown", async () => {
  const opened = open();
  await opened.ready();
  opened.hook.submit(human("list the files"));
  await opened.until((now) => !now.loading && now.said.at(-1)?.startsWith("The tool said"), "the answer");
  await opened.until((now) => now.tools[0]?.output !== undefined, "the output of the tool");
  assert.equal(opened.now.tools[0].name, "ls");
  opened.leave();
});

test("a subagent is shown with its task and how it ended", async () => {
  const opened = open();
  await opened.ready();
  opened.hook.submit(human("delegate it"), { config: { configurable: { subagent_enabled: true } } });
  await opened.until((now, hook) => !now.loading && [...hook.subagents.values()][0]?.status === "complete", "its end");
  const [subagent] = opened.hook.subagents.values();
  assert.deepEqual([subagent.name, subagent.taskInput], ["general-purpose", "look"]);
  assert.equal(subagent.output.additional_kwargs.subagent_status, "completed");
  opened.leave();
});

test("stop cancels the run", async () => {
  let run;
  const opened = open({ onCreated: (made) => (run = made.runId) });
  await opened.ready();
  opened.hook.submit(human("hang please"));
  await opened.until((now) => now.said[1]?.includes("three"), "three words");
  const thread = opened.hook.threadId;
  await opened.hook.stop();
  await opened.until((now) => !now.loading, "rest");
  await until(async () => (await client().runs.get(thread, run)).status === "interrupted", "the end of the run");
  opened.hook.submit(human("and now?"));
  // The partial answer stays on the page, although the thread does not contain it.
  await opened.until((now) => !now.loading && now.said.includes("You said: and now?"), "the next answer");
  opened.leave();
});

test("an answer is made anew, and a message edited", async () => {
  const opened = open();
  await opened.ready();
  opened.hook.submit(human("first"));
  await idle(opened, ["first", "You said: first"]);
  opened.hook.submit(human("second"));
  await idle(opened, ["first", "You said: first", "second", "You said: second"]);
  await opened.until((now) => now.parent, "the checkpoint before the answer");
  const answer = opened.hook.messages.at(-1).id;
  opened.hook.submit(null, { forkFrom: opened.now.parent });
  await opened.until((now, hook) => !now.loading && !hook.messages.some((one) => one.id === answer), "another answer");
  const thread = opened.hook.threadId;
  assert.deepEqual(await texts(thread), ["first", "You said: first", "second", "You said: second"]);
  const history = await client().threads.getHistory(thread);
  const before = history.find((state) => state.next.length === 0 && state.values.messages.length === 2);
  opened.hook.submit(human("edited"), { forkFrom: before.checkpoint.checkpoint_id });
  await opened.until((now) => !now.loading && now.said.includes("You said: edited"), "the other answer");
  assert.deepEqual(await texts(thread), ["first", "You said: first", "edited", "You said: edited"]);
  opened.leave();
});

test("a page that is loaded again goes on with the run", async () => {
  const before = open();
  await before.ready();
  before.hook.submit(human("slowly please"));
  await before.until((now) => now.said[1]?.includes("word1"), "the first words");
  const threadId = before.hook.threadId;
  await before.hook.disconnect();
  before.leave();
  const after = open({ threadId });
  await idle(after, ["slowly please", words]);
  after.leave();
});

test("threads are switched", async () => {
  const ids = await threadsWith("one", "two");
  const opened = open({ threadId: ids[0] });
  await idle(opened, ["one", "You said: one"]);
  opened.draw({ ...way, assistantId: "lead_agent", threadId: ids[1] });
  await idle(opened, ["two", "You said: two"]);
  opened.hook.submit(human("three"));
  await idle(opened, ["two", "You said: two", "three", "You said: three"]);
  opened.leave();
});

test("a question of the graph is shown and answered", async () => {
  const opened = open({ assistantId: "hitl" });
  await opened.ready();
  opened.hook.submit({ n: 1 });
  await opened.until((now, hook) => !now.loading && hook.interrupt, "the question");
  assert.deepEqual(opened.hook.interrupt.value, { question: "approve?", n: 2 });
  await opened.hook.respond("yes");
  await opened.until((now, hook) => !now.loading && hook.values.answer === "yes", "the end");
  opened.leave();
});

test("a question is still there when the page is loaded again", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  await runs.wait(thread_id, "hitl", { input: { n: 1 } });
  const opened = open({ assistantId: "hitl", threadId: thread_id });
  await opened.until((now, hook) => !hook.isThreadLoading && hook.interrupt, "the question");
  await opened.hook.respond("no", { interruptId: opened.hook.interrupt.id });
  await opened.until((now, hook) => !now.loading && hook.values.answer === "no", "the end");
  opened.leave();
});

test("an error is shown", async () => {
  const opened = open({ assistantId: "boom" });
  await opened.ready();
  opened.hook.submit({ n: 1 });
  await opened.until((now) => !now.loading && now.error, "the error");
  assert.match(String(opened.now.error), /boom: graph node failed/);
  opened.leave();
});
