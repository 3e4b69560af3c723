// Who changed what, and when.

import { ago, element, link, list, since, small, stateFilter, t } from "../kit.mjs";

/** @param {Page} page */
export const show = async (page) => (await list(page, {
  name: "audit", path: "api/audit", formats: ["csv", "jsonl"], search: t("filter.search"),
  key: (row) => `${row.time} ${row.request_id}`,
  columns: [
    ["list.time", (row) => ago(row.time)],
    ["column.who", (row) => element("span", { title: row.address }, row.who)],
    ["column.content", (row) => [element("code", {}, row.action), small(`${row.target}\n${row.detail}`)], "text"],
    ["column.state", (row) => element("span", { class: `pill ${row.status && row.status < 400 ? "good" : "bad"}` }, row.status)],
    ["nav.logs", (row) => link(`#logs?request_id=${row.request_id}`, row.request_id)],
  ],
  filters: [
    { name: "who", label: t("column.who") },
    stateFilter("outcome", "column.state", ["done", "refused"]),
    since(),
  ],
})).content;
