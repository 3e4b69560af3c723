// A table with pages of rows. It follows changes, but never moves a row that somebody may be about to click.

import { button, element, empty } from "./elements.mjs";
import { t } from "./texts.mjs";

// A mouse click also sets the focus, but only a focus set by the keyboard keeps rows in place.
const POINTED_AT = ".table:has(td) :is(:hover, :focus-visible)";

/** Tables that wait until rows may move, their own or those below. @type {Set<() => void>} */
const held = new Set();
// `pointerover`, too, because an element removed under the pointer sends no `pointerleave`.
for (const name of ["pointerout", "pointerover", "focusout"]) document.addEventListener(name, () => setTimeout(() => held.forEach((release) => release())));

/** Return a table; await its first `restart`. @param {TableOptions} options @returns {Table} */
export function createTable(options) {
  const { columns, open } = options;
  const key = (/** @type {any} */ row) => String(typeof options.key === "string" ? row[options.key] : options.key(row));
  const load = async (/** @type {string | null} */ before) => {
    const found = await options.load(before);
    return Array.isArray(found) ? { rows: found } : found;
  };
  /** @type {Map<string, {row: any, line: HTMLTableRowElement, text: string}>} */
  const shown = new Map();
  /** @type {any[] | null} */
  let waiting = null;
  /** @type {string | null} */
  let next = null;
  let generation = 0;

  const body = element("tbody");
  const news = button("", () => apply(waiting ?? []), { class: "news", hidden: true });
  const older = button(t("table.older"), loadOlder, { class: "older", hidden: true });
  const note = element("div");
  const table = element("div.scroll", {}, element("table.rows", { "aria-label": t(options.label) }, headings(columns), body));
  const whole = element("div.table", {}, element("div.news-place", {}, news), table, note, older);

  const classOf = (/** @type {any} */ row) => `${options.isBad?.(row) ? "failed" : ""} ${open?.(row) ? "opens" : ""}`;

  /** @param {any} row */
  function fill(row) {
    return columns.map(([label, cell, kind]) =>
      element("td", { class: kind, "data-label": t(label) || null }, kind === "actions" ? element("div.buttons", {}, cell(row)) : cell(row)));
  }

  /** @param {any} row */
  function add(row) {
    const target = open?.(row);
    const line = element("tr", { tabindex: shown.size ? "-1" : "0", class: classOf(row) }, ...fill(row));
    if (target) {
      line.addEventListener("click", (event) => {
        const at = /** @type {Element} */ (event.target);
        if (!at.closest("a, button, input, select, summary") && document.getSelection()?.isCollapsed) location.hash = target;
      });
    }
    shown.set(key(row), { row, line, text: JSON.stringify(row) });
    return line;
  }

  /** Redraw a row in place. The focus stays on the element with the same label. @param {any} row */
  function update(row) {
    const found = shown.get(key(row));
    const text = JSON.stringify(row);
    if (!found || found.text === text) return;
    const focused = found.line.contains(document.activeElement) && document.activeElement !== found.line ? document.activeElement?.textContent : null;
    found.line.replaceChildren(...fill(row));
    found.line.className = classOf(row);
    Object.assign(found, { row, text });
    if (focused) {
      const again = [...found.line.querySelectorAll("button, a")].find((one) => one.textContent === focused);
      /** @type {HTMLElement} */ (again ?? found.line).focus({ preventScroll: true });
    }
  }

  /** Whether the pointer is on or below this table. */
  const isHeld = () => {
    const last = [...document.querySelectorAll(POINTED_AT)].at(-1);
    return last !== undefined && (whole.compareDocumentPosition(last) & Node.DOCUMENT_POSITION_FOLLOWING) > 0;
  };

  /** The rows that are shown, but were not loaded again. @param {any[]} rows the first page @param {number} end where it ends if its last row is new */
  const missing = (rows, end) => {
    const keys = new Set(rows.map(key));
    const last = next ? shown.get(rows.length ? key(rows.at(-1)) : "")?.line.sectionRowIndex ?? end : Infinity;
    return [...shown].filter(([name, { line }]) => !keys.has(name) && line.sectionRowIndex <= last);
  };

  /** Put rows into the order in which they arrived; drop those that are gone. @param {any[]} rows */
  function apply(rows) {
    waiting = null;
    news.hidden = true;
    for (const [name, { line }] of missing(rows, Infinity)) {
      line.remove();
      shown.delete(name);
    }
    let at = body.firstElementChild;
    for (const row of rows) {
      update(row);
      const line = shown.get(key(row))?.line ?? add(row);
      if (line === at) at = line.nextElementSibling;
      else body.insertBefore(line, at);
    }
    finish();
  }

  function finish() {
    note.replaceChildren(...(shown.size ? [] : [empty(t(options.empty ?? "list.none"))]));
    table.hidden = !shown.size;
    older.hidden = !next;
    if (shown.size && !body.querySelector("tr[tabindex='0']")) /** @type {HTMLElement} */ (body.firstElementChild).tabIndex = 0;
  }

  async function restart() {
    const current = ++generation;
    const page = await load(null);
    if (current !== generation) return;
    shown.clear();
    body.replaceChildren();
    next = page.next ?? null;
    apply(page.rows);
  }

  async function refresh() {
    const current = generation;
    const page = await load(null);
    if (current !== generation) return;
    if (!shown.size) next = page.next ?? null;
    if (!isHeld()) return apply(page.rows);
    page.rows.forEach(update);
    for (const [, { line }] of missing(page.rows, -1)) line.classList.add("gone");
    const count = page.rows.filter((row) => !shown.has(key(row))).length;
    waiting = page.rows;
    held.add(release);
    news.hidden = !count;
    news.textContent = t("table.news", { count });
  }

  async function loadOlder() {
    const current = generation;
    const page = await load(next);
    if (current !== generation) return;
    body.append(...page.rows.filter((row) => !shown.has(key(row))).map(add));
    next = page.next ?? null;
    finish();
  }

  const release = () => {
    if (isHeld()) return;
    held.delete(release);
    if (waiting) apply(waiting);
  };
  whole.addEventListener("keydown", (event) => moveFocus(event, body, open && ((line) => {
    const found = [...shown.values()].find((one) => one.line === line);
    return found ? open(found.row) : null;
  })));
  return { element: whole, restart, refresh, update };
}

