// Live updates: the stream says what changed, never how; a view that shows it reads again.
import { ROOT } from "./api.js";

/** @typedef {{topics: Set<string>, act: (hint: {schedule_ids: string[]}) => void, isDue: boolean}} Subscriber */

/** How long several hints are collected before a view reads again. */
const COLLECT = 300;

/** @type {Set<Subscriber>} */
const subscribers = new Set();
/** @type {EventSource | null} */
let source = null;
let wait = 1000;
let isOnline = true;

/** Open the stream, and open it again for as long as the page is there. */
export function connect() {
  source?.close();
  source = new EventSource(`${ROOT}/stream`);
  source.addEventListener("open", () => {
    wait = 1000;
    if (!isOnline) tell(null); // what changed while we were away is unknown
    setOnline(true);
  });
  source.addEventListener("change", (event) => tell(JSON.parse(/** @type {MessageEvent} */ (event).data)));
  source.addEventListener("reset", () => tell(null));
  source.addEventListener("error", () => {
    setOnline(false);
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 15_000);
  });
}

export function disconnect() {
  source?.close();
  source = null;
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
function tell(change) {
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
