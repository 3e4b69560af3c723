// The gateway's REST API: one function for requests, and the token of this browser tab.

const TOKEN_KEY = "parley.token";
const BASE = new URL("../", document.baseURI); // the page is at BASE/console/, also below a proxy's path

/** What the API answered instead of what was asked for; status 0 = there was no answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function storeToken(token) {
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
}

export const hasToken = () => sessionStorage.getItem(TOKEN_KEY) !== null;

/** Whether a header can carry the text: `fetch` refuses others as if there were no network. */
export const canBeSent = (token) => /^[\x20-\xff]*$/.test(token);

/** Send a request and return its JSON, or its text if it is not JSON. Statuses in `accepted` are no errors. */
export async function request(path, { method = "GET", body, accepted = [] } = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(new URL(path, BASE), {
    method,
    headers,
    body: body && JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  }).catch(() => {
    throw new ApiError(0, "Parley does not answer. Is it running?");
  });
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const content = await (isJson ? response.json() : response.text());
  if (response.ok || accepted.includes(response.status)) return content;
  throw new ApiError(response.status, detailOf(content, response.status));
}

function detailOf(content, status) {
  const detail = content?.detail ?? content?.message;
  return typeof detail === "string" ? detail : `The request failed with status ${status}.`;
}
