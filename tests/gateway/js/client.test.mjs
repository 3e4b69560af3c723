// The stock Client of the LangGraph SDK for JavaScript.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import test from "node:test";

import { client, collect, human, spoken, until } from "./service.mjs";

const agent = "lead_agent";

test("threads from making to deleting", async () => {
  const { threads } = client();
  const made = await threads.create({ metadata: { from: "js" }, graphId: agent });
  assert.equal(made.status, "idle");
  assert.equal(made.metadata.graph_id, agent);
  assert.equal((await threads.get(made.thread_id)).metadata.from, "js");
  const again = await threads.create({ threadId: made.thread_id, ifExists: "do_nothing" });
  assert.equal(again.thread_id, made.thread_id);
  const changed = await threads.update(made.thread_id, { metadata: { colour: "red" } });
  assert.deepEqual([changed.metadata.from, changed.metadata.colour], ["js", "red"]);
  const found = await threads.search({ metadata: { colour: "red" }, limit: 5, status: "idle" });
  assert.deepEqual(found.map((one) => one.thread_id), [made.thread_id]);
  assert.equal(await threads.count({ metadata: { colour: "red" } }), 1);
  const copy = await threads.copy(made.thread_id);
  assert.notEqual(copy.thread_id, made.thread_id);
  await threads.delete(made.thread_id);
  await assert.rejects(threads.get(made.thread_id), /404/);
});

test("a run is streamed in several modes", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  let created;
  const parts = await collect(
    runs.stream(thread_id, agent, {
      input: human("hello there"),
      streamMode: ["values", "updates", "messages-tuple", "custom"],
      streamSubgraphs: true,
      streamResumable: true,
      context: { thinking_enabled: false },
      onRunCreated: (run) => (created = run),
    }),
  );
  assert.equal(parts[0].event, "metadata");
  assert.equal(created.run_id, parts[0].data.run_id);
  assert.equal(created.thread_id, thread_id);
  assert.equal(spoken(parts), "You said: hello there");
  const last = parts.filter((part) => part.event === "values").at(-1);
  assert.equal(last.data.messages.at(-1).content, "You said: hello there");
  assert.ok(parts.some((part) => part.event === "updates"));
  const chunk = parts.find((part) => part.event === "messages" && part.data[0].type === "AIMessageChunk");
  assert.equal(last.data.messages.at(-1).id, chunk.data[0].id);
  assert.equal(chunk.data[1].langgraph_node, "model");
  assert.equal((await runs.get(thread_id, created.run_id)).status, "success");
  assert.deepEqual((await runs.list(thread_id)).map((run) => run.run_id), [created.run_id]);
});

test("the older message mode, debug, tasks, checkpoints and events", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const parts = await collect(
    runs.stream(thread_id, "agent", {
      input: human("hi"),
      streamMode: ["messages", "debug", "tasks", "checkpoints", "events"],
    }),
  );
  const events = new Set(parts.map((part) => part.event));
  for (const wanted of ["messages/partial", "messages/metadata", "debug", "tasks", "checkpoints", "events"]) {
    assert.ok(events.has(wanted), wanted);
  }
  const partial = parts.filter((part) => part.event === "messages/partial").at(-1);
  assert.equal(partial.data[0].content, "tok0 tok1 tok2 ");
});

test("events of subgraphs carry their namespace", async () => {
  const { runs } = client();
  const parts = await collect(
    runs.stream(null, "parent", {
      input: human("hi"),
      streamMode: ["messages-tuple", "values"],
      streamSubgraphs: true,
    }),
  );
  assert.ok(parts.some((part) => /^messages\|child:/.test(part.event)));
  assert.equal(spoken(parts), "tok0 tok1 ");
});

test("a stream is joined after an event, and from the start", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const run = await runs.create(thread_id, agent, {
    input: human("slowly please"),
    streamMode: ["messages-tuple", "values"],
    streamResumable: true,
  });
  const whole = await collect(runs.joinStream(thread_id, run.run_id, { lastEventId: "-1" }));
  assert.equal(spoken(whole), [...Array(12).keys()].map((n) => `word${n}`).join(" "));
  assert.ok(whole.every((part) => part.id), "every event has an id");
  const middle = whole[5];
  const rest = await collect(runs.joinStream(thread_id, run.run_id, { lastEventId: middle.id }));
  assert.deepEqual(rest.map((part) => part.id), whole.slice(6).map((part) => part.id));
  const only = await collect(runs.joinStream(thread_id, run.run_id, { streamMode: ["values"], lastEventId: "-1" }));
  assert.deepEqual([...new Set(only.map((part) => part.event))].sort(), ["metadata", "values"]);
  const state = await runs.join(thread_id, run.run_id);
  assert.match(state.messages.at(-1).content, /word11$/);
});

