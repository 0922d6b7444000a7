// Now: what runs, what waits and why, what comes, and what needs attention.
import { cancel } from "../actions.js";
import { ROOT, get, part } from "../api.js";
import { axis } from "../axis.js";
import { h, replace } from "../dom.js";
import { legend, mark } from "../marks.js";
import { button, card, commandLine, copyButton, dollars, list, plural, said, segments } from "../parts.js";
import { HOUR, counting, duration, now, setClock, time, zoneFor } from "../times.js";
import { zoneOf, zonedText } from "../words.js";

const SPANS = /** @type {[string, string][]} */ ([
  ["2", "2 h"],
  ["12", "12 h"],
  ["48", "2 days"],
]);

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, may, live, set }) {
  let span = Number(query.get("hours")) || 12;
  const body = h("div.stack");

  async function read() {
    const at = now();
    const from = at - (span * HOUR) / 2,
      to = at + (span * HOUR) / 2;
    const [overview, workload, timeline] = await Promise.all([
      get("/overview", { timezone: zoneFor("UTC") }, signal),
      get("/workload", { limit: 10 }, signal),
      get(
        "/timeline",
        { from: new Date(from).toISOString(), to: new Date(to).toISOString(), limit: 12, max_marks: 120, buckets: 120 },
        signal,
      ),
    ]);
    setClock(overview.now_utc);
    replace(
      body,
      overview.schedules.total
        ? [
            figures(overview, workload),
            around(timeline, from, to),
            h("div.columns.even", null, running(workload), needsLook(overview.needs_look), upNext(workload)),
            nodeLine(overview.nodes),
          ]
        : first(may),
    );
  }

  /** @param {any} timeline @param {number} from @param {number} to */
  function around(timeline, from, to) {
    const zoom = segments("How far", SPANS, String(span), (value) => {
      span = Number(value);
      set({ hours: value });
      void read();
    });
    const busy = timeline.rows.filter((/** @type {any} */ row) => row.buckets?.length || row.marks?.length);
    return h(
      "section.card",
      null,
      h("div.heading", null, h("h2", null, "Around now"), zoom),
      axis({
        rows: busy.length ? busy : timeline.rows.slice(0, 3),
        from,
        to,
        bucketSeconds: timeline.bucket_seconds,
        label: "Schedules around now",
        zone: null,
      }),
      legend(),
      (timeline.next_cursor || busy.length < timeline.rows.length) &&
        h(
          "p.quiet",
          null,
          "More schedules: ",
          h("a", { href: "#/schedules" }, "all of them"),
          ", or ",
          h("a", { href: "#/calendar" }, "the calendar"),
          ".",
        ),
    );
  }

  /** @param {any} workload */
  function running({ running, runs, due, waiting }) {
    const progress = new Map(runs.map((/** @type {any} */ one) => [one.occurrence_id, one]));
    const rows = [
      ...running.occurrences.map((/** @type {any} */ one) => ({ one, state: "running" })),
      ...[...due.occurrences, ...waiting.occurrences].map((one) => ({ one, state: "queued" })),
    ];
    return card(
      [
        "Running",
        h("span.dim", null, ` ${running.count}${due.count + waiting.count ? `, ${due.count + waiting.count} queued` : ""}`),
      ],
      list(
        rows,
        ({ one, state }) => [
          mark(state),
          h(
            "span",
            null,
            one.schedule_name ?? one.schedule_id,
            h(
              "small",
              null,
              state === "running"
                ? progressText(one, progress.get(one.occurrence_id))
                : said(one.why ?? "due, waits for a free node"),
            ),
          ),
          h(
            "span.when",
            null,
            state === "running" ? counting(one.started_at_utc, { since: true }) : counting(one.due_at_utc, { since: true }),
          ),
        ],
        {
          action: ({ one }) =>
            may("run") &&
            button("Cancel", () => void cancel(one).then((done) => done && read()), {
              about: one.schedule_name ?? one.occurrence_id,
            }),
          href: ({ one }) => `#/occurrences/${part(one.occurrence_id)}`,
          empty: "Nothing runs, nothing waits.",
          label: "Running and queued",
        },
      ),
    );
  }

  live(["occurrences", "runs", "schedules", "nodes", "approvals"], () => void read().catch(() => null));
  await read();
  return { title: "Now", body, actions: [may("write") && h("a.button.primary", { href: "#/new" }, "New schedule")] };
}

