// Failures: what failed or was missed, why, and the way to run it again.
import { redrive } from "../actions.js";
import { get, part } from "../api.js";
import { h, replace } from "../dom.js";
import { mark } from "../marks.js";
import { button, list, said, segments } from "../parts.js";
import { DAY, HOUR, now, time } from "../times.js";

const SPANS = /** @type {[string, string][]} */ ([["1", "Hour"], ["24", "Day"], ["168", "Week"], ["720", "30 days"]]);

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, may, live, set }) {
  let hours = Number(query.get("hours")) || DAY / HOUR;
  const rows = h("div");
  /** @type {any[]} */
  let shown = [];
  /** @type {string | null} */
  let cursor = null;

  /** @param {boolean} [more] */
  async function read(more = false) {
    const page = await get("/occurrences", { phase: ["failed", "delivery_failed", "misfired", "timed_out"].join(","), since: new Date(now() - hours * HOUR).toISOString(), limit: 50, cursor: more ? cursor : null }, signal);
    shown = more ? [...shown, ...page.occurrences] : page.occurrences;
    cursor = page.next_cursor;
    replace(rows, list(shown, (one) => [
      mark("failed", one.phase),
      h("span", null, one.schedule_name ?? one.schedule_id ?? one.occurrence_id, h("small", { title: one.reason }, one.failure_detail ?? said(one.why))),
      h("span.when", null, time(one.completed_at_utc)),
    ], { action: (one) => may("run") && button("Redrive", () => void redrive(one).then((done) => done && read())), href: (one) => `#/occurrences/${part(one.occurrence_id)}`, keys: may("run") ? { r: (one) => void redrive(one) } : {}, empty: "Nothing failed in this time.", label: "Failures" }),
    cursor && h("div.buttons", null, button("Show more", () => void read(true))));
  }

  live(["occurrences"], () => void read().catch(() => null));
  await read();
  return { title: "Failures", actions: [segments("Since", SPANS, String(hours), (value) => { hours = Number(value); set({ hours: value }); void read(); })], body: h("section.card", null, rows) };
}
