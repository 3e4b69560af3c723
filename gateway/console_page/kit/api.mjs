// The gateway's REST API: one function for requests, and the session of this browser, whose cookie no script can read.

import { language, t } from "./texts.mjs";

/** The page is at BASE/console/, also below a proxy's path. */
export const BASE = new URL("../", document.baseURI);

/** An error response of the API; status 0 = no response. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @type {Session | null} */
let session = null;

/** Return the session of this browser; null before the sign-in. */
export const currentSession = () => session;

/** @type {Page["may"]} */
export const may = (what) => Boolean(what === "administer" ? session?.may_administer : session?.may_change);

/** @type {Kit["upload"]} */
export async function upload(thread, files) {
  const body = new FormData();
  for (const file of files) body.append("files", file);
  return (await post(`api/threads/${thread}/uploads`, body)).files;
}

/** Return an ID. `randomUUID` needs HTTPS or this machine. */
export const newId = () => crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

/** Whether a header can carry the text: for others, `fetch` reports a network error. */
export const canBeSent = (/** @type {string} */ token) => /^[\x20-\xff]*$/.test(token);

/** @type {Kit["request"]} */
export async function request(path, { method = "GET", body, accepted = [], headers = {}, signal } = {}) {
  const response = await send(path, { method, body, headers, signal });
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const text = await response.text();
  const content = isJson && text ? JSON.parse(text) : text;
  if (response.ok || accepted.includes(response.status)) return content;
  throw new ApiError(response.status, detailOf(content, response.status));
}

export const post = (/** @type {string} */ path, /** @type {unknown} */ body = undefined) => request(path, { method: "POST", body });
export const drop = (/** @type {string} */ path) => request(path, { method: "DELETE" });

/** @type {Kit["send"]} */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const isRaw = body instanceof FormData || body instanceof Blob;
  /** @type {Record<string, string>} */
  const more = { "Accept-Language": language(), ...headers };
  if (session?.csrf && method !== "GET") more["X-CSRF-Token"] = session.csrf;
  if (body !== undefined && !isRaw) more["Content-Type"] = "application/json";
  return fetch(new URL(path, BASE), {
    method,
    headers: more,
    body: body === undefined ? undefined : isRaw ? body : JSON.stringify(body),
    cache: "no-store",
    credentials: "same-origin",
    signal,
  }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, t("notice.no-answer"));
  });
}

/** @param {any} content @param {number} status */
function detailOf(content, status) {
  const detail = content?.detail ?? content?.message;
  if (Array.isArray(detail)) return detail.map((one) => `${one.loc?.at(-1) ?? ""}: ${one.msg ?? ""}`).join("; ");
  return typeof detail === "string" ? detail : `The request failed with status ${status}.`;
}

/** Load this browser's session. Raises ApiError 401 if it has to sign in. */
export async function loadSession() {
  session = /** @type {Session} */ (await request("api/sessions/current"));
  return session;
}

/** Open a session with a token or a link's secret. Raises ApiError. */
export async function signIn(/** @type {string} */ secret) {
  const headers = { Authorization: `Bearer ${secret}` };
  session = /** @type {Session} */ (await request("api/sessions", { method: "POST", headers }));
  return session;
}

/** End the session of this browser, as far as the service answers. */
export async function signOut() {
  await request("api/sessions/current", { method: "DELETE", accepted: [401, 403, 404] }).catch(() => null);
  session = null;
}
