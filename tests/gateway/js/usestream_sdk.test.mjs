// The SDK's useStream for React, as pages such as agent-chat-ui use it.
import assert from "node:assert/strict";
import test from "node:test";

import { idle, mount, window } from "./page.mjs";
import { client, human, react, spoken, threadsWith, token, until, url, words } from "./service.mjs";

const { useStream } = await react();

function show(stream) {
  return {
    said: stream.messages.map((message) => message.content),
    loading: stream.isLoading,
    error: stream.error,
    question: stream.interrupt?.value?.question,
  };
}

function open(options = {}, use = show) {
  const given = { apiUrl: url, apiKey: token, assistantId: "lead_agent", fetchStateHistory: true, ...options };
  return mount(useStream, given, use);
}

test("messages grow while the answer comes", async () => {
  let thread, run;
  const opened = open({ onThreadId: (id) => (thread = id), onCreated: (made) => (run = made.run_id) });
  await opened.ready();
  opened.hook.submit(human("slowly please"));
  await idle(opened, ["slowly please", words]);
  const lengths = [...new Set(opened.renders.map((now) => now.said[1]?.length ?? 0))];
  assert.ok(lengths.length > 4, `seen lengths ${lengths}`);
  assert.deepEqual(lengths, lengths.toSorted((a, b) => a - b), "it only grows");
  assert.equal(opened.renders.some((now) => now.error), false);
  assert.equal((await client().runs.get(thread, run)).status, "success");
  opened.hook.submit(human("and more"));
  await idle(opened, ["slowly please", words, "and more", "You said: and more"]);
  opened.leave();
});

test("stop ends the run", async () => {
  let thread, run;
  const opened = open({ onThreadId: (id) => (thread = id), onCreated: (made) => (run = made.run_id) });
  await opened.ready();
  opened.hook.submit(human("hang please"));
  await opened.until((now) => now.said[1]?.includes("three"), "three words");
  await opened.hook.stop();
  await opened.until((now) => !now.loading, "rest");
  await until(async () => (await client().runs.get(thread, run)).status === "interrupted", "the end of the run");
  opened.hook.submit(human("and now?"));
  await opened.until((now) => !now.loading && now.said.at(-1) === "You said: and now?", "the next answer");
  opened.leave();
});

test("a message is edited, an answer made anew, and both branches can be looked at", async () => {
  const opened = open();
  await opened.ready();
  opened.hook.submit(human("first"));
  await idle(opened, ["first", "You said: first"]);
  opened.hook.submit(human("second"));
  await idle(opened, ["first", "You said: first", "second", "You said: second"]);
  const message = opened.hook.messages[2];
  const { firstSeenState } = opened.hook.getMessagesMetadata(message, 2);
  opened.hook.submit(human("edited"), { checkpoint: firstSeenState.parent_checkpoint });
  await idle(opened, ["first", "You said: first", "edited", "You said: edited"]);
  const { branch, branchOptions } = opened.hook.getMessagesMetadata(opened.hook.messages[2], 2);
  assert.equal(branchOptions.length, 2);
  opened.hook.setBranch(branchOptions.find((one) => one !== branch));
  await idle(opened, ["first", "You said: first", "second", "You said: second"]);
  opened.hook.setBranch(branch);
  await idle(opened, ["first", "You said: first", "edited", "You said: edited"]);
  const answer = opened.hook.getMessagesMetadata(opened.hook.messages[3], 3);
  opened.hook.submit(undefined, { checkpoint: answer.firstSeenState.parent_checkpoint });
  await opened.until((now) => now.loading, "the run");
  await idle(opened, ["first", "You said: first", "edited", "You said: edited"]);
  opened.leave();
});

test("a page that is loaded again goes on with the run", async () => {
  const options = { reconnectOnMount: true };
  let thread;
  const before = open({ ...options, onThreadId: (id) => (thread = id) });
  await before.ready();
  before.hook.submit(human("slowly please"));
  await before.until((now) => now.said[1]?.includes("word1"), "the first words");
  before.leave();
  assert.ok(window.sessionStorage.getItem(`lg:stream:${thread}`), "the run is remembered");
  const after = open({ ...options, threadId: thread });
  await idle(after, ["slowly please", words]);
  await until(() => !window.sessionStorage.getItem(`lg:stream:${thread}`), "the run is forgotten");
  after.leave();
});

