// The console's own words, in the reader's language. Texts of the service (reasons, errors) come from the API.

const KEY = "parley.language";
export const LANGUAGES = { en: "English", zh: "中文" };

/** By group. @type {Record<string, Record<string, string>>} */
let words = {};

/** The language of this browser: chosen, or the browser's own. */
export function language() {
  const chosen = localStorage.getItem(KEY) ?? navigator.language;
  return chosen.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** Choose a language. Reload the page afterwards. */
export const chooseLanguage = (/** @type {string} */ code) => localStorage.setItem(KEY, code);

/** Load the texts. Await this before anything is shown. */
export async function loadTexts() {
  words = (await (language() === "zh" ? import("../texts/zh.mjs") : import("../texts/en.mjs"))).texts;
  document.documentElement.lang = language();
}

/** @type {Kit["t"]} */
export function t(key, values = {}, otherwise) {
  const [group] = key.split(".", 1);
  let text = words[group]?.[key.slice(group.length + 1)] ?? otherwise ?? key;
  if (text.includes("|")) text = text.split("|")[values.count === 1 ? 0 : 1];
  return text.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? value.toLocaleString(language()) : String(value ?? "");
  });
}

/** Return a number as people read it. */
export const whole = (/** @type {number} */ value) => value.toLocaleString(language());

/** Return US dollars as people read them. */
export const dollars = (/** @type {number} */ value) =>
  value.toLocaleString(language(), { style: "currency", currency: "USD", maximumFractionDigits: value < 1 ? 4 : 2 });
