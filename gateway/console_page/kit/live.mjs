// The service's changes: one event stream for all views, which resumes after a break.

import { BASE } from "./api.mjs";

const AT_MOST_EVERY_MS = 1000;
// During constant changes, views reload less and less often: nobody reads fifty messages a second.
const BUSY_MS = 5000;

/** @type {Set<Subscriber>} */
const subscribers = new Set();
/** Topics that changed since the view began to load. @type {Set<string>} */
export const news = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {(isLive: boolean) => void} */
let onState = () => {};

/** Call `report` with whether changes arrive, now and whenever that changes. */
export function watchState(/** @type {(isLive: boolean) => void} */ report) {
  onState = report;
}

/** Open the stream. While the page is hidden, it is closed. */
export function startLive() {
  if (source || document.hidden) return;
  source = new EventSource(new URL("api/events", BASE));
  source.addEventListener("open", () => onState(true));
  source.addEventListener("error", () => onState(false));
  source.addEventListener("change", (event) => wake(new Set(JSON.parse(event.data).topics)));
  source.addEventListener("reset", () => wake(null));
}

/** Close the stream. */
export function stopLive() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stopLive();
  else if (subscribers.size) {
    startLive();
    wake(null);
  }
});

/** @type {Kit["subscribe"]} */
export function subscribe(topics, call) {
  const one = { topics: new Set(topics), call, timer: 0, last: 0, every: AT_MOST_EVERY_MS };
  subscribers.add(one);
  if (topics.some((topic) => news.has(topic))) wake(one.topics);
  return () => {
    clearTimeout(one.timer);
    subscribers.delete(one);
  };
}

function wake(/** @type {Set<string> | null} */ changed) {
  changed?.forEach((topic) => news.add(topic));
  for (const one of subscribers) {
    if (changed && ![...one.topics].some((topic) => changed.has(topic))) continue;
    if (one.timer) continue;
    const wait = Math.max(0, one.last + one.every - Date.now());
    one.timer = window.setTimeout(() => {
      one.timer = 0;
      const now = Date.now();
      one.every = now - one.last < 2 * one.every ? Math.min(BUSY_MS, one.every * 1.5) : AT_MOST_EVERY_MS;
      one.last = now;
      one.call();
    }, wait);
  }
}
