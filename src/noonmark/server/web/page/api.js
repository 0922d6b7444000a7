// The public HTTP API. Every view goes through here: the page uses no private one.

/** An error that the API answered, from its problem document. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if the server did not answer
   * @param {{code?: string, detail?: string, field?: string, request_id?: string, problems?: {field: string, detail: string}[]}} problem
   */
  constructor(status, problem) {
    super(problem.field ? `${problem.field}: ${problem.detail}` : problem.detail || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
    this.detail = problem.detail ?? this.message;
    this.requestId = problem.request_id ?? "";
    this.problems = problem.problems ?? [];
  }

  get isOffline() {
    return this.status === 0;
  }
}

/** Where the API begins: beside the page, also behind a proxy that serves Noonmark below a path. */
export const ROOT = new URL(".", location.href).pathname.replace(/\/$/, "");

/** The tenant that a key of every tenant acts for, in this window; empty: its own. */
export function tenant() {
  return sessionStorage.getItem("noonmark.tenant") ?? "";
}

/** Headers that every request has. @returns {Record<string, string>} */
export function usualHeaders() {
  return tenant() ? { "Noonmark-Tenant": tenant() } : {};
}

/**
 * Read: `get("/schedules", {limit: 50})`. A value that is null or empty is left out; a list repeats its name.
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function get(path, query = {}, signal) {
  const text = queryText(query);
  return call("GET", text ? `${path}?${text}` : path, undefined, signal);
}

/**
 * Change something: `send("POST", "/schedules/x/pause", {note})`.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {any} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function send(method, path, body, signal) {
  return call(method, path, body, signal);
}

/**
 * One part of a path.
 * @param {string} text
 */
export function part(text) {
  return encodeURIComponent(text);
}

/** A random idempotency key, also where the page is not in a secure context. */
export function idempotencyKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

/** @param {Record<string, any>} query */
export function queryText(query) {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== null && one !== undefined && one !== "") out.append(name, String(one));
  }
  return out.toString();
}

/**
 * @param {string} method
 * @param {string} url
 * @param {any} body
 * @param {AbortSignal | undefined} signal
 */
async function call(method, url, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...usualHeaders() };
  if (method !== "GET") headers["Noonmark-Page"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(ROOT + url, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new ApiError(0, { code: "offline", detail: "the server does not answer" });
  }
  const text = await answer.text();
  const isJson = /json/.test(answer.headers.get("Content-Type") ?? "");
  if (!answer.ok) {
    if (answer.status === 401) document.dispatchEvent(new Event("signed-out"));
    throw new ApiError(answer.status, isJson ? JSON.parse(text) : {});
  }
  return isJson && text ? JSON.parse(text) : text;
}
