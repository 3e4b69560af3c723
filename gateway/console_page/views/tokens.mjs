// The named tokens of programs. A token's value is shown once.

import { act, ago, ask, button, choices, list, request, showValue, t } from "../kit.mjs";

/** @param {Page} page */
export async function show(page) {
  /** Ask, then change a token. @param {any} dialog @param {string} path @param {string} method @param {(values: any) => unknown} [body] */
  const change = async (dialog, path, method, body) => {
    const made = await ask({ ...dialog, submit: (values) => request(`api/tokens${path}`, { method, body: body?.(values) }) });
    if (made === null) return;
    if (made.token) showValue(made.name, t("tokens.once"), made.token);
    await table.refresh();
  };
  /** Ask first: neither can be undone. @param {string} what @param {string} name @param {string} path @param {string} method */
  const sure = (what, name, path, method) => act(`action.${what}`, () =>
    change({ title: name, text: t("tokens.sure"), label: t(`action.${what}`), danger: true }, `/${name}${path}`, method));
  const create = button(t("tokens.new"), () => change({
    title: t("tokens.new"), label: t("tokens.new"),
    fields: [
      { name: "name", label: t("column.name"), required: true, max: 64 },
      { name: "scope", label: t("sessions.scope"), type: "choice", options: choices(["read", "operator", "admin"]) },
      { name: "days", label: t("tokens.days"), type: "number" },
    ],
  }, "", "POST", ({ name, scope, days }) => ({ name, scope, days: days || null })), { class: "primary" });
  const { table, content } = await list(page, {
    name: "tokens", path: "api/tokens", actions: [create], key: "name",
    columns: [
      ["column.name", (row) => row.name],
      ["sessions.scope", (row) => row.scope],
      ["column.created", (row) => ago(row.created_at)],
      ["tokens.expires", (row) => (row.expires_at ? new Date(row.expires_at).toLocaleString() : t("time.never"))],
      ["column.used", (row) => ago(row.last_used_at)],
      ["", (row) => [sure("rotate", row.name, "/rotate", "POST"), sure("delete", row.name, "", "DELETE")], "actions"],
    ],
  });
  return content;
}
