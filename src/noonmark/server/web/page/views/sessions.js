// Sessions: conversations with agents, and what they used.
import { get, part } from "../api.js";
import { h } from "../dom.js";
import { mark } from "../marks.js";
import { card, dollars, list, pages, plural } from "../parts.js";
import { time } from "../times.js";

const STATES = /** @type {Record<string, string>} */ ({
  active: "running",
  idle: "completed",
  suspended: "queued",
  archived: "skipped",
});

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, live, set }) {
  const { box, load } = pages(
    async (cursor) => {
      const page = await get("/sessions", { state: query.get("state"), limit: 50, cursor }, signal);
      return { items: page.sessions, next_cursor: page.next_cursor };
    },
    (items) =>
      list(
        items,
        (/** @type {any} */ one) => [
          mark(STATES[one.state] ?? "planned", one.state),
          h(
            "span",
            null,
            one.comms_name ?? one.member_id ?? one.session_id,
            h(
              "small",
              null,
              [
                one.model,
                plural(one.message_count, "message"),
                `${(one.usage.input_tokens + one.usage.output_tokens).toLocaleString("en")} tokens`,
                one.cost_usd === null ? "cost unknown" : dollars(one.cost_usd),
              ].join(" · "),
            ),
          ),
          h("span.when", null, time(one.updated_at_utc)),
        ],
        {
          href: (one) => `#/sessions/${part(one.session_id)}`,
          empty: "No session yet. A schedule with a session as its target makes one, or: noonmark session create",
          label: "Sessions",
        },
      ),
  );
  live(["sessions"], () => void load().catch(() => null));
  await load();
  const states = h(
    "select",
    {
      "aria-label": "State",
      onchange: (/** @type {any} */ event) => {
        set({ state: event.target.value });
        void load();
      },
    },
    [
      ["", "any state"],
      ["idle", "idle"],
      ["active", "active"],
      ["suspended", "suspended"],
      ["archived", "archived"],
    ].map(([value, text]) => h("option", { value, selected: query.get("state") === value }, text)),
  );
  return { title: "Sessions", body: card(null, h("div.filters", null, states), box) };
}
