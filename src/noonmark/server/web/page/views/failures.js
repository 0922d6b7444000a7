// Failures: what failed or was missed, why, and the way to run it again.
import { redrive } from "../actions.js";
import { get, part } from "../api.js";
import { h } from "../dom.js";
import { mark } from "../marks.js";
import { button, card, list, pages, said, segments } from "../parts.js";
import { DAY, HOUR, now, time } from "../times.js";

const SPANS = /** @type {[string, string][]} */ ([
  ["1", "Hour"],
  ["24", "Day"],
  ["168", "Week"],
  ["720", "30 days"],
]);

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, may, live, set }) {
  let hours = Number(query.get("hours")) || DAY / HOUR;
  const { box, load } = pages(
    async (cursor) => {
      const page = await get(
        "/occurrences",
        {
          phase: ["failed", "delivery_failed", "misfired", "timed_out"].join(","),
          since: new Date(now() - hours * HOUR).toISOString(),
          limit: 50,
          cursor,
        },
        signal,
      );
      return { items: page.occurrences, next_cursor: page.next_cursor };
    },
    (failures) =>
      list(
        failures,
        (/** @type {any} */ one) => [
          mark("failed", one.phase),
          h(
            "span",
            null,
            one.schedule_name ?? one.schedule_id ?? one.occurrence_id,
            h("small", { title: one.reason }, one.failure_detail ?? said(one.why)),
          ),
          h("span.when", null, time(one.completed_at_utc)),
        ],
        {
          action: (one) =>
            may("run") && button("Redrive", () => void again(one), { about: one.schedule_name ?? one.occurrence_id }),
          href: (one) => `#/occurrences/${part(one.occurrence_id)}`,
          keys: may("run") ? { r: (one) => void again(one) } : {},
          empty: "Nothing failed in this time.",
          label: "Failures",
        },
      ),
  );

  /** @param {any} one */
  const again = (one) => redrive(one).then((done) => done && load());

  live(["occurrences"], () => void load().catch(() => null));
  await load();
  return {
    title: "Failures",
    actions: [
      segments("Since", SPANS, String(hours), (value) => {
        hours = Number(value);
        set({ hours: value });
        void load();
      }),
    ],
    body: card(null, box),
  };
}
