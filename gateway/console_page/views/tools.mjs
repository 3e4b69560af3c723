// The tools, the MCP servers that provide some of them, and the guardrails' decisions.

import {
  act, ago, ask, button, change, drop, duration, element, filterBar, formatAddress, head, link, loadedTable, pill,
  post, preview, problem, profileLink, request, rowsOf, showDialog, small, stateFilter, t, toggle,
} from "../kit.mjs";

const POLL_MS = 5000;
const NEW = { type: "http", url: "https://", headers: {} };
const pathOf = (/** @type {string} */ name) => `api/mcp/config/${encodeURIComponent(name)}`;

/** @param {Page} page */
export async function show(page) {
  const mayWrite = page.may("administer");
  const tools = await loadedTable("nav.tools", "name", async () => (await rowsOf("api/tools", "tools"))
    .filter((one) => JSON.stringify(one).toLowerCase().includes((page.query.get("q") ?? "").toLowerCase())), [
    ["column.name", (row) => element("code", {}, row.name)],
    ["agents.about", (row) => preview(row.description), "text"],
    ["tool.from", (row) => `${t(`tool.${row.source}`)} ${row.server || row.group}`],
    ["column.state", (row) => pill(row.deferred ? "deferred" : "in_prompt")],
    ["tool.tokens", (row) => row.tokens.toLocaleString(), "number"],
    ["", (row) => mayWrite && row.server && act("tool.call", () => call(row.name)), "actions"],
  ]);
  /** @returns {Promise<unknown>} */
  const refresh = () => Promise.all([servers.refresh(), tools.refresh()]);
  const servers = await loadedTable("tool.servers", "name", async () => {
    const [config, { servers: states }] = await Promise.all([request("api/mcp/config"), request("api/mcp/status")]);
    return Object.entries(config.mcp_servers).map(([name, entry]) => ({ name, entry, ...states[name] }));
  }, [
    ["column.name", (row) => row.name],
    ["tool.address", (row) => [element("code", {}, row.entry.url ?? `${row.entry.command} ${row.entry.args.join(" ")}`), preview(row.entry.description), problem(row.error)], "text"],
    ["column.state", (row) => pill(row.state)],
    ["nav.tools", (row) => element("span", { title: row.tools?.join(", ") }, row.tools?.length), "number"],
    ["", (row) => mayWrite && [toggle(page, pathOf(row.name), "PATCH", row.entry.enabled, refresh), act("action.edit", () => edit(row)), act("action.delete", () => remove(row.name))], "actions"],
  ]);
  const remove = (/** @type {string} */ name) => ask({ title: name, text: t("tool.remove"), label: t("action.delete"), danger: true,
    submit: async () => { await drop(pathOf(name)); await refresh(); } });
  const edit = (row = { name: "", entry: NEW }) => ask({ title: t("tool.server"), text: t("tool.server-text"), label: t("action.save"), wide: true, fields: [
    { name: "name", label: t("column.name"), required: true, max: 64, value: row.name },
    { name: "entry", label: "JSON", type: "area", rows: 12, value: JSON.stringify(row.entry, null, 2) },
  ], submit: ({ name, entry }) => change(page, pathOf(name), "PUT", JSON.parse(entry), null, refresh) });
  const decisions = await loadedTable("tool.decisions", "id", (before) => {
    const outcome = page.query.get("outcome");
    return request(`api/guardrails/decisions?${new URLSearchParams({ ...(before && { before }), ...(outcome && { outcome }) })}`);
  }, [
    ["column.created", (row) => ago(row.created_at)],
    ["column.state", (row) => pill(row.outcome)],
    ["speaker.tool", (row) => element("code", {}, row.tool)],
    ["tool.reason", (row) => [row.reason, small(row.code, " ", row.policy)], "text"],
    ["column.who", (row) => profileLink(row, "person") ?? row.person],
    ["column.where", (row) => [profileLink(row, "room"), " ", row.thread_id && link(formatAddress("conversation", row.thread_id), t("conversation.title"))]],
  ]);
  page.onQuery(() => Promise.all([tools.restart(), decisions.restart()]));
  page.onLive(["messages"], decisions.refresh);
  page.every(POLL_MS, servers.refresh);
  return [
    head(t("nav.tools")), filterBar(page, [stateFilter("outcome", "tool.decisions", ["denied", "rejected", "approved"])], { search: t("filter.search") }), tools.element,
    head(t("tool.servers"), mayWrite && button(t("tool.add"), () => edit())), servers.element,
    head(t("tool.decisions")), decisions.element,
  ];
}

/** Ask for the arguments of a tool, call it, and show its result. */
const call = (/** @type {string} */ name) => ask({ title: name, text: t("tool.call-text"), label: t("tool.call"), fields: [
  { name: "given", label: "JSON", type: "area", value: "{}" },
], submit: async ({ given }) => {
  const one = await post(`api/mcp/tools/${encodeURIComponent(name)}/call`, { arguments: JSON.parse(given) });
  showDialog(name, pill(one.is_error ? "failed" : "done"), small(duration(one.seconds)), element("pre", {}, one.text));
} });
