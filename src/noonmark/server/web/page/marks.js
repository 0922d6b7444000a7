// The marks of states: a shape and a colour each, the same in lists, timelines, calendars and the terminal.
import { h, svg } from "./dom.js";
import { duration, fullText, zoneFor } from "./times.js";

/** @typedef {"planned" | "queued" | "running" | "completed" | "failed" | "skipped"} State */
/** @typedef {{occurrence_id: string | null, schedule_id?: string, schedule_name?: string | null, at_utc: string, due_at_utc?: string, started_at_utc?: string | null, ended_at_utc?: string | null, state: State, late_seconds?: number | null, reason?: string | null, why?: string | null, origin?: string}} Mark */

/** How each state is called, in the order of legends. */
export const STATES = /** @type {const} */ (["completed", "running", "late", "failed", "skipped", "planned", "queued"]);
/** The same, what needs attention first. */
export const URGENT_FIRST = /** @type {const} */ (["failed", "late", "running", "queued", "completed", "skipped", "planned"]);
/** The number of occurrences in each state; no number is none. @typedef {Partial<Record<typeof STATES[number], number>>} Counts */

/** The phases of occurrences and runs, as states. */
const OF_PHASE = /** @type {Record<string, State>} */ ({
  pending: "planned",
  claimed: "queued",
  dispatching: "running",
  running: "running",
  awaiting_completion: "running",
  completed: "completed",
  succeeded: "completed",
  skipped: "skipped",
  superseded: "skipped",
  cancelled: "skipped",
  coalesced: "skipped",
  failed: "failed",
  delivery_failed: "failed",
  misfired: "failed",
  timed_out: "failed",
});

/**
 * The state of an occurrence or a run by its phase.
 * @param {string} phase
 * @param {string | null} [waitingFor]
 * @returns {State}
 */
export function stateOf(phase, waitingFor) {
  return phase === "pending" && waitingFor ? "queued" : (OF_PHASE[phase] ?? "planned");
}

/**
 * How a mark is drawn: late ones that ran are triangles.
 * @param {{state: State, late_seconds?: number | null}} one
 */
export function shapeOf({ state, late_seconds }) {
  return late_seconds && (state === "completed" || state === "running") ? "late" : state;
}

/**
 * The shape of a state around a point, in SVG.
 * @param {string} shape
 * @param {number} x
 * @param {number} y
 * @param {number} [width] the length of a bar
 */
export function shape(shape, x, y, width = 4) {
  switch (shape) {
    case "completed":
      return svg("rect.s-completed", { x, y: y - 5, width, height: 10, rx: Math.min(2.5, width / 2) });
    case "running":
      return svg("rect.s-running", { x, y: y - 6, width, height: 12, rx: Math.min(3, width / 2) });
    case "late":
      return svg("path.s-late", { d: `M${x - 4.5} ${y + 4}h9l-4.5-9z` });
    case "failed":
      return svg("path.s-failed", { d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8` });
    case "skipped":
      return svg("path.s-skipped", { d: `M${x - 4} ${y}h8` });
    case "queued":
      return svg("circle.s-queued", { cx: x, cy: y, r: 3.4 });
    default:
      return svg("circle.s-planned", { cx: x, cy: y, r: 3.2 });
  }
}

/**
 * A mark for a list, with its word for those who can't see it.
 * @param {string} state
 * @param {string} [words]
 */
export function mark(state, words = state) {
  const at = state === "completed" || state === "running" ? 5 : 7;
  return svg(
    "svg.mark",
    { viewBox: "0 0 14 14", width: 14, height: 14, role: "img", "aria-label": words },
    svg("title", null, words),
    shape(state, at, 7),
  );
}

/** The legend of a picture. */
export function legend(states = STATES) {
  return h(
    "div.legend",
    null,
    states.map((one) => h("span", null, mark(one), one)),
  );
}

/**
 * What hovering over a mark says.
 * @param {Mark} one
 * @param {string | null} [zone]
 */
export function markText(one, zone) {
  const words = [one.schedule_name, `${one.state} · ${fullText(one.at_utc, zoneFor(zone))}`];
  if (one.started_at_utc && one.ended_at_utc)
    words.push(`took ${duration(Date.parse(one.ended_at_utc) - Date.parse(one.started_at_utc))}`);
  if (one.late_seconds) words.push(`started ${duration(one.late_seconds * 1000)} late`);
  if (one.origin && one.origin !== "trigger") words.push(`origin: ${one.origin}`);
  if (one.why) words.push(one.why);
  return words.filter(Boolean).join("\n");
}

/**
 * The last outcomes as a small bar, oldest first; each leads to its occurrence.
 * @param {Mark[]} outcomes
 * @param {number} [cells]
 */
export function strip(outcomes, cells = 30) {
  const shown = outcomes.slice(-cells);
  const counts = shown.reduce(
    (sum, one) => ({ ...sum, [shapeOf(one)]: (sum[shapeOf(one)] ?? 0) + 1 }),
    /** @type {Record<string, number>} */ ({}),
  );
  const words = shown.length
    ? Object.entries(counts)
        .map(([name, count]) => `${count} ${name}`)
        .join(", ")
    : "no outcome yet";
  const start = cells - shown.length;
  return svg(
    "svg.strip",
    { width: cells * 5, height: 16, viewBox: `0 0 ${cells * 5} 16`, role: "img", "aria-label": `Last outcomes: ${words}` },
    svg("title", null, words),
    start > 0 && svg("path.s-none", { d: `M0 8h${start * 5 - 2}` }),
    shown.map((one, index) => {
      const kind = shapeOf(one),
        x = (start + index) * 5;
      // The height tells states apart where the colour does not.
      const height = { completed: 10, running: 10, late: 7, failed: 16, skipped: 3 }[/** @type {"completed"} */ (kind)] ?? 3;
      return svg(`rect.f-${kind}`, { x, y: 8 - height / 2, width: 4, height, rx: 1 });
    }),
  );
}