test("crons from making to deleting", async () => {
  const { threads, crons } = client();
  const { thread_id } = await threads.create();
  const made = await crons.create(agent, {
    schedule: "0 9 * * 1",
    input: human("hello"),
    metadata: { from: "js" },
    onRunCompleted: "keep",
  });
  assert.deepEqual([made.schedule, made.enabled], ["0 9 * * 1", true]);
  assert.equal(made.on_run_completed, "keep");
  const other = await crons.createForThread(thread_id, agent, { schedule: "0 9 * * *", enabled: false });
  assert.equal(other.thread_id, thread_id);
  const found = await crons.search({ threadId: thread_id, limit: 5 });
  assert.deepEqual(found.map((one) => one.cron_id), [other.cron_id]);
  assert.equal(await crons.count({ threadId: thread_id }), 1);
  const changed = await crons.update(other.cron_id, { schedule: "0 10 * * *", enabled: true });
  assert.match(changed.next_run_date, /T10:00:00/);
  await crons.delete(made.cron_id);
  await crons.delete(other.cron_id);
  assert.equal(await crons.count({ threadId: thread_id }), 0);
});

test("a run is canceled, and its stream ends", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const seen = [];
  let run;
  for await (const part of runs.stream(thread_id, agent, {
    input: human("hang please"),
    streamMode: ["messages-tuple"],
    onRunCreated: (made) => (run = made.run_id),
  })) {
    seen.push(part);
    if (spoken(seen).includes("three") && !seen.canceled) {
      seen.canceled = true;
      await runs.cancel(thread_id, run, true);
    }
  }
  assert.equal((await runs.get(thread_id, run)).status, "interrupted");
  assert.notEqual((await threads.get(thread_id)).status, "busy");
  const next = await runs.wait(thread_id, agent, { input: human("and now?") });
  assert.equal(next.messages.at(-1).content, "You said: and now?");
});

test("a broken connection cancels the run where that is asked for", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const leaving = new AbortController();
  let run;
  await assert.rejects(async () => {
    const seen = [];
    for await (const part of runs.stream(thread_id, agent, {
      input: human("hang please"),
      streamMode: ["messages-tuple"],
      onDisconnect: "cancel",
      signal: leaving.signal,
      onRunCreated: (made) => (run = made.run_id),
    })) {
      seen.push(part);
      if (spoken(seen).includes("three")) leaving.abort();
    }
    throw leaving.signal.reason;
  });
  await until(async () => (await runs.get(thread_id, run)).status === "interrupted", "the end of the run");
});

test("a graph asks, and is answered by a command", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const parts = await collect(runs.stream(thread_id, "hitl", { input: { n: 1 }, streamMode: ["values", "updates"] }));
  const asked = parts.find((part) => part.event === "values" && part.data.__interrupt__);
  assert.deepEqual(asked.data.__interrupt__[0].value, { question: "approve?", n: 2 });
  const thread = await threads.get(thread_id);
  assert.equal(thread.status, "interrupted");
  assert.equal(Object.values(thread.interrupts)[0][0].value.question, "approve?");
  const state = await threads.getState(thread_id);
  assert.deepEqual(state.next, ["ask"]);
  assert.equal(state.tasks[0].interrupts[0].value.question, "approve?");
  const done = await runs.wait(thread_id, "hitl", { command: { resume: "yes" } });
  assert.deepEqual([done.answer, done.n], ["yes", 102]);
});

test("a breakpoint before the tools, and on", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  await runs.wait(thread_id, agent, { input: human("list the files"), interruptBefore: ["tools"] });
  assert.deepEqual((await threads.getState(thread_id)).next, ["tools"]);
  const done = await runs.wait(thread_id, agent, { input: null });
  assert.match(done.messages.at(-1).content, /^The tool said/);
});

