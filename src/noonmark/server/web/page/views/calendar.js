// Calendar: all schedules by day, week and month, and as an agenda; past outcomes and future fires in one picture.
import { get, part } from "../api.js";
import { axis, counts, total } from "../axis.js";
import { h, replace, svg } from "../dom.js";
import { STATES, URGENT_FIRST, legend, mark, markText, shapeOf } from "../marks.js";
import { button, list, segments } from "../parts.js";
import { DAY, HOUR, counting, dayStart, duration, format, fromLocal, local, now, time, zoneFor } from "../times.js";

/** @typedef {import("../marks.js").Mark} Mark */

const VIEWS = /** @type {[string, string][]} */ ([
  ["day", "Day"],
  ["week", "Week"],
  ["month", "Month"],
  ["agenda", "Agenda"],
]);
const HOUR_HEIGHT = 44;
const MOST = 2000;

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, live, set, go }) {
  let shown = query.get("by") ?? "week";
  const zone = zoneFor("UTC");
  let at = query.get("date") ? instantOf(/** @type {string} */ (query.get("date")), zone) : dayStart(now(), zone);
  const picture = h("div"),
    title = h("h2", { "aria-live": "polite" });

  async function read() {
    const { from, to } = range(shown, at, zone);
    replace(title, heading(shown, from, to, zone));
    const filters = { label: query.get("label"), text: query.get("text") };
    if (shown === "day") {
      const timeline = await ask(from, to, { by: "schedule", limit: 60, max_marks: 150, buckets: 96, ...filters });
      replace(
        picture,
        timeline.rows.some((/** @type {any} */ row) => row.marks?.length || row.buckets?.length)
          ? [
              axis({
                rows: timeline.rows.filter((/** @type {any} */ row) => row.marks?.length || row.buckets?.length),
                from,
                to,
                bucketSeconds: timeline.bucket_seconds,
                label: `All schedules on ${heading("day", from, to, zone)}`,
              }),
              timeline.next_cursor && h("p.quiet", null, "Only the first 60 schedules are drawn; a filter shows others."),
            ]
          : nothing(),
        foot(timeline),
      );
    } else if (shown === "agenda") {
      replace(picture, await agenda(from, to, filters));
    } else {
      const hours = Math.round((to - from) / HOUR);
      const timeline = await ask(from, to, {
        by: "all",
        max_marks: shown === "week" ? 400 : MOST,
        buckets: Math.ceil(hours / Math.ceil(hours / 1000)),
        ...filters,
      });
      const row = timeline.rows[0] ?? { marks: [], buckets: null };
      replace(
        picture,
        shown === "week"
          ? row.marks
            ? week(row.marks, from, zone)
            : heat(row.buckets ?? [], from, zone)
          : month(row, at, from, to),
        foot(timeline),
      );
    }
  }

  /** @param {number} from @param {number} to @param {Record<string, any>} rest */
  const ask = (from, to, rest) =>
    get("/timeline", { from: new Date(from).toISOString(), to: new Date(to).toISOString(), ...rest }, signal);

  /** @param {any} row @param {number} day @param {number} from @param {number} to */
  function month(row, day, from, to) {
    /** @type {number[]} */
    const days = [];
    for (let start = from; start < to; start = dayStart(start + 36 * HOUR, zone)) days.push(start);
    const wanted = local(day, zone).month,
      today = dayStart(now(), zone);
    return h(
      "div.month",
      null,
      ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map((one) => h("b", { "aria-hidden": "true" }, one)),
      days.map((start, index) => {
        const end = days[index + 1] ?? to;
        const sums = /** @type {Record<string, number>} */ ({});
        /** @type {Map<string, number>} */
        const names = new Map();
        for (const one of row.marks ?? []) {
          const when = Date.parse(one.at_utc);
          if (when < start || when >= end) continue;
          sums[shapeOf(one)] = (sums[shapeOf(one)] ?? 0) + 1;
          names.set(one.schedule_name ?? one.schedule_id ?? "", (names.get(one.schedule_name ?? one.schedule_id ?? "") ?? 0) + 1);
        }
        for (const one of row.buckets ?? []) {
          const when = Date.parse(one.from_utc);
          if (when >= start && when < end)
            for (const state of STATES) if (one[state]) sums[state] = (sums[state] ?? 0) + one[state];
        }
        const { day: number, month: ofMonth } = local(start, zone);
        return h(
          "a.cell",
          {
            href: `#/calendar?by=day&date=${dateText(start, zone)}`,
            class: [ofMonth === wanted ? "" : "other", start === today ? "today" : ""].join(" "),
            title: counts(sums),
            "aria-label": `${format(start, zone, { weekday: "long", day: "numeric", month: "long" })}: ${counts(sums)}`,
          },
          h("span.number", null, String(number)),
          h(
            "span.sums",
            null,
            URGENT_FIRST.filter((state) => sums[state]).map((state) =>
              h("span", null, mark(state), sums[state].toLocaleString("en")),
            ),
          ),
          [...names].slice(0, 3).map(([name, count]) => h("small", null, count > 1 ? `${name} × ${count}` : name)),
          names.size > 3 && h("small", null, `and ${names.size - 3} more`),
        );
      }),
    );
  }

  /** @param {number} from @param {number} to @param {Record<string, any>} filters */
  async function agenda(from, to, filters) {
    let end = to;
    let timeline = await ask(from, end, { by: "all", max_marks: 500, buckets: 1, ...filters });
    while (!timeline.rows[0]?.marks && timeline.rows.length && end - from > HOUR) {
      end = from + (end - from) / 4; // too many for a list: show the next part of it
      timeline = await ask(from, end, { by: "all", max_marks: 500, buckets: 1, ...filters });
    }
    /** @type {Mark[]} */
    const marks = [...(timeline.rows[0]?.marks ?? [])].sort((one, other) => Date.parse(one.at_utc) - Date.parse(other.at_utc));
    if (!marks.length) return nothing();
    /** @type {Map<number, Mark[]>} */
    const days = new Map();
    for (const one of marks) {
      const day = dayStart(Date.parse(one.at_utc), zone);
      days.set(day, [...(days.get(day) ?? []), one]);
    }
    return [
      end < to &&
        h(
          "p.quiet",
          null,
          `There is much to show: this is ${format(from, zone, { weekday: "short", hour: "2-digit", minute: "2-digit" })} to ${format(end, zone, { weekday: "short", hour: "2-digit", minute: "2-digit" })}. Use the arrows, or a filter.`,
        ),
      [...days].map(([day, ones]) => {
        const past = ones.filter((one) => Date.parse(one.at_utc) <= now()),
          coming = ones.filter((one) => !past.includes(one));
        return h(
          "section",
          null,
          h("h3", null, format(day, zone, { weekday: "long", day: "numeric", month: "long" })),
          past.length ? agendaList(past) : null,
          past.length && coming.length
            ? h("p.noon-between", null, format(now(), zone, { hour: "2-digit", minute: "2-digit" }))
            : null,
          coming.length ? agendaList(coming) : null,
        );
      }),
    ];
  }

  /** @param {number} steps */
  function move(steps) {
    const { year, month: number } = local(at, zone);
    at =
      shown === "month"
        ? fromLocal(year, number + steps, 1, zone)
        : dayStart(at + 12 * HOUR, zone, steps * (shown === "week" || shown === "agenda" ? 7 : 1));
    set({ date: dateText(at, zone) });
    void read();
  }

  live(["occurrences", "schedules"], () => void read().catch(() => null));
  await read();
  /** @param {string} name @param {string} label */
  const typed = (name, label) =>
    h("input", {
      "aria-label": label,
      placeholder: label,
      size: 14,
      value: query.get(name) ?? "",
      onchange: (/** @type {any} */ event) => {
        set({ [name]: event.target.value.trim() });
        void read();
      },
    });
  return {
    title: "Calendar",
    keys: { ArrowLeft: () => move(-1), ArrowRight: () => move(1), t: () => go("/calendar") },
    actions: [
      segments("Calendar by", VIEWS, shown, (value) => {
        shown = value;
        set({ by: value });
        void read();
      }),
    ],
    body: h(
      "section.card",
      null,
      h(
        "div.heading",
        null,
        title,
        typed("text", "find"),
        typed("label", "label=value"),
        h(
          "div.buttons",
          null,
          button("‹", () => move(-1), { title: "Earlier" }),
          button("Today", () => {
            at = dayStart(now(), zone);
            set({ date: null });
            void read();
          }),
          button("›", () => move(1), { title: "Later" }),
        ),
      ),
      picture,
      legend(),
    ),
  };
}

