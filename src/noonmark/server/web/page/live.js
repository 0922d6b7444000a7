// Live updates: the stream says what changed, never how; a view that shows it reads again.
import { ROOT, usualHeaders } from "./api.js";

/** @typedef {{topics: Set<string>, act: (hint: {schedule_ids: string[]}) => void, isDue: boolean}} Subscriber */

/** How long several hints are collected before a view reads again. */
const COLLECT = 300;

/** @type {Set<Subscriber>} */
const subscribers = new Set();
/** The stream is silent no longer than this: a comment comes every 15 seconds. */
const SILENCE = 40_000;
/** A page out of sight for so long lets go of its stream: browsers have few connections for all pages of a server. */
const OUT_OF_SIGHT = 60_000;
let isOnline = true;
let closed = new AbortController();

/** Read the stream, and read it again for as long as the page is there. It is no EventSource, which sends no headers. */
export async function connect() {
  closed.abort();
  const mine = (closed = new AbortController()).signal;
  let last = "",
    wait = 1000;
  while (!mine.aborted) {
    const dead = new AbortController();
    const stop = () => dead.abort();
    mine.addEventListener("abort", stop, { once: true });
    let timer = setTimeout(stop, SILENCE);
    let hiding = 0;
    const onSight = () => {
      clearTimeout(hiding);
      if (document.hidden) hiding = window.setTimeout(stop, OUT_OF_SIGHT);
    };
    document.addEventListener("visibilitychange", onSight);
    try {
      const answer = await fetch(`${ROOT}/stream`, {
        headers: { Accept: "text/event-stream", ...usualHeaders(), ...(last && { "Last-Event-ID": last }) },
        signal: dead.signal,
        credentials: "same-origin",
      });
      if (answer.status === 401) return void document.dispatchEvent(new Event("signed-out"));
      if (!answer.ok || !answer.body) throw new Error(`the stream answered ${answer.status}`);
      wait = 1000;
      if (!isOnline) notifySubscribers(null); // what changed while we were away is unknown
      setOnline(true);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE);
        const messages = (text + value).split("\n\n");
        text = messages.pop() ?? "";
        for (const message of messages) last = receive(message) || last;
      }
    } catch {
      // It is tried again below, whatever went wrong.
    } finally {
      clearTimeout(timer);
      clearTimeout(hiding);
      mine.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", onSight);
    }
    if (mine.aborted) return;
    if (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
      notifySubscribers(null);
      continue;
    }
    setOnline(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, 15_000);
  }
}

export function disconnect() {
  closed.abort();
}

/** Act on one message of the stream; returns its id. @param {string} message */
function receive(message) {
  const fields = new Map(
    message.split("\n").map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1).trim()];
    }),
  );
  if (fields.get("event") === "reset") notifySubscribers(null);
  if (fields.get("event") === "change") notifySubscribers(JSON.parse(fields.get("data") ?? "null"));
  return fields.get("id") ?? "";
}

/**
 * Call `act` soon after something of these topics changed, until the view is left.
 * @param {string[]} topics
 * @param {(hint: {schedule_ids: string[]}) => void} act
 * @param {AbortSignal} signal
 */
export function subscribe(topics, act, signal) {
  if (signal.aborted) return;
  const one = { topics: new Set(topics), act, isDue: false };
  subscribers.add(one);
  signal.addEventListener("abort", () => subscribers.delete(one), { once: true });
}

/** @param {{topics: string[], schedule_ids?: string[]} | null} change null: anything may have changed */
function notifySubscribers(change) {
  for (const one of subscribers) {
    if (one.isDue || (change && !change.topics.some((topic) => one.topics.has(topic)))) continue;
    one.isDue = true;
    setTimeout(() => {
      one.isDue = false;
      if (subscribers.has(one)) one.act({ schedule_ids: change?.schedule_ids ?? [] });
    }, COLLECT);
  }
}

/** @param {boolean} now */
function setOnline(now) {
  if (now === isOnline) return;
  isOnline = now;
  document.dispatchEvent(new CustomEvent("online-changed", { detail: now }));
}
