// The client in a page of another origin: the checks that a browser makes before the page sees a response.
import assert from "node:assert/strict";
import test from "node:test";

import { Window } from "happy-dom";

import { client, collect, human, page, spoken, token, url } from "./service.mjs";

function fetchFrom(origin) {
  const window = new Window({ url: `${origin}/` });
  return { fetch: window.fetch.bind(window), leave: () => window.happyDOM.close() };
}

test("a page that is let in talks, streams and reads the headers that it needs", async () => {
  const { fetch, leave } = fetchFrom(page);
  const { threads, runs } = client({ callerOptions: { fetch, maxRetries: 0 } });
  const { thread_id } = await threads.create();
  let run;
  const parts = await collect(
    runs.stream(thread_id, "lead_agent", {
      input: human("hello"),
      streamMode: ["messages-tuple"],
      onRunCreated: (made) => (run = made),
    }),
  );
  assert.equal(spoken(parts), "You said: hello");
  assert.equal(run.thread_id, thread_id, "Content-Location can be read");
  assert.equal((await threads.search({ ids: [thread_id] })).length, 1);
  await leave();
});

test("a page that is not let in gets nothing", async () => {
  const { fetch, leave } = fetchFrom("http://evil.example");
  const { threads } = client({ callerOptions: { fetch, maxRetries: 0 } });
  await assert.rejects(threads.create(), /Cross-Origin/i);
  await leave();
});

test("what a browser asks beforehand, and what it is told", async () => {
  const asked = (origin, headers = "content-type,x-api-key,last-event-id,authorization") =>
    globalThis.fetch(`${url}/threads`, {
      method: "OPTIONS",
      headers: {
        origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": headers,
      },
    });
  const told = await asked(page);
  assert.equal(told.status, 200);
  assert.equal(told.headers.get("access-control-allow-origin"), page);
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
    assert.ok(told.headers.get("access-control-allow-methods").includes(method), method);
  }
  for (const header of ["content-type", "x-api-key", "last-event-id", "authorization"]) {
    assert.ok(told.headers.get("access-control-allow-headers").includes(header), header);
  }
  assert.equal((await asked("http://evil.example")).headers.get("access-control-allow-origin"), null);
  const answered = await globalThis.fetch(`${url}/info`, { headers: { origin: page, "x-api-key": token } });
  const readable = answered.headers.get("access-control-expose-headers").toLowerCase();
  for (const header of ["content-location", "location", "x-pagination-total", "x-pagination-next"]) {
    assert.ok(readable.includes(header), header);
  }
  const refused = await globalThis.fetch(`${url}/info`, { headers: { origin: page } });
  assert.equal(refused.status, 401);
  assert.equal(refused.headers.get("access-control-allow-origin"), page, "the page can read why");
});