/** @param {Mark[]} marks */
function agendaList(marks) {
  return list(
    marks,
    (one) => [
      mark(shapeOf(one), one.state),
      h(
        "span",
        null,
        one.schedule_name ?? one.schedule_id,
        h(
          "small",
          null,
          one.why ??
            (one.state === "planned"
              ? counting(one.at_utc)
              : one.started_at_utc && one.ended_at_utc
                ? `${one.state} in ${duration(Date.parse(one.ended_at_utc) - Date.parse(one.started_at_utc))}`
                : one.state),
          one.origin === "backfill" ? " · backfill" : "",
        ),
      ),
      h("span.when", null, time(one.at_utc)),
    ],
    {
      href: (one) =>
        one.occurrence_id ? `#/occurrences/${part(one.occurrence_id)}` : `#/schedules/${part(one.schedule_id ?? "")}`,
      label: "Agenda",
    },
  );
}

/** @param {string} shown @param {number} at @param {string} zone */
function range(shown, at, zone) {
  if (shown === "day") return { from: dayStart(at, zone), to: dayStart(at, zone, 1) };
  if (shown === "agenda") return { from: dayStart(at, zone), to: dayStart(at, zone, 7) };
  const weekday = (/** @type {number} */ instant) => (new Date(Date.UTC(...date(instant, zone))).getUTCDay() + 6) % 7;
  if (shown === "week") return { from: dayStart(at, zone, -weekday(at)), to: dayStart(at, zone, 7 - weekday(at)) };
  const { year, month } = local(at, zone);
  const first = fromLocal(year, month, 1, zone),
    last = fromLocal(year, month + 1, 0, zone);
  return { from: dayStart(first, zone, -weekday(first)), to: dayStart(last, zone, 7 - weekday(last)) };
}

