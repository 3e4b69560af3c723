// The address of what is shown: #view/rest?filter=value. Filters are part of it, so a link shows the same rows.

/** Read an address. @param {string} hash @returns {Address} */
export function parseAddress(hash) {
  const [path, ...filters] = hash.replace(/^#/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name, rest: decode(rest.join("/")), query: new URLSearchParams(filters.join("?")) };
}

/** @type {Kit["formatAddress"]} */
export function formatAddress(name, rest = "", query = {}) {
  const given = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const kept = new URLSearchParams(given.filter(([, value]) => value).map(([key, value]) => [key, String(value)]));
  const filters = kept.toString();
  return `#${name}${rest ? `/${encodeURIComponent(rest)}` : ""}${filters ? `?${filters}` : ""}`;
}

/** Undo `encodeURIComponent`; other text stays. */
export function decode(/** @type {string} */ text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
