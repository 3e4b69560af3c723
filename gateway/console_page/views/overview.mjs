// Whether the service is well, and if not, what to do.

import { request } from "../kit/api.mjs";
import { ago, button, element, facts, pill } from "../kit/elements.mjs";
import { t } from "../kit/texts.mjs";

/** @param {import("../console.mjs").Page} page */
export async function show(page) {
  const channels = element("div", { class: "cards" });
  const checks = element("div", { class: "cards" });
  const load = async () => {
    const [found, ready] = await Promise.all([
      request("api/channels", { signal: page.signal }),
      request("health/ready", { accepted: [503], signal: page.signal }),
    ]);
    checks.replaceChildren(readiness(ready));
    channels.replaceChildren(...Object.entries(found.channels).map(([name, one]) => channelCard(page, name, one)));
  };
  await load();
  page.onLive(["channels", "messages"], load);
  return [element("h2", {}, t("nav.overview")), checks, element("h2", {}, t("overview.channels")), channels];
}

/** @param {any} ready */
function readiness(ready) {
  const found = /** @type {[string, any][]} */ (Object.entries(ready.checks ?? {}));
  return element("section", { class: "card" }, element("h3", {}, t("overview.readiness"), pill(ready.status)),
    facts(found.map(([name, check]) => [name, pill(check.state)])),
    ...found.map(([, check]) => check.detail && element("p", { class: "soft" }, check.detail)));
}

/**
 * @param {import("../console.mjs").Page} page
 * @param {string} name
 * @param {any} one
 */
function channelCard(page, name, one) {
  const restart = async () => {
    const { message } = await request(`api/channels/${encodeURIComponent(name)}/restart`, { method: "POST" });
    page.notify(message);
  };
  return element("section", { class: "card", "data-channel": name },
    element("h3", {}, name, pill(one.state)),
    one.detail && element("p", { class: one.running ? "soft" : "error" }, one.detail),
    one.enabled && facts([[t("overview.since"), ago(one.since)], [t("overview.last-event"), ago(one.last_event_at)]]),
    one.enabled && name !== "terminal" && page.may("change") && element("div", { class: "buttons" }, button(t("action.reconnect"), restart)));
}