/** @param {number} instant @param {string} zone @returns {[number, number, number]} */
function date(instant, zone) {
  const { year, month, day } = local(instant, zone);
  return [year, month - 1, day];
}

/** @param {number} instant @param {string} zone */
function dateText(instant, zone) {
  const { year, month, day } = local(instant, zone);
  return `${year}-${String(month).padStart(2, "0")}-${String(day).padStart(2, "0")}`;
}

/** @param {string} text @param {string} zone */
function instantOf(text, zone) {
  const [year, month, day] = text.split("-").map(Number);
  return year && month && day ? fromLocal(year, month, day, zone) : dayStart(now(), zone);
}

/** @param {string} shown @param {number} from @param {number} to @param {string} zone */
function heading(shown, from, to, zone) {
  if (shown === "day")
    return `${format(from, zone, { weekday: "long", day: "numeric", month: "long", year: "numeric" })}, ${zone}`;
  if (shown === "month") return `${format((from + to) / 2, zone, { month: "long", year: "numeric" })}, ${zone}`;
  return `${format(from, zone, { day: "numeric", month: "short" })} – ${format(to - HOUR, zone, { day: "numeric", month: "short", year: "numeric" })}, ${zone}`;
}

/** The week with its hours: what overlaps stands side by side. @param {Mark[]} marks @param {number} from @param {string} zone */
function week(marks, from, zone) {
  const days = Array.from({ length: 7 }, (_, index) => dayStart(from + 12 * HOUR, zone, index));
  const here = now();
  const box = h(
    "div.week",
    { tabindex: "0", role: "group", "aria-label": "Week by hours" },
    h(
      "div.hours",
      { "aria-hidden": "true" },
      Array.from({ length: 24 }, (_, hour) =>
        h("span", { style: { top: `${28 + hour * HOUR_HEIGHT}px` } }, hour ? `${String(hour).padStart(2, "0")}:00` : ""),
      ),
    ),
    days.map((start) => {
      const end = dayStart(start + 12 * HOUR, zone, 1);
      const blocks = marks
        .filter((one) => Date.parse(one.at_utc) >= start && Date.parse(one.at_utc) < end)
        .map((one) => {
          const { hour, minute } = local(Date.parse(one.at_utc), zone);
          const top = (hour + minute / 60) * HOUR_HEIGHT;
          const length = one.started_at_utc
            ? (one.ended_at_utc ? Date.parse(one.ended_at_utc) : here) - Date.parse(one.started_at_utc)
            : 0;
          return {
            one,
            top,
            bottom: Math.min(24 * HOUR_HEIGHT, top + Math.max(18, (length / HOUR) * HOUR_HEIGHT)),
            lane: 0,
            lanes: 1,
          };
        })
        .sort((a, b) => a.top - b.top);
      pack(blocks);
      const isToday = here >= start && here < end;
      const clock = local(here, zone);
      return h(
        "div.day",
        { class: isToday ? "today" : "" },
        h(
          "a.head",
          { href: `#/calendar?by=day&date=${dateText(start, zone)}` },
          format(start, zone, { weekday: "short", day: "numeric" }),
        ),
        h(
          "div.body",
          { style: { height: `${24 * HOUR_HEIGHT}px` } },
          blocks.map(({ one, top, bottom, lane, lanes }) =>
            h(
              "a.block",
              {
                href: one.occurrence_id
                  ? `#/occurrences/${part(one.occurrence_id)}`
                  : `#/schedules/${part(one.schedule_id ?? "")}`,
                title: markText(one),
                class: `b-${shapeOf(one)}${one.origin === "backfill" ? " backfill" : ""}`,
                style: {
                  top: `${top}px`,
                  height: `${bottom - top}px`,
                  left: `${(lane / lanes) * 100}%`,
                  width: `${100 / lanes}%`,
                },
              },
              mark(shapeOf(one), one.state),
              h("span", null, one.schedule_name ?? one.schedule_id),
            ),
          ),
          isToday && h("div.noon-across", { style: { top: `${(clock.hour + clock.minute / 60) * HOUR_HEIGHT}px` } }),
        ),
      );
    }),
  );
  requestAnimationFrame(() => (box.scrollTop = Math.max(0, local(here, zone).hour - 3) * HOUR_HEIGHT));
  return box;
}