test("state and history, written and forked", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  await runs.wait(thread_id, "instant", { input: { n: 1 } });
  await threads.updateState(thread_id, { values: { n: 40 }, asNode: "one" });
  const history = await threads.getHistory(thread_id, { limit: 10 });
  assert.equal(history[0].values.n, 40);
  const before = history.find((state) => state.values.n === 2);
  assert.equal((await threads.getState(thread_id, before.checkpoint)).values.n, 2);
  assert.equal((await threads.getState(thread_id, before.checkpoint.checkpoint_id)).values.n, 2);
  const first = history.find((state) => state.next.includes("one"));
  const forked = await runs.wait(thread_id, "instant", {
    input: { n: 7 },
    checkpointId: first.checkpoint.checkpoint_id,
  });
  assert.equal(forked.n, 8);
});

test("runs wait in line, are refused, or take another's place", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const first = await runs.create(thread_id, agent, { input: human("hang please") });
  await assert.rejects(
    runs.create(thread_id, agent, { input: human("no"), multitaskStrategy: "reject" }),
    /409/,
  );
  const done = await runs.wait(thread_id, agent, { input: human("me instead"), multitaskStrategy: "interrupt" });
  assert.equal(done.messages.at(-1).content, "You said: me instead");
  assert.equal((await runs.get(thread_id, first.run_id)).status, "interrupted");
  await runs.delete(thread_id, first.run_id);
  await assert.rejects(runs.get(thread_id, first.run_id), /404/);
});

test("runs without a thread, alone and in batches", async () => {
  const { runs } = client();
  const done = await runs.wait(null, agent, { input: human("hello") });
  assert.equal(done.messages.at(-1).content, "You said: hello");
  const started = await runs.createBatch([
    { assistantId: "instant", input: { n: 1 } },
    { assistantId: "instant", input: { n: 2 } },
  ]);
  assert.equal(started.length, 2);
});

test("errors are thrown with what the server says", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  await assert.rejects(runs.wait(thread_id, "boom", { input: { n: 1 } }), /ValueError: boom/);
  const parts = await collect(runs.stream(thread_id, "boom", { input: { n: 1 } }));
  const told = parts.find((part) => part.event === "error");
  assert.deepEqual(told.data, { error: "ValueError", message: "boom: graph node failed" });
  await assert.rejects(runs.wait(thread_id, "nobody", { input: {} }), /422/);
  await assert.rejects(runs.wait(randomUUID(), agent, { input: {} }), /404/);
  await assert.rejects(client({ apiKey: "wrong" }).threads.search(), /401/);
  await assert.rejects(threads.get("not-a-uuid"), /422/);
});

test("assistants are found, drawn and described", async () => {
  const { assistants } = client();
  const [found] = await assistants.search({ graphId: agent, limit: 5 });
  assert.equal(found.graph_id, agent);
  assert.equal((await assistants.get(found.assistant_id)).name, found.name);
  const drawn = await assistants.getGraph(found.assistant_id, { xray: true });
  assert.ok(drawn.nodes.some((node) => node.id === "model"));
  const schemas = await assistants.getSchemas(found.assistant_id);
  assert.ok(schemas.state_schema.properties.messages);
  assert.ok(await assistants.getSubgraphs(found.assistant_id));
  assert.equal((await assistants.getVersions(found.assistant_id))[0].version, 1);
});

test("the store keeps items", async () => {
  const { store } = client();
  const place = ["js", randomUUID()];
  await store.putItem(place, "one", { colour: "red" });
  assert.deepEqual((await store.getItem(place, "one")).value, { colour: "red" });
  const { items } = await store.searchItems(place, { filter: { colour: "red" } });
  assert.deepEqual(items.map((item) => item.key), ["one"]);
  const { namespaces } = await store.listNamespaces({ prefix: ["js"] });
  assert.ok(namespaces.some((one) => one[1] === place[1]));
  await store.deleteItem(place, "one");
  assert.equal(await store.getItem(place, "one"), null);
});

test("a thread is followed over its runs", async () => {
  const { threads, runs } = client();
  const { thread_id } = await threads.create();
  const leaving = new AbortController();
  const heard = [];
  const following = (async () => {
    for await (const part of threads.joinStream(thread_id, { lastEventId: "-", signal: leaving.signal })) {
      heard.push(part);
      if (part.event === "metadata" && part.data.status === "run_done") leaving.abort();
    }
  })().catch((error) => assert.equal(error.name, "AbortError"));
  await runs.wait(thread_id, agent, { input: human("hi"), streamMode: ["values"] });
  await following;
  assert.ok(heard.some((part) => part.event === "values" || part.event === "metadata"));
});
