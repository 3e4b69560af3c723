// The page: signs in, shows the view that the address names, and keeps it current.

import { hasToken, request, storeToken } from "./api.mjs";
import { element, pill } from "./elements.mjs";
import { VIEWS } from "./views.mjs";

const REFRESH_MS = 5000;
const NOTICE_MS = 6000;
const byId = (id) => document.getElementById(id);

let shown = 0; // counts what was begun to be shown, so that a slow answer never replaces a newer view
let noticeTimer = 0;

function notify(text) {
  clearTimeout(noticeTimer);
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
  noticeTimer = setTimeout(() => notify(""), text ? NOTICE_MS : 2 ** 30);
}

function address() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { name: name in VIEWS ? name : "overview", rest: decodeURIComponent(rest.join("/")) };
}

async function showView() {
  const current = ++shown;
  const { name, rest } = address();
  for (const link of byId("views").children) {
    const isCurrent = link.hash === `#${name}` || (name === "thread" && link.hash === "#conversations");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const [{ status }, content] = await Promise.all([
      request("health/ready", { accepted: [503] }),
      VIEWS[name](rest, { refresh: (text) => { notify(text); void showView(); } }),
    ]);
    if (current !== shown) return;
    showStatus(status);
    byId("views").hidden = false;
    byId("sign-out").hidden = !hasToken();
    byId("view").replaceChildren(...content);
  } catch (error) {
    if (current === shown) fail(error);
  }
}

function showStatus(status) {
  const label = pill(status);
  byId("ready").className = label.className;
  byId("ready").textContent = status;
}

function fail(error) {
  if (error.status === 401) {
    signIn(hasToken() ? error.message : "");
    return;
  }
  if (error.status === 0) showStatus("unreachable");
  if (byId("view").childElementCount && error.status === 0) return; // what was last seen stays
  byId("view").replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
}

function signIn(problem) {
  storeToken(null);
  byId("views").hidden = byId("sign-out").hidden = true;
  const form = byId("sign-in").content.cloneNode(true).querySelector("form");
  form.querySelector(".error").textContent = problem;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    storeToken(form.querySelector("input").value.trim());
    void showView();
  });
  byId("view").replaceChildren(form);
  form.querySelector("input").focus();
}

byId("sign-out").addEventListener("click", () => { shown += 1; signIn(""); });
window.addEventListener("hashchange", () => { void showView(); byId("view").focus(); });
window.addEventListener("unhandledrejection", (event) => notify(event.reason?.message ?? "That did not work."));
setInterval(() => {
  const isSignedIn = !byId("views").hidden;
  const isUsed = byId("view").contains(document.activeElement) && document.activeElement !== byId("view");
  if (isSignedIn && !isUsed && !document.hidden) void showView();
}, REFRESH_MS);
void showView();
