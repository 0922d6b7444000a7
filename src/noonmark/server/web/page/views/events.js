// Events: the newest ones, emitting one, and trying a filter on them.
import { get, send } from "../api.js";
import { h, replace } from "../dom.js";
import { ask, button, card, code, field, list, notify, pages, plural, sentence } from "../parts.js";
import { time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, may, live, set }) {
  const { box, load } = pages(
    async (cursor) => {
      const page = await get("/events", { event_type: query.get("type"), limit: 50, cursor }, signal);
      return { items: page.events, next_cursor: page.next_cursor };
    },
    (events) =>
      list(
        events,
        (/** @type {any} */ one) => [
          "",
          h(
            "details",
            { id: one.event_id, open: one.event_id === query.get("event") },
            h("summary", null, one.event_type, " ", h("small.inline", null, `from ${one.source || "–"}`)),
            h("p.dim", null, one.event_id),
            code(one.payload),
          ),
          h("span.when", null, time(one.emitted_at)),
        ],
        { empty: "No event yet.", label: "Events" },
      ),
  );

  const filters = h("textarea", { name: "filters", rows: 4, spellcheck: "false", "aria-label": "Filters as JSON" }, "{}");
  const type = h("input", {
    name: "event_type",
    "aria-label": "Event type",
    placeholder: "any type",
    value: query.get("type") ?? "",
  });
  const outcome = h("div", { role: "status" });
  async function match() {
    try {
      const found = await send(
        "POST",
        "/events/match",
        { filters: JSON.parse(filters.value || "{}"), ...(type.value.trim() && { event_type: type.value.trim() }) },
        signal,
      );
      replace(
        outcome,
        h("p", null, `${found.matched} of ${plural(found.checked, "event")} match.`),
        list(
          found.events,
          (/** @type {any} */ one) => [
            one.matches ? h("span.good", null, "✓") : h("span.dim", null, "–"),
            h("span", null, one.event_type, h("small", null, one.why ?? "matches")),
            h("span.when", null, time(one.emitted_at)),
          ],
          { empty: "No stored event to try it on.", label: "Matches" },
        ),
      );
    } catch (error) {
      replace(outcome, h("p.problem", null, sentence(error)));
    }
  }

  async function emit() {
    const done = await ask(
      "Emit an event",
      [
        field("Type", h("input", { name: "event_type", required: true, placeholder: "file.uploaded" })),
        field("Payload", h("textarea", { name: "payload", spellcheck: "false" }, "{}"), "JSON; schedules and filters see it."),
      ],
      {
        confirm: "Emit",
        command: "noonmark event emit TYPE --payload '{…}'",
        act: ({ event_type, payload }) =>
          send("POST", "/events", { event_type, payload: JSON.parse(payload || "null"), source: "page" }),
      },
    );
    if (done) {
      notify(`Event ${done.event_id} is stored.`);
      await load();
    }
  }

  live(["events"], () => void load().catch(() => null));
  await load();
  return {
    title: "Events",
    actions: [may("run") && button("Emit an event", () => void emit(), { kind: "primary" })],
    body: h(
      "div.columns",
      null,
      card(
        "Newest",
        h(
          "div.filters",
          null,
          h("input", {
            "aria-label": "Only this type",
            placeholder: "only this type",
            value: query.get("type") ?? "",
            onchange: (/** @type {any} */ event) => {
              set({ type: event.target.value.trim() });
              void load();
            },
          }),
        ),
        box,
      ),
      card(
        "Try a filter",
        h("p.dim", null, "On the newest events: which would a schedule with this trigger have heard?"),
        h(
          "div.stack",
          null,
          field("Type", type),
          field("Filters", filters, 'Such as {"path": {"prefix": "/data/"}}'),
          h(
            "div.buttons",
            null,
            button("Try it", () => void match()),
          ),
          outcome,
        ),
      ),
    ),
  };
}