test("a run that somebody else began is joined", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const run = await runs.create(thread_id, "lead_agent", {
    input: human("slowly please"),
    streamMode: ["values", "messages-tuple"],
    streamResumable: true,
  });
  const opened = open({ threadId: thread_id });
  await opened.ready();
  opened.hook.joinStream(run.run_id);
  await idle(opened, ["slowly please", words]);
  opened.leave();
});

test("threads are switched", async () => {
  const ids = await threadsWith("one", "two");
  const opened = open({ threadId: ids[0] });
  await idle(opened, ["one", "You said: one"]);
  opened.draw({ apiUrl: url, apiKey: token, assistantId: "lead_agent", fetchStateHistory: true, threadId: ids[1] });
  await idle(opened, ["two", "You said: two"]);
  opened.leave();
  const own = open();
  await own.ready();
  if (!own.hook.switchThread) return own.leave(); // missing in 2.0.0
  own.hook.switchThread(ids[0]);
  await idle(own, ["one", "You said: one"]);
  own.hook.switchThread(null);
  await idle(own, []);
  own.hook.submit(human("three"));
  await idle(own, ["three", "You said: three"]);
  own.leave();
});

test("a question of the graph is shown and answered", async () => {
  const opened = open({ assistantId: "hitl" });
  await opened.ready();
  opened.hook.submit({ n: 1 });
  await opened.until((now) => !now.loading && now.question === "approve?", "the question");
  opened.hook.submit(undefined, { command: { resume: "yes" } });
  await opened.until((now, hook) => !now.loading && hook.values.answer === "yes", "the end");
  assert.equal(opened.now.question, undefined);
  opened.leave();
});

test("the agent's own question is a message", async () => {
  const opened = open();
  await opened.ready();
  opened.hook.submit(human("a colour, please"));
  await opened.until((now) => !now.loading && now.said.some((text) => String(text).includes("Red or blue?")), "the question");
  opened.hook.submit(human("red"));
  await opened.until((now) => !now.loading && now.said.at(-1) === "You said: red", "the answer");
  opened.leave();
});

test("a subagent is shown with its result", async () => {
  const showing = (stream) => ({ ...show(stream), subagents: [...stream.subagents.values()] });
  const opened = open({ filterSubagentMessages: true }, showing);
  await opened.ready();
  opened.hook.submit(human("delegate it"), { streamSubgraphs: true, context: { subagent_enabled: true } });
  await opened.until((now) => !now.loading && now.subagents[0]?.status === "complete", "its end");
  const [subagent] = opened.now.subagents;
  assert.equal(subagent.toolCall.name, "task");
  assert.match(subagent.result, /You said: look around$/);
  assert.match(opened.now.said.at(-1), /^The tool said/);
  opened.leave();
});

test("an error is shown, and the next message works", async () => {
  const errors = [];
  const opened = open({ assistantId: "boom", onError: (error) => errors.push(error) });
  await opened.ready();
  opened.hook.submit({ n: 1 });
  await opened.until((now) => now.error, "the error");
  assert.match(String(opened.now.error), /boom: graph node failed/);
  assert.equal(errors.length > 0, true);
  opened.leave();
});

test("what is said in events reaches the listeners", async () => {
  const heard = { custom: [], updates: 0, debug: 0, tasks: 0, checkpoints: 0, events: 0 };
  const opened = open({
    assistantId: "custom",
    onCustomEvent: (data) => heard.custom.push(data.phase),
    onUpdateEvent: () => (heard.updates += 1),
    onDebugEvent: () => (heard.debug += 1),
    onTaskEvent: () => (heard.tasks += 1),
    onCheckpointEvent: () => (heard.checkpoints += 1),
    onLangChainEvent: () => (heard.events += 1),
  });
  await opened.ready();
  opened.hook.submit({ n: 1 });
  await opened.until((now, hook) => !now.loading && hook.values.n === 1, "the end");
  assert.deepEqual(heard.custom, ["start", "end"]);
  for (const kind of ["updates", "debug", "tasks", "checkpoints", "events"]) assert.ok(heard[kind] > 0, kind);
  opened.leave();
});
