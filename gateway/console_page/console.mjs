// The page: signs in, shows the view that the address names, and passes it what it needs.

import { formatAddress, parseAddress } from "./kit/address.mjs";
import { ApiError, canBeSent, currentSession, loadSession, may, request, signIn, signOut } from "./kit/api.mjs";
import { agoText, button, element, pill, select } from "./kit/elements.mjs";
import { icon } from "./kit/icons.mjs";
import { news, startLive, stopLive, subscribe, watchState } from "./kit/live.mjs";
import { LANGUAGES, chooseLanguage, language, loadTexts, t } from "./kit/texts.mjs";
import { VIEWS } from "./views.mjs";

const NOTICE_MS = 8000;
const STATUS_MS = 15000;
const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @type {Shown | null} */
let current = null;
let noticeTimer = 0;

/** @type {Page["notify"]} */
function notify(text, undo) {
  clearTimeout(noticeTimer);
  const notice = byId("notice");
  const end = () => notice.replaceChildren();
  notice.replaceChildren(...(text ? [element("div.toast", {}, element("span", {}, text),
    undo ? button(t("action.undo"), async () => { end(); await undo(); }) : null)] : []));
  noticeTimer = window.setTimeout(end, NOTICE_MS);
}

const address = () => {
  const found = parseAddress(location.hash);
  return VIEWS.some((view) => view.name === found.name) ? found : { ...parseAddress("#overview"), query: found.query };
};

/** Show the view that the address names. */
async function showView() {
  const { name, rest, query } = address();
  leaveView();
  const mine = current = { name, rest, query, abort: new AbortController(), leave: [], onQuery: null };
  markNavigation(name);
  const page = pageOf(mine);
  const view = /** @type {View} */ (VIEWS.find((one) => one.name === name));
  const place = byId("view");
  place.setAttribute("aria-busy", "true");
  try {
    const content = await (await view.load()).show(page);
    if (mine !== current) return;
    place.replaceChildren(...content.filter((one) => one !== null && one !== false));
    document.title = `${t(`nav.${view.partOf ?? name}`)} – Parley`;
  } catch (error) {
    if (mine === current) fail(/** @type {Error} */ (error));
  } finally {
    if (mine === current) place.removeAttribute("aria-busy");
  }
}

function leaveView() {
  current?.abort.abort();
  current?.leave.forEach((call) => call());
  news.clear();
  current = null;
}

/** @param {Shown} mine @returns {Page} */
function pageOf(mine) {
  return {
    rest: mine.rest,
    get query() { return mine.query; },
    setQuery(changes, { replace = false } = {}) {
      const query = new URLSearchParams(mine.query);
      for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
      const hash = formatAddress(mine.name, mine.rest, query);
      if (hash === location.hash) return;
      history[replace ? "replaceState" : "pushState"](null, "", hash);
      void onAddress();
    },
    onQuery: (call) => { mine.onQuery = call; },
    onLive: (topics, call) => { mine.leave.push(subscribe(topics, () => whileShown(mine, call))); },
    onLeave: (call) => { mine.leave.push(call); },
    every(ms, call) {
      const timer = setInterval(() => { if (!document.hidden) call().catch(() => null); }, ms);
      mine.leave.push(() => clearInterval(timer));
    },
    may,
    notify,
    get: (path) => request(path, { signal: mine.abort.signal }),
    go: (hash) => { location.hash = hash; },
    show: showView,
    signal: mine.abort.signal,
  };
}

/** Call a function of a view. Another view aborts its requests, which is not an error. @param {Shown} mine @param {() => unknown} call */
async function whileShown(mine, call) {
  try {
    await call();
  } catch (error) {
    if (mine === current) throw error;
  }
}

/** The address changed: other filters of the same view, or another view. */
async function onAddress() {
  const { name, rest, query } = address();
  if (current && current.name === name && current.rest === rest && current.onQuery) {
    current.query = query;
    await whileShown(current, current.onQuery);
    return;
  }
  await showView();
  window.scrollTo(0, 0);
  byId("view").focus({ preventScroll: true });
}

/** Show why a view could not be shown. */
function fail(/** @type {Error} */ error) {
  if (error instanceof ApiError && error.status === 401) return void showSignIn(t("sign-in.ended"));
  byId("view").replaceChildren(element("p.error.card", { role: "alert" }, error.message),
    button(t("action.again"), showView));
}

function buildNavigation() {
  const groups = new Map();
  for (const view of VIEWS) {
    if (!view.group || (view.needs && !may(view.needs))) continue;
    if (!groups.has(view.group)) groups.set(view.group, []);
    groups.get(view.group).push(element("a", { href: `#${view.name}`, "data-view": view.name },
      icon(view.icon ?? view.name), element("span", {}, t(`nav.${view.name}`))));
  }
  byId("views").replaceChildren(...[...groups].map(([group, links]) =>
    element("div.group", {}, element("h2", {}, t(`nav.group.${group}`)), ...links)));
}

