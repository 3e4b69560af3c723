// Runs of the LangGraph-compatible API: starts them, reads their events, and takes them up again where a stream broke off.

import { ApiError, post, request, send } from "./api.mjs";

const MODES = ["messages-tuple", "values", "custom"];
const MAX_JOINS = 20;
const PAUSE_MS = 1000;

/** @type {Kit["startRun"]} */
export async function startRun(thread, body, report, signal) {
  const response = await send(`api/threads/${thread}/runs/stream`, { method: "POST", signal,
    body: { ...body, stream_mode: MODES, stream_resumable: true, multitask_strategy: "reject" } });
  await follow(thread, "", response, report, signal);
}

/** @type {Kit["joinRun"]} */
export async function joinRun(thread, run, report, signal) {
  await follow(thread, run, await join(thread, run, "", signal), report, signal);
}

/** @param {string} thread @param {string} run @param {string} last the ID of the last event that arrived @param {AbortSignal} signal */
const join = (thread, run, last, signal) =>
  send(`api/threads/${thread}/runs/${run}/stream`, { headers: last ? { "Last-Event-ID": last } : {}, signal });

/** @param {string} thread @param {string} run @param {Response} response @param {(event: RunEvent) => void} report @param {AbortSignal} signal */
async function follow(thread, run, response, report, signal) {
  let [last, ended] = ["", false];
  for (let joins = 0; ; joins++) {
    try {
      if (!response.ok) await refuse(response);
      for await (const event of readEvents(response)) {
        last = event.id || last;
        if (event.name === "metadata" && event.data.run_id) run = event.data.run_id;
        ended = event.name === "end";
        report(event);
      }
      if (ended) return;
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status && error.status < 500)) throw error;
    }
    if (!run || joins === MAX_JOINS) throw new ApiError(0, "Parley does not answer. Is it running?");
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    response = await join(thread, run, last, signal).catch((error) => {
      if (signal.aborted) throw error;
      return new Response(null, { status: 503 });
    });
  }
}

/** Raise what the service said instead of events. */
async function refuse(/** @type {Response} */ response) {
  const said = await response.json().catch(() => null);
  const detail = said?.detail ?? said?.message;
  throw new ApiError(response.status, typeof detail === "string" ? detail : `The request failed with status ${response.status}.`);
}

/** Read server-sent events. @param {Response} response @returns {AsyncGenerator<RunEvent>} */
async function* readEvents(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (waiting + decoder.decode(value, { stream: true })).split("\n\n");
    waiting = frames.pop() ?? "";
    for (const frame of frames) {
      /** @type {Record<string, string>} */
      const fields = {};
      for (const line of frame.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
      }
      if (fields.event) yield { name: fields.event, data: JSON.parse(fields.data || "null"), id: fields.id ?? "" };
    }
  }
}

/** @type {Kit["activeRun"]} */
export async function activeRun(thread, signal) {
  for (const status of ["running", "pending"]) {
    const [found] = await request(`api/threads/${thread}/runs?status=${status}&limit=1`, { signal });
    if (found) return found.run_id;
  }
  return null;
}

/** @type {Kit["checkpointBefore"]} */
export async function checkpointBefore(thread, message, gone) {
  const states = await post(`api/threads/${thread}/history`, {
    limit: 100, select: ["values.messages", "parent_checkpoint"] });
  const first = states.filter((/** @type {any} */ one) => one.values?.messages?.some((/** @type {any} */ said) => said.id === message)).at(-1);
  if (!first?.parent_checkpoint) throw new ApiError(404, gone);
  return first.parent_checkpoint;
}
