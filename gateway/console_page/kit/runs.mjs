// Runs of the LangGraph-compatible API: starts them and reads their events, again from the start if a stream breaks.

import { ApiError, BASE, post, request } from "./api.mjs";

const MODES = ["messages-tuple", "values", "custom"];
const EVENTS = ["messages", "values", "custom", "error", "end"];
const ACTIVE = ["running", "pending"];
const PAUSE_MS = 1000;

/** @type {Kit["startRun"]} */
export const startRun = async (thread, body) => (await post(`api/threads/${thread}/runs`,
  { ...body, stream_mode: MODES, stream_resumable: true, multitask_strategy: "reject" })).run_id;

/** @type {Kit["joinRun"]} */
export const joinRun = (thread, run, report, signal) => new Promise((resolve, reject) => {
  const path = `api/threads/${thread}/runs/${run}`;
  const join = () => {
    const source = new EventSource(new URL(`${path}/stream`, BASE));
    const leave = () => {
      source.close();
      resolve();
    };
    signal.addEventListener("abort", leave);
    if (signal.aborted) return leave();
    for (const name of EVENTS) source.addEventListener(name, async ({ data }) => {
      if (name === "end") return leave();
      if (data !== undefined) return report({ name, data: JSON.parse(data) });
      source.close();
      await look();
    });
  };
  const look = async () => {
    const found = await request(path, { signal }).catch((error) => error);
    if (signal.aborted) return;
    if (found.status >= 400 && found.status < 500) reject(found);
    else if (found.run_id && !ACTIVE.includes(found.status)) resolve();
    else {
      // A restarted service runs it again, with new event numbers.
      report({ name: "lost", data: null });
      setTimeout(found.run_id ? join : look, PAUSE_MS);
    }
  };
  join();
});

/** @type {Kit["activeRun"]} */
export async function activeRun(thread, signal) {
  for (const status of ACTIVE) {
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
