// Elements of the page. Text is only ever set as text: what people and models wrote is never read as HTML.

/** Return an element. Attributes that begin with "on" are listeners; null and false leave one out, or a child. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== false && child !== ""));
  return made;
}

const GRADES = {
  good: ["connected", "ready", "ok", "delivered", "done", "approved"],
  warn: ["connecting", "reconnecting", "starting", "pending", "sending", "running", "new", "low", "degraded", "waiting"],
  bad: ["failed", "not ready", "uncertain", "dead", "error", "unreachable"],
};

/** Return a state as a colored label. */
export function pill(state) {
  const grade = Object.keys(GRADES).find((one) => GRADES[one].includes(state)) ?? "";
  return element("span", { class: `pill ${grade}` }, state);
}

/** Return a time as "5 min ago", with the full time as its title. */
export function ago(iso) {
  if (!iso) return element("span", { class: "soft" }, "never");
  const seconds = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) ?? [1, "s"];
  const text = seconds < 5 ? "just now" : `${Math.floor(seconds / size)} ${unit} ago`;
  return element("time", { datetime: iso, title: new Date(iso).toLocaleString() }, text);
}

/** Return a table; each row is a list of cells, and a cell that is a <td> is used as it is. */
export function table(headings, rows, empty) {
  if (!rows.length) return element("p", { class: "soft" }, empty);
  const cell = (content) =>
    content instanceof Element && content.tagName === "TD" ? content : element("td", {}, content);
  return element("div", { class: "scroll", tabindex: "0" },
    element("table", {},
      element("thead", {}, element("tr", {}, headings.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map(cell)))),
    ));
}

/** Return a cell for text of any length. */
export const textCell = (...content) => element("td", { class: "text" }, ...content);

/** Return a list of names and values. */
export const facts = (pairs) =>
  element("dl", {}, pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

export const button = (label, onclick) => element("button", { type: "button", onclick }, label);

/** Ask for confirmation of what a button does. If the answer is no, resume the refreshes, which a focused button stops. */
export function confirmed(question) {
  if (window.confirm(question)) return true;
  const pressed = document.activeElement;
  const near = pressed.closest(".scroll");
  if (near) near.focus({ preventScroll: true });
  else pressed.blur();
  return false;
}

/** Return where a conversation is: its channel, chat and topic. */
export const place = (row) => [row.channel, row.chat, row.topic].filter(Boolean).join(" · ");
