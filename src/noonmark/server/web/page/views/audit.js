// Audit: who changed what, when, and why.
import { get, part } from "../api.js";
import { h } from "../dom.js";
import { card, list, pages } from "../parts.js";
import { time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, live, set }) {
  const { box, load } = pages(
    async (cursor) => {
      const page = await get("/audit", { schedule_id: query.get("schedule"), limit: 50, cursor }, signal);
      return { items: page.entries, next_cursor: page.next_cursor };
    },
    (entries) =>
      list(
        entries,
        (/** @type {any} */ one) => [
          "",
          h(
            "span",
            null,
            one.operation,
            one.schedule_id ? [" ", h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.schedule_id)] : "",
            h(
              "small",
              null,
              [
                one.caller,
                one.key_id,
                one.revision_after && `revision ${one.revision_before ?? "–"} → ${one.revision_after}`,
                one.session_id && `session ${one.session_id}`,
                one.tool_call_id && `tool call ${one.tool_call_id}`,
                one.parent_schedule_id && `of schedule ${one.parent_schedule_id}`,
              ]
                .filter(Boolean)
                .join(" · "),
            ),
            one.reason && h("small", null, one.reason),
          ),
          h("span.when", null, time(one.at_utc)),
        ],
        { empty: "Nothing was changed yet.", label: "Changes" },
      ),
  );
  live(["schedules"], () => void load().catch(() => null));
  await load();
  return {
    title: "Audit",
    body: card(
      null,
      h(
        "div.filters",
        null,
        h("input", {
          "aria-label": "Only this schedule",
          placeholder: "only this schedule’s id",
          value: query.get("schedule") ?? "",
          onchange: (/** @type {any} */ event) => {
            set({ schedule: event.target.value.trim() });
            void load();
          },
        }),
      ),
      box,
    ),
  };
}
