// Markdown as elements. The service parses it. This module only makes an element for each part of the tree.

import { post } from "./api.mjs";
import { element } from "./elements.mjs";

const SCHEMES = ["http:", "https:", "mailto:"];

/** @type {Kit["parseMarkdown"]} */
export async function parseMarkdown(texts) {
  return (await post("api/markdown", { texts })).documents;
}

/** Return parsed Markdown as an element. @param {Token[]} tokens */
export const markdown = (tokens) => element("div.markdown", {}, ...tokens.map(node));

/** @type {Record<string, keyof HTMLElementTagNameMap>} */
const PLAIN = { p: "p", quote: "blockquote", strong: "strong", em: "em", strike: "s", sub: "sub", sup: "sup" };

/** @param {Token} token @returns {Node | string} */
function node(token) {
  if (typeof token === "string") return token;
  const children = () => (token.c ?? []).map(node);
  if (Object.hasOwn(PLAIN, token.t)) return element(PLAIN[token.t], {}, ...children());
  switch (token.t) {
    case "heading": {
      const level = Math.min(6, Math.max(1, Number(token.level) || 1) + 2);
      return element(/** @type {"h3"} */ (`h${level}`), {}, ...children());
    }
    case "list":
      return element(token.start === null ? "ul" : "ol", { start: token.start === null || token.start === 1 ? null : token.start },
        ...token.items.map((/** @type {any} */ item) => element("li", { class: item.check === null ? null : "task" },
          item.check === null ? null : element("input", { type: "checkbox", disabled: true, checked: item.check === true, "aria-label": "task" }),
          ...tight(item.c, token.tight))));
    case "code":
      return element("code", {}, token.text);
    case "pre":
      return element("pre", { "data-language": token.language || null }, element("code", {}, token.text));
    case "formula":
      return element("code.formula", {}, token.text);
    case "link":
      return anchor(token.url, children());
    case "image":
      return anchor(token.url, [`🖼 ${token.alt || token.url}`]);
    case "spoiler":
      return element("span.spoiler", { tabindex: "0" }, ...children());
    case "details":
      return element("details", {}, element("summary", {}, ...token.summary.map(node)), ...children());
    case "table":
      return element("div.scroll", { tabindex: "0" }, element("table", {},
        element("thead", {}, row(token.header, token.align, "th")),
        element("tbody", {}, ...token.rows.map((/** @type {Token[][]} */ cells) => row(cells, token.align, "td")))));
    case "rule":
      return element("hr");
    case "br":
      return element("br");
    default:
      return element("span", {}, ...children());
  }
}

/** Return the content of a list item; a tight list has no paragraphs. @param {Token[]} tokens @param {boolean} isTight */
const tight = (tokens, isTight) => tokens.flatMap((one) =>
  (isTight && typeof one !== "string" && one.t === "p" ? (one.c ?? []).map(node) : [node(one)]));

/** @param {Token[][]} cells @param {string[]} align @param {"th" | "td"} tag */
const row = (cells, align, tag) => element("tr", {}, ...cells.map((cell, at) =>
  element(tag, { class: align[at] ? `align-${align[at]}` : null }, ...cell.map(node))));

/** Return a link, or text if its scheme could run code. @param {string} url @param {(Node | string)[]} children */
function anchor(url, children) {
  if (!URL.canParse(url) || !SCHEMES.includes(new URL(url).protocol)) return element("span", { title: url }, ...children);
  return element("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", title: url }, ...children);
}
