// The browsers that are signed in, and new sign-in links.

import { BASE, request } from "../kit/api.mjs";
import { ago, button, element, pill } from "../kit/elements.mjs";
import { showDialog } from "../kit/dialog.mjs";
import { createTable } from "../kit/table.mjs";
import { t } from "../kit/texts.mjs";

/** @param {Page} page */
export async function show(page) {
  const table = createTable({
    label: t("nav.sessions"),
    key: (row) => row.id,
    load: () => request("api/sessions", { signal: page.signal }),
    empty: t("sessions.none"),
    columns: [
      { label: t("column.used"), cell: (row) => ago(row.used_at) },
      { label: t("sessions.browser"), kind: "text", cell: (row) => [row.is_link ? t("sessions.link") : browserName(row.browser),
        row.is_current && pill("on", t("sessions.this"))] },
      { label: t("sessions.address"), cell: (row) => row.address },
      { label: t("sessions.opened-with"), cell: (row) => row.token || t(row.is_link ? "sessions.not-opened" : "sessions.admin") },
      { label: t("sessions.scope"), cell: (row) => row.scope },
      { label: "", kind: "actions", cell: (row) => !row.is_current && button(t("action.end"), async () => {
        await request(`api/sessions/${row.id}`, { method: "DELETE" });
        page.notify(t("sessions.ended"));
        await table.refresh();
      }, { class: "small" }) },
    ],
  });
  await table.restart();
  const newLink = async () => {
    const { path } = await request("api/sessions/links", { method: "POST" });
    const field = element("input", { type: "text", readonly: true, value: new URL(path, BASE).href, "aria-label": t("sessions.link"), class: "wide" });
    showDialog(t("sessions.new-link"), element("p", {}, t("sessions.link-text")), field);
    field.select();
    await table.refresh();
  };
  return [
    element("div", { class: "head" }, element("h2", {}, t("nav.sessions")), button(t("sessions.new-link"), newLink, { class: "primary" })),
    element("p", { class: "soft" }, t("sessions.text")),
    table.element,
  ];
}

/** Return a browser's name from its User-Agent. */
function browserName(/** @type {string} */ agent) {
  const found = /(Firefox|Edg|OPR|Chrome|Version)\/(\d+)/.exec(agent);
  const system = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(agent)?.[0] ?? "";
  const name = { Edg: "Edge", OPR: "Opera", Version: "Safari" }[found?.[1] ?? ""] ?? found?.[1];
  return found ? `${name} ${found[2]} · ${system}` : agent.slice(0, 60);
}