/** @param {any} one @param {any} workload */
function figures(one, { running, due, waiting }) {
  const share =
    one.on_time_share === null || one.on_time_share === undefined
      ? null
      : `${(one.on_time_share * 100).toFixed(one.on_time_share === 1 ? 0 : 1)} % on time`;
  const { today_usd: spent = 0, limit_usd: limit, forecast_usd: forecast } = one.spend ?? {};
  const used = limit ? Math.min(1, spent / limit) : 0;
  return h(
    "section.figures",
    { "aria-label": "Today in figures" },
    figure(
      one.fires_today.toLocaleString("en"),
      "fires today",
      share && h(one.on_time_share >= 0.95 ? "em.good" : "em", null, share),
    ),
    figure(one.lateness_p99_seconds === null ? "–" : duration(one.lateness_p99_seconds * 1000), "p99 lateness, last hour"),
    h(
      "a.card.figure",
      { href: "#/failures", style: { "text-decoration": "none" } },
      h(one.failed_last_day ? "b.bad" : "b", null, one.failed_last_day.toLocaleString("en")),
      h("span", null, `failed in the last day`),
    ),
    figure(running.count.toLocaleString("en"), `running, ${(due.count + waiting.count).toLocaleString("en")} queued`),
    h(
      "a.card.figure",
      { href: "#/usage", style: { "text-decoration": "none" } },
      h("b", null, dollars(spent)),
      h("span", null, [limit ? `of ${dollars(limit)} today` : "spent today", forecast ? `, forecast ${dollars(forecast)}` : ""]),
      limit ? h("div.meter", { class: spent >= limit ? "over" : "" }, h("i", { style: { width: `${used * 100}%` } })) : null,
    ),
  );
}

/** @param {string} number @param {string} text @param {any} [side] */
function figure(number, text, side) {
  return h("div.card.figure", null, side, h("b", null, number), h("span", null, text));
}

/** @param {any} one @param {any} run */
function progressText(one, run) {
  const words = [];
  if (run?.progress)
    words.push([run.progress.message, `${Math.round(run.progress.fraction * 100)} %`].filter(Boolean).join(", "));
  if (one.attempt > 1) words.push(`attempt ${one.attempt}`);
  if (one.node) words.push(`on ${one.node}`);
  return words.join(" · ") || "running";
}

/** What needs attention and belongs to no schedule: what it is, and where it is dealt with. @type {Record<string, [string, string]>} */
const ELSEWHERE = {
  halt: ["Halted", "nodes"],
  no_node: ["No node", "nodes"],
  budget: ["A budget", "usage"],
  approval: ["Waits for approval", "approvals"],
  proposal: ["Proposed", "approvals"],
};

/** @param {any[]} items */
function needsLook(items) {
  const marks = /** @type {Record<string, string>} */ ({ failed: "failed", missed: "failed", late: "late", overdue: "late" });
  return card(
    "Needs attention",
    list(
      items,
      (one) => [
        mark(marks[one.kind] ?? "queued", one.kind.replace(/_/g, " ")),
        h(
          "span",
          null,
          one.schedule_name ?? one.schedule_id ?? ELSEWHERE[one.kind]?.[0] ?? one.kind,
          h("small", null, said(one.text)),
        ),
        h("span.when", null, one.at_utc ? time(one.at_utc) : ""),
      ],
      {
        href: (one) =>
          ELSEWHERE[one.kind]
            ? `#/${ELSEWHERE[one.kind][1]}`
            : one.occurrence_id
              ? `#/occurrences/${part(one.occurrence_id)}`
              : `#/schedules/${part(one.schedule_id)}`,
        empty: "Nothing needs attention.",
        label: "Needs attention",
      },
    ),
  );
}

/** @param {any} workload */
function upNext({ upcoming }) {
  return card(
    "Up next",
    list(
      upcoming.occurrences,
      (/** @type {any} */ one) => [
        mark("planned"),
        h(
          "span",
          null,
          one.schedule_name ?? one.schedule_id,
          h("small", null, time(one.due_at_utc, zoneOf(one.trigger_snapshot)), ` · ${zonedText(one.trigger_snapshot)}`),
        ),
        h("span.when", null, counting(one.due_at_utc)),
      ],
      { href: (one) => `#/schedules/${part(one.schedule_id)}`, empty: "Nothing is planned.", label: "Up next" },
    ),
    upcoming.occurrences.length ? h("p.quiet", null, h("a", { href: "#/calendar?by=agenda" }, "All fires of the day")) : null,
  );
}

/** @param {{live: number, leader: string | null}} nodes */
function nodeLine({ live, leader }) {
  return h(
    "p.quiet",
    null,
    live ? `${plural(live, "node")} up` : "No node is up: nothing runs",
    leader ? `, led by ${leader}. ` : ". ",
    h("a", { href: "#/nodes" }, "Nodes"),
  );
}

/** What an empty store shows: three ways to the first schedule. @param {(scope: string) => boolean} may */
function first(may) {
  const python =
    'from noonmark import Scheduler\n\nscheduler = Scheduler("sqlite:///noonmark.db")\n\n@scheduler.every(minutes=15)\ndef tick():\n    print("tick")';
  const cli = `noonmark schedule create --id tick --emit tick --cron "*/15 * * * *"`;
  const curl = `curl ${location.origin}${ROOT}/schedules -H 'Content-Type: application/json' -d '{"name": "tick", "trigger": {"type": "cron", "expression": "*/15 * * * *"}, "target": {"target_kind": "event", "event_type": "tick"}}'`;
  return h(
    "section.card",
    null,
    h("h2", null, "No schedule yet"),
    h("p", null, "Three ways to the first one, and a button."),
    h(
      "div.stack",
      null,
      h("h3", null, "Python ", copyButton(python)),
      h("pre", { tabindex: "0" }, python),
      h("h3", null, "Command line"),
      commandLine(cli),
      h("h3", null, "HTTP"),
      commandLine(curl),
      may("write") && h("div.buttons", null, h("a.button.primary", { href: "#/new" }, "New schedule")),
    ),
  );
}
