// What each view shows. A view gets the rest of the address after its name, and returns its elements.

import { request } from "./api.mjs";
import { broadcast } from "./broadcast.mjs";
import { ago, button, confirmed, element, facts, pill, place, table, textCell } from "./elements.mjs";

const ROWS = 100;

/** Ask for confirmation, send a request once, and show the view anew with what was done. */
async function act({ question, path, method, done }, show, event) {
  if (question && !confirmed(question)) return;
  const pressed = event.currentTarget;
  pressed.disabled = true;
  try {
    const answer = await request(path, { method });
    show.refresh(answer?.message ?? done);
  } catch (error) {
    pressed.disabled = false;
    throw error;
  }
}

async function overview(_, show) {
  const [{ channels }, ready, metrics] = await Promise.all([
    request("api/channels"),
    request("health/ready", { accepted: [503] }),
    request("metrics").catch(() => ""), // may be switched off
  ]);
  return [
    element("h2", {}, "Now"),
    element("div", { class: "cards" }, [checks(ready), ...load(metrics), ...models(metrics)]),
    element("h2", {}, "Channels"),
    element("div", { class: "cards" }, Object.entries(channels).map(([name, one]) => channel(name, one, show))),
  ];
}

/** Return the samples of a metric: [labels, value] each; none if metrics are switched off. */
function samples(metrics, name) {
  const lines = metrics.matchAll(new RegExp(`^${name}(?:\\{([^}]*)\\})? (\\S+)$`, "gm"));
  return [...lines].map(([, labels, value]) => [
    Object.fromEntries([...(labels ?? "").matchAll(/(\w+)="([^"]*)"/g)].map(([, key, label]) => [key, label])),
    Number(value),
  ]);
}

const total = (found) => found.reduce((sum, [, value]) => sum + value, 0);

function load(metrics) {
  const shown = [
    ["Busy conversations", "parley_busy_conversations"],
    ["Queued messages", "parley_queued_messages"],
    ["Runs in progress", "parley_runs_in_progress"],
    ["Undelivered messages", "parley_outbox_rows"],
    ["Memory, MB", "process_resident_memory_bytes"],
  ].map(([label, name]) => [label, samples(metrics, name), name.endsWith("_bytes") ? 1e6 : 1])
    .filter(([, found]) => found.length)
    .map(([label, found, unit]) => [label, Math.round(total(found) / unit).toLocaleString()]);
  return shown.length ? [element("section", { class: "card" }, element("h3", {}, "Load"), facts(shown))] : [];
}

/** Return a card for each model: its requests by outcome and its tokens, since the service started. */
function models(metrics) {
  const requests = samples(metrics, "parley_model_requests_total");
  const sums = new Map();
  for (const [{ model, type }, value] of samples(metrics, "parley_model_tokens_total")) {
    const key = JSON.stringify({ model, type });
    sums.set(key, (sums.get(key) ?? 0) + value);
  }
  const tokens = [...sums].map(([key, value]) => [JSON.parse(key), value]);
  const names = [...new Set(requests.map(([labels]) => labels.model))];
  const of = (name, found, label, unit) => found.filter(([labels]) => labels.model === name)
    .map(([labels, value]) => [`${unit} ${labels[label]}`.replaceAll("_", " "), value.toLocaleString()]);
  return names.map((name) => element("section", { class: "card", "data-model": name }, element("h3", {}, name),
    facts([...of(name, requests, "outcome", "requests"), ...of(name, tokens, "type", "tokens")])));
}

function checks(ready) {
  const found = Object.entries(ready.checks ?? {});
  return element("section", { class: "card" }, element("h3", {}, "Readiness", pill(ready.status)),
    facts(found.map(([name, check]) => [name, pill(check.state)])),
    found.map(([, check]) => check.detail && element("p", { class: "soft" }, check.detail)));
}

function channel(name, one, show) {
  const counts = Object.entries(one.events).sort(([, a], [, b]) => b - a);
  const restart = (event) => act({ question: `Reconnect ${name}?`,
    path: `api/channels/${encodeURIComponent(name)}/restart`, method: "POST", done: `${name} connects again.` }, show, event);
  return element("section", { class: "card", "data-channel": name },
    element("h3", {}, name, pill(one.state)),
    one.detail && element("p", { class: one.running ? "soft" : "error" }, one.detail),
    one.enabled && facts([["since", ago(one.since)], ["last event", ago(one.last_event_at)]]),
    counts.length ? facts(counts.map(([reason, count]) => [reason.replaceAll("_", " "), String(count)])) : null,
    one.enabled && name !== "terminal" ? button("Reconnect", restart) : null);
}

async function messages() {
  const { rows } = await request(`api/channels/inbox?limit=${ROWS}`);
  return [
    element("h2", {}, "Accepted messages"),
    table(["received", "where", "from", "message", "state", "thread"], rows.map((row) => [
      ago(row.received_at), place(row), row.user_id, textCell(row.preview), pill(row.failed ? "failed" : row.state), threadLink(row.thread_id),
    ]), "No messages yet."),
  ];
}

async function conversations() {
  const { rows } = await request(`api/channels/conversations?limit=${ROWS}`);
  return [
    element("h2", {}, "Conversations"),
    table(["last used", "where", "messages", "waiting", "thread"], rows.map((row) => [
      ago(row.updated_at), place(row), String(row.last_seq), String(row.pending), threadLink(row.thread_id),
    ]), "No conversations yet."),
  ];
}

const threadLink = (id) => (id ? element("a", { href: `#thread/${id}`, class: "mono" }, id.slice(0, 8)) : "");

async function thread(id) {
  const path = `api/threads/${encodeURIComponent(id)}/state`;
  const { values } = await request(path);
  const said = values?.messages ?? [];
  return [
    element("h2", {}, values?.title || "Thread"),
    element("p", { class: "soft mono" }, id),
    ...(said.length ? said.map(message) : [element("p", { class: "soft" }, "This thread has no messages.")]),
  ];
}

const AUTHORS = { human: "User", ai: "Agent" };

function message(one) {
  const calls = (one.tool_calls ?? []).map((call) =>
    element("pre", { class: "call" }, `${call.name} ${JSON.stringify(call.args)}`));
  return element("article", { class: `message ${one.type}` },
    element("div", { class: "from" }, AUTHORS[one.type] ?? `${one.type} ${one.name ?? ""}`),
    textOf(one.content) ? element("pre", {}, textOf(one.content)) : null, calls);
}

function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((block) => (typeof block === "string" ? block : block.text ?? `[${block.type}]`)).join("\n");
}

