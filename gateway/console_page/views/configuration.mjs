// The configuration in force with its sources, and the editor of its file.

import { act, ask, button, element, head, link, list, pill, request, small, t } from "../kit.mjs";

const TYPING_MS = 400;
const LINE_PX = 20;

/** A key to set in the editor, which opens next. @type {{key: string, value: string} | null} */
let wanted = null;

/** @param {Page} page */
export const show = (page) => (page.rest === "file" ? showEditor(page) : showKeys(page));

/** @param {Page} page */
const showKeys = async (page) => (await list(page, {
  name: "configuration", path: "api/configuration", actions: [link("#configuration/file", t("configuration.edit"))],
  key: "key",
  columns: [
    ["configuration.key", (row) => [element("code", {}, row.key), small(row.description)], "text"],
    ["configuration.value", (row) => [
      element("code.preview", {}, typeof row.value === "string" ? row.value : JSON.stringify(row.value)), row.waits_for_restart && pill("restart")], "value"],
    ["configuration.source", (row) => [
      row.line ? link(`#configuration/file?line=${row.line}`, row.source) : t(`configuration.${row.source}`, {}, row.source),
      row.needs_restart && small(t("configuration.restart"))], "value"],
    ["", (row) => act("action.edit", () => ask({
      title: row.key, text: row.description, label: t("action.edit"),
      fields: [{ name: "value", label: "YAML", required: true, value: /^\*|\$/.test(row.value) ? "" : JSON.stringify(row.value) }],
      submit: ({ value }) => {
        wanted = { key: row.key, value };
        page.go("#configuration/file");
      },
    })), "actions"],
  ],
  filters: [{ name: "key", label: t("configuration.key") }],
})).content;

/** @param {Page} page */
async function showEditor(page) {
  /** @type {(path: string, body: unknown, method?: string) => Promise<Answer>} */
  const send = (path, body, method = "POST") => request(`api/configuration/${path}`, { method, body });
  const file = await request("api/configuration/file");
  const area = element("textarea", { "aria-label": file.path, spellcheck: "false", wrap: "off", readonly: Boolean(file.problem) });
  area.value = file.text;
  const numbers = element("pre.soft", { "aria-hidden": "true" });
  const notes = element("div.notes", { "aria-live": "polite" });
  /** @type {any} */
  let checked = null;
  let timer = 0;
  const check = async () => {
    const text = area.value;
    const found = await send("check", { text });
    if (text !== area.value) return; // A later check follows.
    checked = found;
    save.disabled = !found.difference.length || found.findings.some((one) => one.prevents_saving);
    notes.replaceChildren(...found.findings.map((one) => {
      const note = element("span", { class: one.prevents_saving ? "pill bad" : "pill warn", title: one.message }, `${one.line || ""} ${one.message}`);
      note.style.top = `${Math.max(0, one.line - 1) * LINE_PX + 8}px`;
      return note;
    }));
  };
  const draw = () => {
    area.rows = area.value.split("\n").length + 1;
    numbers.textContent = Array.from({ length: area.rows - 1 }, (_, at) => at + 1).join("\n");
    save.disabled = true;
    clearTimeout(timer);
    timer = window.setTimeout(check, TYPING_MS);
  };
  const done = async (/** @type {any} */ { message, version }) => {
    page.notify(message, () => undo(version));
    if (location.hash.startsWith("#configuration/file")) await page.show();
  };
  const undo = async (/** @type {string} */ version) => done(await send("undo", { version }));
  const save = button(t("action.save"), () => ask({
    title: t("configuration.difference"), wide: true, label: t("action.save"),
    text: element("div.dialog-body", { tabindex: "0" }, checked.restart.length ? `${t("state.restart")}: ${checked.restart.join()}` : null,
      element("pre", {}, ...checked.difference.map((/** @type {string} */ line) =>
        element("span", { class: { "+": "added", "-": "error" }[line[0]] }, `${line}\n`)))),
    submit: async () => void done(await send("file", { text: area.value, version: file.version }, "PUT")),
  }), { class: "primary" });
  area.addEventListener("input", draw);
  page.onLeave(() => clearTimeout(timer));
  if (wanted) {
    const body = { text: file.text, ...wanted };
    wanted = null;
    await send("check/key", body).then(({ text }) => { area.value = text; }, (error) => page.notify(error.message));
  }
  draw();
  setTimeout(() => scrollTo(0, Number(page.query.get("line")) * LINE_PX));
  return [
    element("p.crumbs", {}, link("#configuration", t("nav.configuration"))),
    head(file.path, !file.problem && [file.has_previous && button(t("action.undo"), () => undo(file.version)), save]),
    element("p", { class: file.problem ? "error" : "soft" }, file.problem || t("configuration.about")),
    element("div.editor.card", {}, numbers, area, notes),
  ];
}
