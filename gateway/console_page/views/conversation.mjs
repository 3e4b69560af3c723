// One conversation as a timeline: the messages that people saw, and the reasons behind them.

import {
  act, ago, ask, BASE, button, createTable, drop, duration, element, facts, fileLinks, filterBar, formatAddress, head,
  json, link, messageActions, parseAll, person, pill, place, post, problem, reasonOf, request, showDialog, simpleTable, small, soft,
  speech, step, t, takeoverPanel,
} from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  const path = `api/conversations/${encodeURIComponent(page.rest)}`;
  /** @type {any} */
  let found;
  /** @type {Set<string>} */
  const opened = new Set();
  const table = createTable({
    label: "conversation.title", key: "id",
    load: async (before) => {
      const all = page.query.get("all");
      found = await page.get(`${path}/timeline?${new URLSearchParams({ before: before ?? "", ...(all && { not_addressed: all }) })}`);
      await parseAll(found.rows.flatMap((/** @type {TimelineRow} */ row) => [row.text, ...answers(row)].map((content) => ({ content }))));
      return found;
    },
    isBad: ({ state }) => ["failed", "undelivered"].includes(state),
    columns: [["column.message", (row) => entry(page, row, found.conversation, opened, table.refresh), "text"]],
  });
  await table.restart();
  page.onQuery(table.restart);
  page.onLive(["messages", "deliveries"], table.refresh);
  const { conversation, memory_scope: scope } = found;
  const file = (/** @type {string} */ format, /** @type {string} */ label) =>
    element("a", { href: new URL(`${path}/export?format=${format}`, BASE).href, download: true }, label);
  return [
    head(found.title || t("conversation.title"), file("markdown", "Markdown"), file("json", "JSON"),
      page.may("change") && button(t("timeline.fork"), () => fork(page)),
      page.may("change") && scope && button(t("timeline.forget"), () => forget(page, scope))),
    soft(conversation ? place(conversation) : "API", " · ", page.rest),
    found.is_thread_known ? null : problem(t("timeline.unknown")),
    conversation?.is_private === false ? filterBar(page, [{ name: "all", label: t("nav.messages"), options: [["", t("admitted.mention")], ["true", t("filter.all")]] }]) : null,
    conversation && await takeoverPanel(page, page.rest),
    table.element,
  ];
}

/** Return the answers that people saw or, without deliveries, the agent's messages. @param {TimelineRow} row @returns {string[]} */
const answers = ({ deliveries, messages }) => (deliveries.length
  ? deliveries.filter((one) => one.is_shown && !one.file).map((one) => one.text)
  : messages.filter((one) => one.type === "ai").map((one) => one.content)).filter(Boolean);

/** @param {Page} page @param {TimelineRow} row @param {any} conversation @param {Set<string>} opened @param {() => unknown} refresh */
function entry(page, row, conversation, opened, refresh) {
  const name = row.kind === "sent" ? row.user_name || t("admitted.hook") : person(row.user_name, row.user_id);
  const sent = row.deliveries.flatMap((one) => (one.is_shown && one.file ? [one.file] : []));
  return [
    element("div.who", {},
      element("span", {}, conversation && row.user_id ? link(formatAddress("person", `${conversation.channel}/${row.user_id}`), name) : name, " ", row.at && ago(row.at)),
      element("span", {}, pill(row.state), " ", ...messageActions(page, row, refresh))),
    row.kind === "sent" ? null : element("article.turn.human", {}, row.text ? speech(row.text) : !row.speech[0] && t("messages.no-text"), ...row.speech.map((one) => element("p", {}, "🎤 ", one.text, " ", small(one.source, " ", one.language))), files(page, row.files)),
    row.cause && soft(row.cause),
    ...reasonOf(row),
    ...answers(row).map((text) => element("article.turn.ai", {}, speech(text))),
    files(page, sent),
    row.kind === "refused" ? null : why(row, conversation, opened),
  ];
}

/** @param {Page} page @param {TimelineRow[]} found */
const files = (page, found) => found.length > 0 && element("div", {},
  fileLinks(page.rest, found.flatMap((one) => one.path ?? [])), found.flatMap((one) => (one.path ? [] : one.name)).join(", "));

