// Who changed what, and when.

import { ago, element, link } from "../kit/elements.mjs";
import { list, since } from "../kit/list.mjs";
import { t } from "../kit/texts.mjs";

/** @param {Page} page */
export const show = async (page) => (await list(page, {
  name: "audit", path: "api/audit", formats: ["csv", "jsonl"], search: t("filter.search"),
  key: (row) => `${row.time} ${row.request_id}`,
  columns: [
    { label: t("list.time"), cell: (row) => ago(row.time) },
    { label: t("column.who"), cell: (row) => element("span", { title: row.address }, row.who) },
    { label: t("column.content"), kind: "text", cell: (row) => [element("code", {}, row.action), element("small", { class: "soft" }, `${row.target}\n${row.detail}`)] },
    { label: t("column.state"), cell: (row) => element("span", { class: `pill ${row.status && row.status < 400 ? "good" : "bad"}` }, row.status) },
    { label: t("nav.logs"), cell: (row) => link(`#logs?request_id=${row.request_id}`, row.request_id) },
  ],
  filters: [
    { name: "who", label: t("column.who") },
    { name: "outcome", label: t("column.state"), options: [["", t("filter.all")], ["done", t("state.done")], ["refused", t("state.refused")]] },
    since(),
  ],
})).content;
