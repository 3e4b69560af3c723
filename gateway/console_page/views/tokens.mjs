// The named tokens of programs. A token's value is shown once.

import { request } from "../kit/api.mjs";
import { ask, showDialog } from "../kit/dialog.mjs";
import { ago, button, element } from "../kit/elements.mjs";
import { list } from "../kit/list.mjs";
import { t } from "../kit/texts.mjs";

/** @param {Page} page */
export async function show(page) {
  /** Change a token. @param {string} path @param {string} method @param {unknown} [body] */
  const send = async (path, method, body) => {
    const made = await request(`api/tokens${path}`, { method, body });
    if (made.token) {
      const field = element("input", { type: "text", readonly: true, value: made.token, "aria-label": made.name, class: "wide" });
      showDialog(made.name, element("p", {}, t("tokens.once")), field);
      field.select();
    }
    await table.refresh();
  };
  /** Ask first: neither can be undone. @param {string} what @param {string} name @param {string} path @param {string} method */
  const sure = (what, name, path, method) => button(t(`action.${what}`), () => ask({
    title: name, text: t("tokens.sure"), label: t(`action.${what}`), danger: true, submit: () => send(`/${name}${path}`, method),
  }), { class: "small" });
  const create = button(t("tokens.new"), () => ask({
    title: t("tokens.new"), label: t("tokens.new"),
    fields: [
      { name: "name", label: t("column.name"), required: true, max: 64 },
      { name: "scope", label: t("sessions.scope"), type: "choice", options: [["read", "read"], ["operator", "operator"], ["admin", "admin"]] },
      { name: "days", label: t("tokens.days"), type: "number" },
    ],
    submit: ({ name, scope, days }) => send("", "POST", { name, scope, days: days || null }),
  }), { class: "primary" });
  const { table, content } = await list(page, {
    name: "tokens", path: "api/tokens", actions: [create], key: (row) => row.name,
    columns: [
      { label: t("column.name"), cell: (row) => row.name },
      { label: t("sessions.scope"), cell: (row) => row.scope },
      { label: t("column.created"), cell: (row) => ago(row.created_at) },
      { label: t("tokens.expires"), cell: (row) => (row.expires_at ? new Date(row.expires_at).toLocaleString() : t("time.never")) },
      { label: t("column.used"), cell: (row) => ago(row.last_used_at) },
      { label: "", kind: "actions", cell: (row) => [sure("rotate", row.name, "/rotate", "POST"), sure("delete", row.name, "", "DELETE")] },
    ],
  });
  return content;
}
