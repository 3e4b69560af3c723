// The service's problems and how to fix them, and its figures.

import {
  act, ago, button, chart, dollars, duration, element, facts, filterBar, formatAddress, language, pill, post, t,
  whole,
} from "../kit.mjs";

const SPANS = ["day", "hour", "week"];
const FINDINGS_MS = 30000;

/** @param {Page} page */
export async function show(page) {
  const findings = findingCard(() => look(true));
  const waiting = numbers();
  const figures = element("div.cards");
  const channels = element("div.cards");
  const look = async (/** @type {boolean} */ again = false) => {
    findings.update(await page.get(`api/findings${again ? "?again=true" : ""}`));
  };
  const count = async () => {
    const span = page.query.get("span") || SPANS[0];
    const found = await page.get(`api/figures?span=${encodeURIComponent(span)}`);
    waiting.update(found);
    figures.replaceChildren(...charts(found));
  };
  const connect = async () => {
    const found = await page.get("api/channels");
    channels.replaceChildren(...Object.entries(found.channels).map(([name, one]) => channelCard(page, name, one)));
  };
  await Promise.all([look(), count(), connect()]);
  page.onQuery(count);
  page.onLive(["messages", "deliveries", "access"], count);
  page.onLive(["channels"], () => Promise.all([look(), connect()]));
  page.every(FINDINGS_MS, look);
  page.every(5000, count); // A count may be 2 s old.
  const spans = SPANS.map((one, at) => /** @type {[string, string]} */ ([at ? one : "", t(`overview.${one}`)]));
  return [
    element("h2", {}, t("nav.overview")), findings.element, waiting.element,
    filterBar(page, [{ name: "span", label: t("overview.span"), options: spans }]), figures,
    element("h2", {}, t("overview.channels")), channels,
  ];
}

/** Return the card of the findings. Unchanged ones stay, so that nothing moves under the pointer. */
function findingCard(/** @type {() => unknown} */ again) {
  const [title, time, list, rest] = [element("span"), element("span.soft"), element("div"), element("div")];
  const summary = element("summary");
  let shown = "";
  return {
    element: element("section.card.findings", {},
      element("h3", {}, title, element("span.buttons", {}, time, act("overview.again", again))),
      list, element("details", {}, summary, rest)),
    update(/** @type {Answer} */ { findings, looked_at: at }) {
      time.replaceChildren(ago(at));
      if (shown === JSON.stringify(findings)) return;
      shown = JSON.stringify(findings);
      const bad = findings.filter((one) => ["problem", "warning"].includes(one.severity));
      title.textContent = bad.length ? t("overview.findings", { count: bad.length }) : t("overview.well");
      list.replaceChildren(...bad.map(finding));
      summary.textContent = t("overview.all", { count: findings.length });
      rest.replaceChildren(...findings.filter((one) => !bad.includes(one)).map(finding));
    },
  };
}

/** @param {any} one */
function finding({ area, subject, severity, text, fix }) {
  const address = formatAddress("configuration", "", { key: `channels.${area}` });
  const isLinked = /^[\w-]+$/.test(area) && !["models", "voice", "nodes"].includes(area);
  return element("div.finding.plain", { "data-severity": severity },
    pill(severity), " ", element("strong", {}, isLinked ? element("a", { href: address }, area) : area), ` · ${subject}: ${text}`,
    fix && element("div.soft", {}, `→ ${fix}`));
}

/** Return the numbers of things that wait for somebody, as links. */
function numbers() {
  /** @param {string} key @param {string} href @param {(found: any) => number} count */
  const number = (key, href, count, kind = "bad") => {
    const [strong, more] = [element("strong"), element("span.soft")];
    const card = element("a.card.number", { href: `#${href}` }, strong, t(`overview.${key}`), more);
    return { card, update: (/** @type {any} */ found) => {
      strong.textContent = count(found).toLocaleString(language());
      card.className = `card number ${count(found) ? kind : ""}`;
      if (["failed", "refused"].includes(key)) more.textContent = ` · ${t(`overview.${found.span}`)}`;
    } };
  };
  const made = [
    number("failed", "messages?state=failed", ({ total }) => total.errors),
    number("undelivered", "deliveries?state=failed", ({ now }) => now.failed),
    number("uncertain", "deliveries?state=uncertain", ({ now }) => now.uncertain),
    number("waiting", "messages?state=waiting", ({ now }) => now.waiting, ""),
    number("refused", "messages?state=refused", ({ total }) => total.refused, ""),
    number("people", "people", ({ now }) => now.people, ""),
  ];
  return {
    element: element("div.numbers", {}, ...made.map((one) => one.card)),
    update: (/** @type {any} */ found) => made.forEach((one) => one.update(found)),
  };
}

/** @param {Answer} found */
function charts({ span, total, periods }) {
  const format = new Intl.DateTimeFormat(language(), span === "week" ? { weekday: "short", hour: "numeric" } : { timeStyle: "short" });
  const times = periods.map((one) => format.format(new Date(one.since)));
  const values = (/** @type {string} */ key) => periods.map((one) => one[key]);
  /** @type {(key: string, sum: string, series: Series[], more: any) => Node} */
  const card = (key, sum, series, more) =>
    element("section.card", { "data-figure": key }, element("h3", {}, t(`overview.${key}`), element("span", {}, sum)),
      chart({ label: `${t(`overview.${key}`)}: ${sum}`, times, series, ...more }));
  /** @type {(key: string, kind: string, values?: number[]) => Series} */
  const one = (key, kind, numbers = values(key)) => ({ label: t(`overview.${key}`), kind, values: numbers });
  const others = periods.map((each) => Math.max(0, each.messages - each.answers - each.errors));
  const waits = (/** @type {string} */ key) => card(key, `p50 ${duration(total[`${key}_p50_s`])} · p95 ${duration(total[`${key}_p95_s`])}`, [
    { label: "p50", kind: "accent", values: values(`${key}_p50_s`) }, { label: "p95", kind: "warn", values: values(`${key}_p95_s`) },
  ], { format: duration, isLines: true });
  return [
    card("messages", `${whole(total.messages)} · ${t("overview.answers")} ${whole(total.answers)} · ${t("overview.errors")} ${whole(total.errors)}`,
      [one("answers", "good"), one("errors", "bad"), one("others", "soft", others)], { format: whole }),
    waits("sign"), waits("answer"),
    card("tokens", whole(total.tokens), [one("tokens", "accent")], { format: whole }),
    card("cost", dollars(total.cost_usd), [one("cost", "accent", values("cost_usd"))], { format: dollars }),
  ];
}

/** @param {Page} page @param {string} name @param {any} one */
function channelCard(page, name, one) {
  const restart = async () => {
    page.notify((await post(`api/channels/${encodeURIComponent(name)}/restart`)).message);
  };
  return element("section.card", { "data-channel": name },
    element("h3", {}, name, pill(one.state)),
    one.detail && element("p", { class: one.running ? "soft" : "error" }, one.detail),
    one.enabled && facts([[t("overview.since"), ago(one.since)], [t("overview.last-event"), ago(one.last_event_at)]]),
    one.enabled && name !== "terminal" && page.may("change") && element("div.buttons", {}, button(t("action.reconnect"), restart)));
}