function markNavigation(/** @type {string} */ name) {
  const shown = VIEWS.find((view) => view.name === name)?.partOf ?? name;
  for (const one of byId("views").querySelectorAll("a")) {
    if (one.dataset.view === shown) {
      one.setAttribute("aria-current", "page");
      // A phone shows the navigation in one line.
      const line = byId("views");
      line.scrollLeft = one.offsetLeft - line.clientWidth / 2 + one.offsetWidth / 2;
    } else one.removeAttribute("aria-current");
  }
}

/** Show the service's health in the page's header. */
async function showStatus() {
  if (!currentSession()) return;
  try {
    const { severity, findings } = await request("api/findings");
    const problems = findings.filter((/** @type {any} */ one) => one.severity === "problem").length;
    showReady(severity === "warning" ? "degraded" : problems ? "problem" : "ready", problems);
  } catch (error) {
    if (error instanceof ApiError && error.status === 0) showReady("unreachable");
  }
}

/** @param {string} state @param {number} [problems] */
function showReady(state, problems = 0) {
  const place = byId("ready");
  const shown = pill(state);
  if (problems) shown.textContent = t("overview.problems", { count: problems });
  if (place.textContent === shown.textContent) return;
  const wasGone = place.dataset.state === "unreachable";
  place.dataset.state = state;
  place.replaceChildren(element("a", { href: "#overview" }, shown));
  if (wasGone && byId("view").querySelector(".error.card")) void showView();
}

/** Show the form that signs in. */
function showSignIn(/** @type {string} */ problem) {
  leaveView();
  stopLive();
  byId("shell").classList.add("signed-out");
  const error = element("p.error", { role: "alert" }, problem);
  const field = element("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const form = element("form.card.sign-in", {},
    element("h2", {}, t("action.sign-in")),
    element("label", { for: "token" }, t("sign-in.token")), field,
    element("p.hint.soft", {}, t("sign-in.hint")),
    element("button", { type: "submit", class: "primary" }, t("action.sign-in")), error);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = field.value.trim();
    if (!canBeSent(token)) {
      error.textContent = t("sign-in.no-token");
      return;
    }
    try {
      await signIn(token);
      await start();
    } catch (failure) {
      error.textContent = /** @type {Error} */ (failure).message;
      field.select();
    }
  });
  byId("view").replaceChildren(form);
  field.focus();
}

/** Show the service to somebody who is signed in. */
async function start() {
  byId("shell").classList.remove("signed-out");
  byId("sign-out").hidden = !currentSession()?.can_sign_out;
  buildNavigation();
  startLive();
  subscribe(["channels"], showStatus);
  void showStatus();
  await showView();
}

/** Open the session of a one-time link, whose secret must not stay in the address or in the history. */
async function openLink() {
  const found = /^#link=(.+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", "#overview");
  try {
    await signIn(decodeURIComponent(found[1]));
    return "";
  } catch (error) {
    return error instanceof ApiError && error.status === 401 ? t("sign-in.link-used") : /** @type {Error} */ (error).message;
  }
}

async function main() {
  await loadTexts();
  const chosen = select(Object.entries(LANGUAGES), language(), { "aria-label": t("shell.language"), onchange: (/** @type {any} */ event) => {
    chooseLanguage(event.target.value);
    location.reload();
  } });
  byId("foot").append(chosen, button(t("action.sign-out"), async () => {
    leaveView();
    stopLive();
    await signOut();
    showSignIn("");
  }, { id: "sign-out", class: "quiet" }));
  byId("skip").textContent = t("shell.skip");
  byId("views").setAttribute("aria-label", t("shell.views"));
  watchState((isLive) => {
    byId("live").className = isLive ? "live on" : "live";
    byId("live").title = isLive ? t("shell.live") : t("shell.not-live");
    if (!isLive) void showStatus();
  });
  const problem = await openLink();
  try {
    await loadSession();
  } catch (error) {
    const isSignedOut = error instanceof ApiError && [401, 403].includes(error.status);
    showSignIn(isSignedOut ? problem : /** @type {Error} */ (error).message);
    return;
  }
  await start();
}

window.addEventListener("hashchange", () => { if (currentSession()) void onAddress(); });
window.addEventListener("unhandledrejection", (event) => {
  event.preventDefault(); // The page shows it.
  if (event.reason?.name === "AbortError") return; // of a view that was left
  const isSignedOut = byId("shell").classList.contains("signed-out"); // Keep what the person typed.
  if (event.reason instanceof ApiError && event.reason.status === 401) {
    if (!isSignedOut && current) showSignIn(t("sign-in.ended"));
  } else notify(event.reason?.message ?? t("notice.failed"));
});
window.addEventListener("keydown", (event) => {
  const isWriting = /** @type {Element} */ (event.target).closest("input, textarea, select, dialog");
  const search = /** @type {HTMLElement | null} */ (byId("view").querySelector("input[type=search]"));
  if (event.key === "/" && !isWriting && search) {
    event.preventDefault();
    search.focus();
  }
});
setInterval(() => {
  for (const one of document.querySelectorAll("time[datetime]")) {
    const text = agoText(/** @type {HTMLTimeElement} */ (one).dateTime);
    if (one.textContent !== text) one.textContent = text;
  }
}, 5000);
setInterval(() => { if (!document.hidden) void showStatus(); }, STATUS_MS);
void main();