/** Put blocks that overlap side by side. @param {{top: number, bottom: number, lane: number, lanes: number}[]} blocks */
function pack(blocks) {
  /** @type {typeof blocks} */
  let group = [];
  let reach = -1;
  const close = () => {
    const lanes = Math.max(1, ...group.map((one) => one.lane + 1));
    for (const one of group) one.lanes = lanes;
    group = [];
  };
  for (const one of blocks) {
    if (one.top >= reach) close();
    const taken = new Set(group.filter((other) => other.bottom > one.top).map((other) => other.lane));
    while (taken.has(one.lane)) one.lane++;
    group.push(one);
    reach = Math.max(reach, one.bottom);
  }
  close();
}

/** A week that is too dense for blocks: its hours as a heat map. @param {any[]} buckets @param {number} from @param {string} zone */
function heat(buckets, from, zone) {
  const most = Math.max(1, ...buckets.map(total));
  const cells = buckets.map((one) => {
    const at = Date.parse(one.from_utc),
      { hour } = local(at, zone);
    const day = Math.round((dayStart(at, zone) - from) / DAY);
    return { one, day, hour };
  });
  const width = 34,
    height = 30,
    left = 44,
    top = 22;
  const here = local(now(), zone),
    today = Math.round((dayStart(now(), zone) - from) / DAY);
  return h(
    "div.axis-scroll",
    { tabindex: "0", role: "group", "aria-label": "Fires by hour of the week" },
    svg(
      "svg.heat",
      { viewBox: `0 0 ${left + 24 * width} ${top + 7 * height + 4}`, role: "img", "aria-label": "Fires by hour of the week" },
      Array.from(
        { length: 24 },
        (_, hour) => hour % 3 === 0 && svg("text", { x: left + hour * width, y: 12 }, `${String(hour).padStart(2, "0")}:00`),
      ),
      Array.from({ length: 7 }, (_, day) =>
        svg(
          "text",
          { x: 0, y: top + day * height + 19 },
          format(from + day * DAY + 12 * HOUR, zone, { weekday: "short", day: "numeric" }),
        ),
      ),
      cells.map(({ one, day, hour }) =>
        svg(
          "g",
          null,
          svg(
            "title",
            null,
            `${format(Date.parse(one.from_utc), zone, { weekday: "short", hour: "2-digit", minute: "2-digit" })}: ${counts(one)}`,
          ),
          svg(`rect.${one.failed ? "f-failed" : one.completed || one.late || one.running ? "f-completed" : "f-none"}`, {
            x: left + hour * width,
            y: top + day * height,
            width: width - 3,
            height: height - 3,
            rx: 3,
            "fill-opacity": (
              (one.failed || one.completed || one.late || one.running ? 0.15 : 0.08) +
              ((one.failed || one.completed || one.late || one.running ? 0.6 : 0.27) * total(one)) / most
            ).toFixed(2),
          }),
          svg(
            "text.number",
            { x: left + hour * width + (width - 3) / 2, y: top + day * height + 18, "text-anchor": "middle" },
            String(total(one)),
          ),
        ),
      ),
      today >= 0 &&
        today < 7 &&
        svg(
          "g.noon",
          null,
          svg("path", { d: `M${left + (here.hour + here.minute / 60) * width} ${top + today * height - 2}v${height + 1}` }),
        ),
    ),
  );
}

function nothing() {
  return h("p.quiet", null, "Nothing fires in this time.");
}

/** @param {any} timeline */
function foot(timeline) {
  return (
    timeline.planned_until_utc &&
    h("p.quiet", null, "Later fires were too many to compute; they are shown up to ", time(timeline.planned_until_utc), ".")
  );
}
