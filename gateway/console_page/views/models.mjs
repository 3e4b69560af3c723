// The models: what they can do and cost, who uses them, and whether they answer.

import { act, duration, element, head, loadedTable, pill, post, problem, rowsOf, small, t } from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  const test = async (/** @type {any} */ row) =>
    table.update({ ...row, test: await post(`api/models/${encodeURIComponent(row.name)}/test`) });
  const table = await loadedTable("nav.models", "name", () => rowsOf("api/model-details", "models"), [
    ["source.model", (row) => [row.display_name ?? row.name, row.is_default && ` (${t("agents.default")})`, small(row.model), problem(row.problem), row.test && result(row.test)], "text"],
    ["model.can", (row) => ["vision", "thinking"].filter((one) => row[`supports_${one}`]).map((one) => t(`model.${one}`)).join(", ")],
    ["model.context", (row) => row.context_tokens?.toLocaleString() ?? "–", "number"],
    ["model.price", (row) => (row.price ? `${row.price.input} / ${row.price.output}` : "–"), "number"],
    ["model.used", (row) => [...row.channels, ...row.agents].join(", "), "text"],
    ["", (row) => page.may("change") && act("model.test", () => test(row)), "actions"],
  ]);
  return [head(t("nav.models")), table.element];
}

/** Return the result of a test call. */
const result = (/** @type {any} */ one) => element("small", { role: "status" }, pill(one.error ? "failed" : "answered"),
  one.error ? ` ${one.error} – ${one.fix}` : ` “${one.answer}” · ${duration(one.seconds)} · ${one.input_tokens} + ${one.output_tokens} ${t("tool.tokens")}`);
