// The last lines of the service's own log, as they come.

import { ALL, choices, element, link, list, pill, since, small, t } from "../kit.mjs";

const EVERY_MS = 1000;
const TARGETS = new Map([["thread", "#conversation/"], ["request", "#logs?request_id="]]);

/** @param {Page} page */
export async function show(page) {
  const { table, content } = await list(page, {
    name: "logs", path: "api/logs", formats: ["jsonl"], search: t("filter.search"),
    key: "id",
    isBad: ({ level }) => level === "error",
    columns: [
      ["list.time", (row) => element("span", { title: row.time }, new Date(row.time).toLocaleTimeString())],
      ["logs.level", (row) => pill(row.level)],
      ["column.message", (row) => [row.message,
        row.error && element("details", {}, element("summary", {}, row.error.trim().split("\n").at(-1)), element("pre", {}, row.error)),
        small(row.logger, ...Object.entries(row.context).flatMap(([name, value]) => {
          const target = TARGETS.get(name);
          return [" · ", target ? link(target + encodeURIComponent(value), `${name} ${value}`) : `${name} ${value}`];
        }))], "text"],
    ],
    filters: [
      { name: "level", label: t("logs.level"), options: [ALL(), ...choices(["info", "warning", "error"])] },
      since(), { name: "logger", label: t("logs.logger") }, { name: "request_id", label: "request" }, { name: "thread_id", label: "thread" },
    ],
  });
  page.every(EVERY_MS, table.refresh);
  return content;
}
