// Schedules: find, filter, compare their outcomes, and act on one or on all that match.
import { pauseOrResume, runNow } from "../actions.js";
import { get, part, send } from "../api.js";
import { h, replace } from "../dom.js";
import { mark, stateOf, strip } from "../marks.js";
import { ask, button, field, list, notify, plural } from "../parts.js";
import { HOUR, counting, now, time, zoneChoice, zoneFor } from "../times.js";
import { targetText, zoneOf, zonedText } from "../words.js";

const PHASES = /** @type {[string, string][]} */ ([
  ["", "any phase"],
  ["active", "active"],
  ["paused", "paused"],
  ["proposed", "proposed"],
  ["completed", "completed"],
  ["deleted", "deleted"],
]);
const KINDS = /** @type {[string, string][]} */ ([
  ["", "any trigger"],
  ["cron", "cron"],
  ["interval", "interval"],
  ["calendar", "calendar"],
  ["once", "once"],
  ["event", "event"],
]);
const LAST = /** @type {[string, string][]} */ ([
  ["", "any last outcome"],
  ["completed", "completed last"],
  ["failed", "failed last"],
  ["skipped", "skipped last"],
]);
const NEXT = /** @type {[string, string][]} */ ([
  ["", "any next fire"],
  ["1", "next within 1 h"],
  ["24", "next within 24 h"],
  ["168", "next within 7 d"],
]);
const FILTERS = ["text", "phase", "kind", "label", "owner"];
const PAGE = 50;

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, may, live, set }) {
  const rows = h("div"),
    summary = h("p.dim", { role: "status" }),
    bar = h("div.filters");
  /** @type {Set<string>} */
  const chosen = new Set();
  /** @type {any[]} */
  let shown = [];
  /** @type {string | null} */
  let cursor = null;

  const filters = () => ({
    ...Object.fromEntries(FILTERS.map((name) => [name, query.get(name)])),
    last_state: query.get("last"),
    next_before: query.get("next") && new Date(now() + Number(query.get("next")) * HOUR).toISOString(),
    include_deleted: query.get("phase") === "deleted" || null,
  });

  /** Whether a filter holds that only the list knows: then its rows are counted, and acted on by their ids. */
  const isNarrowed = () => Boolean(query.get("last") || query.get("next"));

  /** @param {boolean} [more] */
  async function read(more = false) {
    const limit = more ? PAGE : Math.max(PAGE, shown.length);
    const [page, { count }] = await Promise.all([
      get("/schedules", { ...filters(), outcomes: 30, limit, cursor: more ? cursor : null }, signal),
      get("/schedules/count", { ...filters(), last_state: null, next_before: null }, signal),
    ]);
    shown = more ? [...shown, ...page.schedules] : page.schedules;
    cursor = page.next_cursor;
    const words = isNarrowed() ? `${plural(shown.length, "schedule")}${cursor ? " and more" : ""}` : plural(count, "schedule");
    if (summary.textContent !== words) replace(summary, words); // it is read aloud
    replace(
      rows,
      list(shown, cells, {
        of: "schedule",
        id: (one) => one.schedule_id,
        label: "Schedules",
        empty: ["No schedule matches. ", may("write") && h("a", { href: "#/new" }, "Make one"), "."],
        keys: {
          Enter: (one) => (location.hash = `#/schedules/${part(one.schedule_id)}`),
          ...(may("write") && {
            p: async (one) => {
              if (await pauseOrResume(one)) await read();
            },
          }),
          ...(may("run") && { r: (one) => void runNow(one) }),
          x: toggle,
        },
      }),
      cursor &&
        h(
          "div.buttons",
          null,
          button("Show more", () => void read(true)),
        ),
    );
    showBar();
  }

  /** @param {any} one */
  function cells(one) {
    const zone = zoneOf(one.trigger);
    const state =
      one.phase === "paused"
        ? "skipped"
        : one.phase === "proposed"
          ? "queued"
          : one.last_phase
            ? stateOf(one.last_phase)
            : "planned";
    return [
      (may("write") || may("run")) &&
        h("input", {
          type: "checkbox",
          "aria-label": `Choose ${one.name ?? one.schedule_id}`,
          checked: chosen.has(one.schedule_id),
          onchange: () => toggle(one),
        }),
      mark(state, one.phase === "active" ? `active, last ${one.last_phase ?? "not yet run"}` : one.phase),
      h(
        "span.what",
        null,
        h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.name ?? one.schedule_id),
        h("small", null, [zonedText(one.trigger), targetText(one.target)].join(" · ")),
        one.phase !== "active" && h("small", { class: "phase" }, one.phase, one.paused?.reason ? `: ${one.paused.reason}` : ""),
        Object.keys(one.labels ?? {}).length
          ? h(
              "span.labels",
              null,
              Object.entries(one.labels).map(([name, value]) =>
                h(
                  "a",
                  { href: `#/schedules?label=${encodeURIComponent(`${name}=${value}`)}` },
                  value ? `${name}=${value}` : name,
                ),
              ),
            )
          : null,
      ),
      strip(one.outcomes ?? []),
      h(
        "span.times",
        null,
        h(
          "span",
          null,
          one.next_run_at
            ? [time(one.next_run_at, zone), " ", h("small", null, counting(one.next_run_at, { zone }))]
            : h("span.dim", null, one.phase !== "active" ? "–" : one.trigger ? "when it happens" : "after others"),
        ),
        h(
          "small",
          null,
          one.last_run_at ? ["last ", time(one.last_run_at, zone)] : "never ran",
          zoneChoice() === "schedule" && ` · ${zoneFor(zone)}`,
        ),
      ),
    ];
  }

  /** @param {any} one */
  function toggle(one) {
    chosen.has(one.schedule_id) ? chosen.delete(one.schedule_id) : chosen.add(one.schedule_id);
    showBar();
    const box = rows.querySelector(`.schedule[data-id="${CSS.escape(one.schedule_id)}"] input`);
    if (box) box.checked = chosen.has(one.schedule_id);
  }

  function showBar() {
    const isFiltered = isNarrowed() || FILTERS.some((name) => query.get(name));
    const what = chosen.size ? plural(chosen.size, "schedule") : isNarrowed() ? "those shown" : "all that match";
    const canAct = (chosen.size || isFiltered) && (may("write") || may("run"));
    replace(
      bar,
      canAct && [
        h("span.dim", null, `Do with ${what}:`),
        may("write") && [
          button("Pause", () => void act("pause", "Pause")),
          button("Resume", () => void act("resume", "Resume")),
          button("Label", () => void act("label", "Label")),
        ],
        may("run") && button("Run now", () => void act("run", "Run")),
        chosen.size
          ? button("Choose none", () => {
              chosen.clear();
              void read();
            })
          : null,
      ],
    );
  }

  /**
   * Act on the chosen ones, or on all that match; first say which these are.
   * @param {string} verb
   * @param {string} word
   */
  async function act(verb, word) {
    const selection =
      chosen.size || isNarrowed()
        ? { schedule_ids: chosen.size ? [...chosen] : shown.map((one) => one.schedule_id) }
        : Object.fromEntries(Object.entries(filters()).filter(([name, value]) => FILTERS.includes(name) && value));
    const labels = verb === "label" ? { set_labels: {} } : {};
    const example = verb === "label" ? { set_labels: { name: "value" } } : {};
    let preview;
    try {
      preview = await send("POST", `/selections/${verb}`, { ...selection, ...example, dry_run: true, limit: 1000 });
    } catch (error) {
      return notify(/** @type {Error} */ (error).message, "bad");
    }
    const names = preview.schedules.map((/** @type {any} */ one) => one.name ?? one.schedule_id);
    const done = await ask(
      `${word} ${plural(names.length, "schedule")}?`,
      [
        h(
          "p",
          null,
          names.slice(0, 12).join(", "),
          names.length > 12 ? ` and ${names.length - 12} more` : "",
          names.length ? "." : "None is in a phase for that.",
        ),
        verb === "label" && [
          field("Label", h("input", { name: "name", required: true, maxlength: 63 })),
          field("Value", h("input", { name: "value", maxlength: 256 }), "Empty removes the label."),
        ],
        verb === "pause" && field("Why", h("input", { name: "reason", maxlength: 500 })),
      ],
      {
        confirm: word,
        act: async (values) => {
          if (verb === "label") labels.set_labels = { [values.name]: values.value };
          return send("POST", `/selections/${verb}`, {
            ...selection,
            ...labels,
            ...(values.reason && { reason: values.reason }),
            limit: 1000,
          });
        },
      },
    );
    if (!done) return;
    const failed = done.schedules.filter((/** @type {any} */ one) => one.problem);
    notify(
      `${word}: ${plural(done.count, "schedule")} done${failed.length ? `, ${failed.length} refused: ${failed[0].name ?? failed[0].schedule_id}: ${failed[0].problem}` : ""}.`,
      failed.length ? "bad" : "good",
    );
    chosen.clear();
    await read();
  }

  /** @param {string} label @param {string} name @param {[string, string][]} choices */
  const choice = (label, name, choices) =>
    h(
      "select",
      {
        "aria-label": label,
        onchange: (/** @type {any} */ event) => {
          set({ [name]: event.target.value });
          void read();
        },
      },
      choices.map(([value, text]) => h("option", { value, selected: (query.get(name) ?? "") === value }, text)),
    );
  /** @param {string} label @param {string} name */
  const typed = (label, name) =>
    h("input", {
      "aria-label": label,
      placeholder: label,
      value: query.get(name) ?? "",
      size: 14,
      onchange: (/** @type {any} */ event) => {
        set({ [name]: event.target.value.trim() });
        void read();
      },
    });

  live(["schedules", "occurrences"], () => void read().catch(() => null));
  await read();
  return {
    title: "Schedules",
    actions: [(may("write") || may("propose")) && h("a.button.primary", { href: "#/new" }, "New schedule")],
    body: h(
      "div.stack",
      null,
      h(
        "div.filters",
        null,
        choice("Phase", "phase", PHASES),
        choice("Trigger", "kind", KINDS),
        choice("Next fire", "next", NEXT),
        choice("Last outcome", "last", LAST),
        typed("label=value", "label"),
        typed("owner", "owner"),
        summary,
      ),
      bar,
      h("section.card", null, rows),
    ),
  };
}
