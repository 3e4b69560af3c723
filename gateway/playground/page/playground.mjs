// The page: the person who speaks, the place, and the messages there.

import { element } from "/console/kit/elements.mjs";
import { showEntries, showFilter, showViolations, showWeather } from "./behind.mjs";
import { composeIn, setContext } from "./composer.mjs";
import { forgetDrawn, showMessages } from "./messages.mjs";
import { act, byId, follow, state } from "./server.mjs";
import { language, setLanguage, translatePage, word } from "./words.mjs";

const PLATFORMS = ["telegram", "slack", "feishu"];
const NOTICE_MS = 8000;
let personKey = "ann";
let placeId = "";
let noticeTimer = 0;
/** @type {Map<string, number>} by place: how many messages were there when it was last shown */
const read = new Map();

function notify(/** @type {string} */ text) {
  clearTimeout(noticeTimer);
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
  if (text) noticeTimer = window.setTimeout(() => notify(""), NOTICE_MS);
}

const person = () => state.people.find((one) => one.key === personKey) ?? state.people[0];
const places = () => state.places.filter((one) => ["", personKey].includes(one.only_for));
const place = () => places().find((one) => one.id === placeId) ?? places()[0];

function showPeople() {
  byId("person").replaceChildren(...state.people.map((one) => element("option", { value: one.key }, `${one.name} (${word(one.role)})`)));
  byId("person").value = personKey;
}

function showPlaces() {
  const link = (/** @type {import("./server.mjs").Place} */ one) => {
    const isCurrent = one.id === place()?.id;
    const count = state.seen[one.id]?.messages.length ?? 0;
    if (isCurrent) read.set(one.id, count);
    const news = count - (read.get(one.id) ?? 0);
    const name = one.kind === "private" ? `Parley (${word("private")})` : one.kind === "channel" ? `#${one.name}` : one.name;
    return element("button", { type: "button", "data-place": one.id, "aria-current": isCurrent && "true", onclick: () => open(one.id) },
      name, news > 0 && element("span", { class: "news" }, String(news)));
  };
  byId("places").replaceChildren(...PLATFORMS.flatMap((name) =>
    [element("h2", {}, word(name)), ...places().filter((one) => one.platform === name).map(link)]));
}

function open(/** @type {string} */ id) {
  placeId = id;
  document.body.dataset.pane = "chat";
  showChat();
  byId("text").focus();
}

function showChat() {
  const found = place();
  if (!found) return;
  showPlaces();
  byId("place").textContent = `${word(found.platform)} · ${found.name}`;
  composeIn(found, person());
  showMessages(byId("messages"), found, person(), setContext);
  const seen = state.seen[found.id];
  byId("working").textContent = [seen?.working && `Parley: ${seen.working}`, seen?.notice].filter(Boolean).join(" · ");
}

function showService() {
  const channels = Object.entries(state.service.channels).map(([name, one]) => `${name} ${one}`).join(", ");
  byId("service").textContent = `${word("service")}: ${state.service.state}`;
  byId("service").title = channels;
  byId("service").dataset.state = state.service.state;
  byId("service").dataset.channels = channels;
  const isOn = ["running", "starting"].includes(state.service.state);
  byId("service-button").textContent = word(isOn ? "kill" : "start");
  byId("service-button").onclick = () => act({ do: isOn ? "kill" : "start" });
}

/** @type {Record<string, () => void>} */
const SHOW = { people: showPeople, service: showService, weather: showWeather, violations: showViolations, entries: showEntries };

function changed(/** @type {string[]} */ parts) {
  if (!byId("notice").hidden && byId("notice").textContent === word("gone")) notify("");
  for (const part of parts) SHOW[part]?.();
  if (parts.some((part) => part.startsWith("seen ") || ["people", "places"].includes(part))) showChat();
}

function showAll() {
  translatePage();
  forgetDrawn();
  showFilter();
  if (state.people.length) changed(["people", "places", "service", "weather", "violations", "entries"]);
}

byId("person").addEventListener("change", (/** @type {any} */ event) => { personKey = event.target.value; showChat(); });
byId("language").value = language;
byId("language").addEventListener("change", (/** @type {any} */ event) => { setLanguage(event.target.value); showAll(); });
for (const one of /** @type {any} */ (document.querySelectorAll("#panes button"))) one.addEventListener("click", () => { document.body.dataset.pane = one.dataset.pane; });
document.addEventListener("notice", (/** @type {any} */ event) => notify(event.detail));
window.addEventListener("unhandledrejection", (event) => { notify(event.reason.message); event.preventDefault(); });
showAll();
follow(changed, () => notify(word("gone")));