/** Return the reasons, folded. @param {TimelineRow} row @param {any} conversation @param {Set<string>} opened the rows that are not folded */
function why(row, conversation, opened) {
  const { run, event } = row;
  const seen = answers(row);
  const decision = row.admitted && t(`admitted.${row.admitted}`);
  const seconds = run?.ended_at && (Date.parse(run.ended_at) - Date.parse(run.created_at)) / 1000;
  const used = row.usage.filter((one) => one.calls).map((one) => t("timeline.used", { ...one, count: one.calls, cost: one.cost_usd.toFixed(4) }));
  const results = new Map(row.messages.map((one) => [one.tool_call_id, one]));
  const box = element("details.step", { open: opened.has(row.id) },
    element("summary.soft", {}, [t("timeline.why"), decision, seconds && duration(seconds), used[0]].filter(Boolean).join(" · ")));
  const fill = () => box.append(
    facts(/** @type {[string, any][]} */ ([
      [t("timeline.decision"), decision],
      [t("timeline.queue"), row.queue_s !== null && duration(row.queue_s)],
      [t("timeline.run"), run && element("span", {}, pill({ success: "done", error: "failed" }[/** @type {"error"} */ (run.status)] ?? run.status), ` ${run.run_id} ${run.error}${row.starts > 1 ? ` × ${row.starts}` : ""}`)],
      ...used.map((one) => [t("source.model"), one]),
    ]).filter(([, value]) => value)),
    ...row.messages.filter((one) => one.type === "ai").flatMap((one) => [
      one.model && soft(`${one.model}: ${one.input_tokens ?? "?"} → ${one.output_tokens ?? "?"}`),
      seen.includes(one.content) ? "" : element("p.plain", {}, one.content),
      ...one.tool_calls.map((call) => step(call, results.get(call.id), null, row.state === "running")),
    ]),
    run && !row.is_in_thread ? element("p.soft", {}, t("timeline.gone")) : "",
    row.deliveries.length ? simpleTable(["nav.deliveries", "column.state", "column.attempts", "timeline.sent", "ID"], row.deliveries.map(delivery)) : "",
    element("div.buttons", {},
      event && act("timeline.event", () => showDialog(t("timeline.event"), json(event))),
      event && conversation && act("timeline.prompt", () => showPrompt(conversation, row.user_id))));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) fill();
    box.open ? opened.add(row.id) : opened.delete(row.id);
  });
  return box;
}

const clock = (/** @type {string | null} */ at) => (at ? new Date(at).toLocaleTimeString() : "–");

/** @param {TimelineRow["deliveries"][0]} one */
const delivery = (one) => [
  element("span", {}, one.kind === "text" ? "" : `[${one.kind}] `, (one.file?.name ?? one.text).slice(0, 80), ...one.failed_attempts.map(
    (failed) => problem(`${clock(failed.at)} ${failed.error}`))),
  pill(one.state), one.attempts, clock(one.last_sent_at), one.platform_id];

/** Show the prompt that the next message of a person would get there. @param {any} conversation @param {string} user */
async function showPrompt({ channel, chat, topic }, user) {
  const { system, parts, messages, tools } = await request(`api/channels/${encodeURIComponent(channel)}/prompt?${new URLSearchParams({ chat, topic, user })}`);
  showDialog(t("timeline.prompt"), simpleTable([], parts.map(Object.values)),
    element("pre", {}, system), json(messages), json(tools));
}

/** Open a copy of the thread in the chat of this page. @param {Page} page */
async function fork(page) {
  const { thread_id } = await post(`api/threads/${page.rest}/copy`);
  await request(`api/threads/${thread_id}`, { method: "PATCH", body: { metadata: { source: "console" } } });
  page.go(formatAddress("chat", thread_id));
}

/** @param {Page} page @param {string} scope */
const forget = (page, scope) => ask({
  title: t("timeline.forget"), text: t("timeline.forget-text", { scope }), label: t("timeline.forget"), danger: true,
  submit: async () => {
    await drop(`api/memory?${new URLSearchParams({ scope })}`);
    page.notify(t("timeline.forgotten"));
  },
});
