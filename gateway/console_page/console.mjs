// The page: signs in, shows the view that the address names, and keeps it current.

import { canBeSent, hasToken, request, storeToken } from "./api.mjs";
import { forgetDraft } from "./broadcast.mjs";
import { element, pill } from "./elements.mjs";
import { VIEWS } from "./views.mjs";

const REFRESH_MS = 5000;
const NOTICE_MS = 6000;
const SETTLE_MS = 500;
const byId = (id) => document.getElementById(id);

let shown = 0; // counts what was begun to be shown, so that a slow answer never replaces a newer view
let pending = 0; // views whose answers have not arrived: a refresh waits for them, or a slow service would never be seen
let noticeTimer = 0;
let settleTimer = 0;

function notify(text) {
  clearTimeout(noticeTimer);
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
  noticeTimer = setTimeout(() => notify(""), text ? NOTICE_MS : 2 ** 30);
}

function address() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { name: Object.hasOwn(VIEWS, name) ? name : "overview", rest: decode(rest.join("/")) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Show the view that the address names. `isNew`: it is another one than before. */
async function showView({ isNew = false } = {}) {
  const current = ++shown;
  pending += 1;
  const { name, rest } = address();
  for (const link of byId("views").children) {
    const isCurrent = link.hash === `#${name}` || (name === "thread" && link.hash === "#conversations");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const [{ status, checks }, content] = await Promise.all([
      request("health/ready", { accepted: [503] }),
      VIEWS[name](rest, { refresh: (text) => { notify(text); void showView(); } }),
    ]);
    if (current !== shown) return;
    showStatus(status === "ready" && Object.values(checks ?? {}).some((one) => one.state === "degraded") ? "degraded" : status);
    byId("views").hidden = false;
    byId("sign-out").hidden = !hasToken();
    replaceView(content, isNew);
  } catch (error) {
    if (current === shown) fail(error, isNew);
  } finally {
    pending -= 1;
  }
}

const tables = () => [...byId("view").querySelectorAll(".scroll")];

/** Replace what is shown. A refresh keeps how far tables are scrolled, and which of them has the focus. */
function replaceView(content, isNew) {
  const before = isNew ? [] : tables().map((one) => [one.scrollLeft, one === document.activeElement]);
  const rowsBefore = actionRows();
  byId("view").replaceChildren(...content);
  if (!isNew && rowsBefore !== actionRows()) settle();
  if (isNew) window.scrollTo(0, 0);
  const now = tables();
  before.forEach(([left, hasFocus], index) => {
    now[index]?.scrollTo({ left });
    if (hasFocus) now[index]?.focus({ preventScroll: true });
  });
}

/** Which rows have buttons, in order; times change by themselves. */
const actionRows = () => [...byId("view").querySelectorAll("tr:has(button)")]
  .map((row) => [...row.cells].filter((cell) => !cell.querySelector("time")).map((cell) => cell.textContent).join()).join("\n");

/** Other rows are under the pointer now: keep their buttons from a click that was meant for what was there before. */
function settle() {
  clearTimeout(settleTimer);
  byId("view").classList.add("settling");
  settleTimer = setTimeout(() => byId("view").classList.remove("settling"), SETTLE_MS);
}

function showStatus(status) {
  const label = pill(status);
  byId("ready").className = label.className;
  byId("ready").textContent = status;
}

function fail(error, isNew) {
  const isSignedIn = !byId("views").hidden;
  if (error.status === 401 || (error.status === 403 && !isSignedIn)) {
    signIn(hasToken() ? error.message : "");
    return;
  }
  if (error.status === 0) showStatus("unreachable");
  if (signInForm()) {
    signInForm().querySelector(".error").textContent = error.message;
    return;
  }
  byId("sign-out").hidden = !hasToken();
  if (isSignedIn && !isNew && error.status === 0) return; // what was last seen stays
  replaceView([element("p", { class: "error", role: "alert" }, error.message)], isNew);
}

const signInForm = () => byId("view").querySelector("form.sign-in");

function signIn(problem) {
  storeToken(null);
  byId("views").hidden = byId("sign-out").hidden = true;
  const form = byId("sign-in").content.cloneNode(true).querySelector("form");
  form.querySelector(".error").textContent = problem;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const token = form.querySelector("input").value.trim();
    if (!canBeSent(token)) {
      form.querySelector(".error").textContent = "This is no token: no request can carry these characters.";
      return;
    }
    storeToken(token);
    void showView();
  });
  byId("view").replaceChildren(form);
  form.querySelector("input").focus();
}

/** Whether people are reading or writing where a refresh would disturb them. */
function isUsed() {
  const focused = document.activeElement;
  const selection = document.getSelection();
  return (byId("view").contains(focused) && focused !== byId("view") && !tables().includes(focused))
    || (!selection.isCollapsed && byId("view").contains(selection.anchorNode));
}

byId("sign-out").addEventListener("click", () => { shown += 1; forgetDraft(); signIn(""); });
window.addEventListener("hashchange", () => { void showView({ isNew: true }); byId("view").focus({ preventScroll: true }); });
window.addEventListener("unhandledrejection", (event) => notify(event.reason?.message ?? "That did not work."));
setInterval(() => {
  if (!signInForm() && !pending && !isUsed() && !document.hidden) void showView();
}, REFRESH_MS);
void showView();