const STATES = ["all", "pending", "sending", "uncertain", "failed", "delivered"];

async function deliveries(state, show) {
  const filter = STATES.includes(state) && state !== "all" ? `&state=${state}` : "";
  const { rows } = await request(`api/channels/outbox?limit=${ROWS}${filter}`);
  const choose = element("select", {
    "aria-label": "State",
    onchange: (event) => { location.hash = `deliveries/${event.target.value}`; },
  }, STATES.map((one) => element("option", { value: one, selected: one === state ? "" : null }, one)));
  return [
    element("div", { class: "toolbar" }, element("h2", {}, "Deliveries"), choose),
    table(["created", "where", "content", "state", "attempts", ""], rows.map((row) => [
      ago(row.created_at), place(row),
      textCell(row.kind === "text" ? "" : `[${row.kind}] `, row.preview, row.error ? element("span", { class: "error" }, row.error) : null),
      pill(row.state), String(row.attempts), deliveryActions(row, show),
    ]), "No deliveries in this state."),
  ];
}

function deliveryActions(row, show) {
  if (!["failed", "uncertain"].includes(row.state)) return "";
  const path = `api/channels/outbox/${row.id}`;
  return element("span", {},
    button("Send again", (event) => act({ path: `${path}/resend`, method: "POST",
      done: `The delivery to ${place(row)} is sent again.` }, show, event)), " ",
    button("Delete", (event) => act({ question: "Delete this delivery? The person will not receive it.", path,
      method: "DELETE", done: `The delivery to ${place(row)} is deleted.` }, show, event)));
}

async function people(_, show) {
  const [{ rows }, active] = await Promise.all([
    request("api/channels/pairings"), request(`api/channels/people?limit=${ROWS}`),
  ]);
  const name = (row) => textCell(row.user_name || row.user_id, row.user_name ? element("div", { class: "soft mono" }, row.user_id) : null);
  const waiting = rows.filter((row) => !row.approved_at);
  const approved = rows.filter((row) => row.approved_at);
  const approve = (row) => button("Approve", (event) => act({ method: "POST",
    path: `api/channels/pairings/${encodeURIComponent(row.code)}/approve`,
    done: `${row.user_name || row.user_id} is approved.` }, show, event));
  const revoke = (row) => button("Revoke", (event) => act({ method: "DELETE",
    question: `Revoke the access of ${row.user_name || row.user_id}?`,
    path: `api/channels/pairings/${encodeURIComponent(row.channel)}/${encodeURIComponent(row.user_id)}`,
    done: `${row.user_name || row.user_id} has no access anymore.` }, show, event));
  return [
    element("h2", {}, "Waiting for approval"),
    table(["asked", "channel", "person or group", "code", ""], waiting.map((row) => [
      ago(row.created_at), row.channel, name(row), element("code", {}, row.code), approve(row),
    ]), "Nobody is waiting."),
    element("h2", {}, "Approved"),
    table(["approved", "channel", "person or group", ""], approved.map((row) => [
      ago(row.approved_at), row.channel, name(row), revoke(row),
    ]), "Nobody has been approved by code. The configuration of a channel says who else may use it."),
    element("h2", {}, `Active people: ${active.count.toLocaleString()}`),
    table(["last message", "channel", "person", "messages", "is"], active.people.map((row) => [
      ago(row.last_message_at), row.channel, name(row), row.messages.toLocaleString(), row.kind,
    ]), "Nobody has written yet."),
  ];
}

export const VIEWS = { overview, messages, conversations, thread, deliveries, people, broadcast };