/** @type {Kit["moveFocus"]} */
function moveFocus(event, body, open) {
  const line = /** @type {HTMLElement} */ (event.target).closest("tr");
  if (!line || !body.contains(line) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target === line) {
    const target = open?.(line);
    if (target) location.hash = target;
    return;
  }
  const rows = [...body.children];
  const at = rows.indexOf(line);
  /** @type {Record<string, number>} */
  const steps = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: rows.length - 1 };
  const target = /** @type {HTMLElement | undefined} */ (rows[steps[event.key]]);
  if (!(event.key in steps) || !target) return;
  event.preventDefault();
  line.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

/** @type {Kit["loadedTable"]} */
export async function loadedTable(label, key, load, columns, more = {}) {
  const table = createTable({ label, key, load, columns, ...more });
  await table.restart();
  return table;
}

/** Return the names of columns. @param {[label: string, cell?: unknown, kind?: string][]} columns */
const headings = (columns) => element("thead", {}, element("tr", {}, columns.map(([label, , kind]) =>
  element("th", { scope: "col", class: kind }, t(label) || element("span.unseen", {}, t("table.actions"))))));

/** @type {Kit["simpleTable"]} */
export const simpleTable = (labels, rows, nothing = "–") => (!rows.length ? empty(nothing)
  : element("div.scroll", { tabindex: "0" }, element("table.rows", {}, headings(labels.map((one) => [one])),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell, at) =>
      element("td", { "data-label": labels[at] && t(labels[at]) }, cell))))))));
