// One schedule: past and future on one axis, a year at a glance, what it promises in words, its runs and revisions.
import { pauseOrResume, remove, runNow } from "../actions.js";
import { get, idempotencyKey, part, send } from "../api.js";
import { axis } from "../axis.js";
import { bars, heatMap } from "../charts.js";
import { h, replace } from "../dom.js";
import { legend, mark, stateOf } from "../marks.js";
import {
  ask,
  button,
  card,
  code,
  dollars,
  fact,
  field,
  fieldChanges,
  list,
  notify,
  plural,
  said,
  segments,
  sentence,
} from "../parts.js";
import { DAY, HOUR, counting, duration, fireFormat, fullText, local, now, time, zoneFor } from "../times.js";
import { policySentences, targetText, triggerText, zoneOf } from "../words.js";

const ZOOMS = /** @type {[string, string][]} */ ([
  ["1", "Hour"],
  ["12", "12 h"],
  ["48", "2 days"],
  ["336", "2 weeks"],
  ["1440", "2 months"],
  ["8760", "Year"],
]);

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params: [id], query, signal, may, live, set, go }) {
  const path = `/schedules/${part(id)}`;
  let schedule = await get(path, { include_deleted: true }, signal);
  const zone = zoneOf(schedule.trigger) ?? "UTC";
  let hours = Number(query.get("hours")) || defaultHours(schedule);
  let middle = now();
  const about = h("div"),
    picture = h("div"),
    year = h("div"),
    trends = h("div.columns"),
    runs = h("div"),
    revisions = h("div"),
    backfills = h("div");
  const actions = h("div.buttons");

  async function showAxis() {
    const from = middle - hours * HOUR * 0.6,
      to = middle + hours * HOUR * 0.4;
    const timeline = await get(
      "/timeline",
      { schedule_id: id, from: new Date(from).toISOString(), to: new Date(to).toISOString(), max_marks: 130, buckets: 240 },
      signal,
    );
    const rows = timeline.rows.length ? timeline.rows : [{ schedule_id: id, name: schedule.name, marks: [], buckets: null }];
    replace(
      picture,
      axis({
        rows,
        from,
        to,
        bucketSeconds: timeline.bucket_seconds,
        label: `${schedule.name ?? id}, past and future`,
        named: false,
        zone,
      }),
    );
  }

  async function showAbout() {
    const preview =
      schedule.trigger && schedule.phase !== "deleted"
        ? await get(`${path}/preview`, { count: 5 }, signal).catch(() => null)
        : null;
    const explained = await get(`${path}/explain`, {}, signal).catch(() => null);
    const warnings = [...new Set([...(schedule.warnings ?? []), ...(preview?.warnings ?? [])])];
    const fires = (schedule.next_fire_times ?? []).slice(0, 5);
    const written = fireFormat(fires);
    replace(
      about,
      h(
        "div.columns",
        null,
        card(
          "When",
          h("p", null, preview?.description ? sentence(preview.description) : triggerText(schedule.trigger)),
          warnings.map((one) => h("p.warning", null, said(one))),
          explained && h("p.dim", null, said(explained.summary, { links: true, zone })),
          fires.length
            ? h(
                "ol.fires",
                null,
                fires.map((/** @type {string} */ one) =>
                  h(
                    "li",
                    { title: fullText(one, "UTC") },
                    written(one, zoneFor(zone)),
                    h("span.dim", null, " ", counting(one, { zone })),
                  ),
                ),
              )
            : null,
          h("p.dim", null, `Zone ${zone}${zoneFor(zone) === zone ? "" : `, shown in ${zoneFor(zone)}`}`),
        ),
        card(
          "What",
          h(
            "dl.facts",
            null,
            fact("Target", [
              h("span.mono", null, targetText(schedule.target)),
              h("small", null, ` ${schedule.target.target_kind}`),
            ]),
            fact("Phase", [schedule.phase, schedule.paused ? h("small", null, ` ${pausedText(schedule.paused)}`) : ""]),
            fact("Owner", `${schedule.owner.user} · ${schedule.owner.tenant}`),
            schedule.description && fact("About", schedule.description),
            Object.keys(schedule.labels ?? {}).length
              ? fact(
                  "Labels",
                  h(
                    "span.labels",
                    null,
                    Object.entries(schedule.labels).map(([name, value]) =>
                      h(
                        "a",
                        { href: `#/schedules?label=${encodeURIComponent(`${name}=${value}`)}` },
                        value ? `${name}=${value}` : name,
                      ),
                    ),
                  ),
                )
              : null,
            schedule.depends_on?.length
              ? fact(
                  "After",
                  schedule.depends_on.map((/** @type {any} */ one) => [
                    h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.schedule_id),
                    " ",
                  ]),
                )
              : null,
            schedule.lineage
              ? fact(
                  "Made by",
                  schedule.lineage.chain.map((/** @type {string} */ one) => [
                    h(
                      "a",
                      {
                        href: one.startsWith("session:")
                          ? `#/sessions/${part(one.slice(8))}`
                          : `#/schedules/${part(one.replace(/^schedule:/, ""))}`,
                      },
                      one,
                    ),
                    " ",
                  ]),
                )
              : null,
            fact(
              "Ran",
              `${plural(schedule.counters.total, "time")}: ${schedule.counters.successful} completed, ${schedule.counters.failed} failed, ${schedule.counters.missed} missed, ${schedule.counters.skipped} skipped`,
            ),
            fact("Revision", [String(schedule.revision), h("small", null, " ", time(schedule.updated_at_utc, zone))]),
          ),
        ),
        card(
          "Policies",
          h(
            "ul.sentences",
            null,
            policySentences(schedule).map((one) => h("li", null, one)),
          ),
        ),
      ),
    );
    replace(
      actions,
      schedule.phase === "deleted"
        ? h("span.dim", null, "deleted")
        : [
            may("run") &&
              button(
                "Run now",
                () => void runNow(schedule).then((done) => done?.occurrence_id && go(`/occurrences/${part(done.occurrence_id)}`)),
                { kind: "primary" },
              ),
            (may("write") || may("propose")) &&
              button(
                schedule.phase === "paused" ? "Resume" : "Pause",
                () => void pauseOrResume(schedule).then((done) => done && refresh()),
              ),
            (may("write") || may("propose")) && h("a.button", { href: `#/schedules/${part(id)}/edit` }, "Edit"),
            may("run") && schedule.trigger && schedule.trigger.type !== "event" && button("Backfill", () => void backfill()),
            may("write") && button("Delete", () => void remove(schedule).then((done) => done && go("/schedules"))),
          ],
    );
  }

  async function showTrends() {
    const at = now();
    const [days, weeks] = await Promise.all([
      get(
        `${path}/trends`,
        { from: new Date(at - 372 * DAY).toISOString(), to: new Date(at + HOUR).toISOString(), unit: "day", timezone: zone },
        signal,
      ),
      get(
        `${path}/trends`,
        { from: new Date(at - 30 * DAY).toISOString(), to: new Date(at + HOUR).toISOString(), unit: "day", timezone: zone },
        signal,
      ),
    ]);
    const { year: y, month, day } = local(at, zone);
    replace(year, heatMap(days.buckets, `${y}-${String(month).padStart(2, "0")}-${String(day).padStart(2, "0")}`));
    const points = weeks.buckets.map((/** @type {any} */ one) => ({
      label: one.local_date.slice(5),
      title: `${one.local_date}: median ${one.duration_p50_seconds === null ? "–" : duration(one.duration_p50_seconds * 1000)}, p95 ${one.duration_p95_seconds === null ? "–" : duration(one.duration_p95_seconds * 1000)}, ${dollars(one.cost_usd)}`,
    }));
    const costs = weeks.buckets.map((/** @type {any} */ one) => one.cost_usd);
    replace(
      trends,
      card(
        ["How long it took ", h("span.dim", null, "bar: median, dot: p95, 30 days")],
        bars(
          points,
          weeks.buckets.map((/** @type {any} */ one) => one.duration_p50_seconds),
          {
            over: weeks.buckets.map((/** @type {any} */ one) => one.duration_p95_seconds),
            text: (value) => duration(value * 1000),
            name: "Durations of the last 30 days",
          },
        ),
      ),
      costs.some(Boolean) &&
        card(
          ["What it cost ", h("span.dim", null, "30 days")],
          bars(points, costs, { text: dollars, name: "Cost of the last 30 days" }),
        ),
    );
  }

  /** @type {any[]} */
  let shown = [];
  /** @type {string | null} */
  let cursor = null;
  /** @param {boolean} [more] */
  async function showRuns(more = false) {
    const page = await get(
      `${path}/occurrences`,
      { limit: more ? 50 : Math.max(20, Math.min(200, shown.length)), cursor: more ? cursor : null },
      signal,
    );
    shown = more ? [...shown, ...page.occurrences] : page.occurrences;
    cursor = page.next_cursor;
    replace(
      runs,
      list(
        shown,
        (one) => {
          const state = stateOf(one.phase, one.waiting_for);
          const took =
            one.started_at_utc && one.completed_at_utc
              ? duration(Date.parse(one.completed_at_utc) - Date.parse(one.started_at_utc))
              : "";
          return [
            mark(state, one.phase),
            h(
              "span",
              null,
              time(one.nominal_at_utc, zone),
              one.origin !== "trigger" && h("span.dim", null, ` · ${one.origin}`),
              h("small", { title: one.reason ?? "" }, one.failure_detail ?? said(one.why ?? state)),
            ),
            h(
              "span.when",
              null,
              state === "running"
                ? counting(one.started_at_utc, { since: true })
                : state === "planned"
                  ? counting(one.due_at_utc)
                  : took,
            ),
          ];
        },
        { href: (one) => `#/occurrences/${part(one.occurrence_id)}`, empty: "Nothing has run yet.", label: "Occurrences" },
      ),
      cursor &&
        h(
          "div.buttons",
          null,
          button("Show more", () => void showRuns(true)),
        ),
    );
  }

  async function showRevisions() {
    const page = await get(`${path}/revisions`, { limit: 20 }, signal);
    replace(
      revisions,
      list(
        page.revisions,
        (/** @type {any} */ one) => [
          h("b", null, one.revision),
          h("span", null, one.by, h("small", null, one.reason ?? one.operation), fieldChanges(one.changes)),
          h("span.when", null, time(one.at_utc, zone)),
        ],
        { empty: "It was never changed.", label: "Revisions" },
      ),
    );
  }

  async function showBackfills() {
    const { backfills: all } = await get(`${path}/backfills`, {}, signal);
    replace(
      backfills,
      all.length
        ? card(
            "Backfills",
            list(
              all,
              (/** @type {any} */ one) => [
                mark(one.phase === "completed" ? "completed" : "running", one.phase),
                h(
                  "span",
                  null,
                  `${time(one.from_utc, zone).textContent} – ${time(one.to_utc, zone).textContent}`,
                  h("small", null, `${one.ended} of ${one.count} done, ${one.phase}`),
                ),
                h(
                  "span.when",
                  null,
                  may("run") &&
                    one.phase !== "completed" && [
                      button(
                        one.phase === "paused" ? "Resume" : "Pause",
                        () => void controlBackfill(one, one.phase === "paused" ? "resume" : "pause"),
                      ),
                      " ",
                      button("Cancel", () => void controlBackfill(one, "cancel")),
                    ],
                ),
              ],
              { label: "Backfills" },
            ),
          )
        : null,
    );
  }

  /** @param {any} one @param {string} verb */
  async function controlBackfill(one, verb) {
    await send("POST", `${path}/backfills/${part(one.backfill_id)}/${verb}`, {}).then(
      () => notify("Done."),
      (error) => notify(sentence(error), "bad"),
    );
    await showBackfills();
  }

  async function backfill() {
    const preview = h("p.dim", { role: "status" }, "Choose a time to see what would run.");
    /** @type {any} */
    const from = h("input", { type: "datetime-local", name: "from", required: true, onchange: () => void countFires() });
    /** @type {any} */
    const to = h("input", { type: "datetime-local", name: "to", required: true, onchange: () => void countFires() });
    const body = () => ({ from: new Date(from.value).toISOString(), to: new Date(to.value).toISOString(), limit: 1000 });
    async function countFires() {
      if (!from.value || !to.value) return;
      try {
        const { count, occurrences } = await send("POST", `${path}/backfill`, { ...body(), dry_run: true });
        replace(
          preview,
          `${plural(count, "fire")} would run again`,
          count
            ? `: ${fullText(occurrences[0].nominal_at_utc, zoneFor(zone))} to ${fullText(occurrences[occurrences.length - 1].nominal_at_utc, zoneFor(zone))}.`
            : ".",
        );
      } catch (error) {
        replace(preview, sentence(error));
      }
    }
    const done = await ask(
      `Backfill ${schedule.name ?? id}`,
      [
        h("p", null, "Past fires between these times, in your zone, run again."),
        field("From", from),
        field("To", to),
        field("At once", h("input", { type: "number", name: "concurrency", min: 1, max: 1000, value: "1" })),
        preview,
      ],
      {
        confirm: "Run them",
        command: `noonmark schedule backfill ${id} --from … --to …`,
        act: ({ concurrency }) =>
          send("POST", `${path}/backfill`, { ...body(), concurrency: Number(concurrency) || 1, key: idempotencyKey() }),
      },
    );
    if (done) {
      notify(`${plural(done.count, "fire")} run again.`);
      await refresh();
    }
  }

  async function refresh() {
    schedule = await get(path, { include_deleted: true }, signal);
    await Promise.all([showAbout(), showAxis(), showRuns(), showBackfills(), showRevisions()]);
  }

  /** @param {number} steps */
  const pan = (steps) => {
    middle += steps * hours * HOUR * 0.5;
    void showAxis();
  };
  await Promise.all([showAbout(), showAxis(), showRuns()]);
  /** @param {Element} where */
  const quietly = (where) => (/** @type {unknown} */ error) => {
    if (!signal.aborted) replace(where, h("p.quiet", null, sentence(error)));
  };
  void showTrends().catch(quietly(year));
  void showRevisions().catch(quietly(revisions));
  void showBackfills().catch(quietly(backfills));
  live(["schedules", "occurrences", "runs"], () => void refresh().catch(() => null));
  return {
    title: schedule.name ?? id,
    actions: [actions],
    keys: {
      p: () => may("write") && void pauseOrResume(schedule).then((done) => done && refresh()),
      r: () => may("run") && void runNow(schedule),
      e: () => go(`/schedules/${part(id)}/edit`),
      ArrowLeft: () => pan(-1),
      ArrowRight: () => pan(1),
    },
    body: h(
      "div.stack",
      null,
      h(
        "section.card",
        null,
        h(
          "div.heading",
          null,
          h("h2", null, "Past and future"),
          segments("Zoom", ZOOMS, String(hours), (value) => {
            hours = Number(value);
            set({ hours: value });
            void showAxis();
          }),
          h(
            "div.buttons",
            null,
            button("‹", () => pan(-1), { title: "Earlier" }),
            button("Now", () => {
              middle = now();
              void showAxis();
            }),
            button("›", () => pan(1), { title: "Later" }),
          ),
        ),
        picture,
        legend(),
      ),
      about,
      card("The year", year),
      trends,
      backfills,
      h("div.columns", null, card("Occurrences", runs), card("Revisions", revisions)),
      h("details.card", null, h("summary", null, "As JSON"), code(schedule)),
    ),
  };
}

/** How far the axis reaches at first: some fires either way. @param {any} schedule */
function defaultHours(schedule) {
  const [first, second] = schedule.next_fire_times ?? [];
  const gap = first && second ? (Date.parse(second) - Date.parse(first)) / HOUR : 2;
  return Number((ZOOMS.find(([value]) => Number(value) >= gap * 12) ?? ZOOMS[ZOOMS.length - 1])[0]);
}

/** @param {any} paused */
function pausedText(paused) {
  return [paused.by && `by ${paused.by}`, paused.reason].filter(Boolean).join(": ");
}
