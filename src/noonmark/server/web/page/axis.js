// The axis: past and future of schedules on one line, with the line of now through it.
import { h, svg } from "./dom.js";
import { STATES, URGENT_FIRST, markText, shape, shapeOf } from "./marks.js";
import { DAY, HOUR, MINUTE, dayStart, format, fullText, local, now, zoneFor } from "./times.js";

/** @typedef {import("./marks.js").Mark} Mark */
/** @typedef {import("./marks.js").Counts} Counts */
/** @typedef {{from_utc: string} & Required<Counts>} Bucket */
/** @typedef {{schedule_id: string | null, name: string | null, timezone?: string | null, phase?: string, marks: Mark[] | null, buckets: Bucket[] | null}} Row */

/** Where pictures that are wider than the screen were scrolled to: one that is drawn again stays there. @type {Map<string, number>} */
const scrolled = new Map();
const ROW = 32,
  TOP = 24,
  BOTTOM = 22,
  EDGE = 8;
/** Distances of labels, and how a label of that distance reads. */
const STEPS = [
  [MINUTE, "t"],
  [5 * MINUTE, "t"],
  [15 * MINUTE, "t"],
  [HOUR, "t"],
  [2 * HOUR, "t"],
  [3 * HOUR, "t"],
  [6 * HOUR, "t"],
  [12 * HOUR, "t"],
  [DAY, "d"],
  [2 * DAY, "d"],
  [7 * DAY, "d"],
  [14 * DAY, "d"],
  [31 * DAY, "m"],
  [92 * DAY, "m"],
];

/**
 * A picture of rows over time. It draws itself again when its width changes.
 * @param {{rows: Row[], from: number, to: number, bucketSeconds: number, label: string, named?: boolean, zone?: string | null, edges?: {at: number, text: string}[]}} data
 * `zone`: that of the one schedule shown, if it is one; `edges`: where its clock changes
 */
export function axis(data) {
  const height = TOP + Math.max(1, data.rows.length) * ROW + BOTTOM;
  const key = `${data.label} ${data.to - data.from}`;
  const box = h("div.axis-scroll", {
    tabindex: "0",
    role: "group",
    "aria-label": data.label,
    onscroll: () => scrolled.set(key, box.scrollLeft),
  });
  const picture = h(
    "div.axis",
    { class: data.named === false ? "unnamed" : "" },
    data.named !== false &&
      h(
        "div.axis-names",
        { style: { "padding-top": `${TOP}px` } },
        data.rows.map((row) =>
          row.schedule_id
            ? h(
                "a",
                { href: `#/schedules/${encodeURIComponent(row.schedule_id)}`, title: row.name ?? row.schedule_id },
                row.name ?? row.schedule_id,
              )
            : h("span", null, row.name ?? ""),
        ),
      ),
    box,
  );
  let drawn = 0;
  const draw = () => {
    const width = Math.max(box.clientWidth, 560);
    if (!box.isConnected || width === drawn) return;
    drawn = width;
    box.replaceChildren(drawing(data, width, height));
    const past = (now() - data.from) / (data.to - data.from);
    if (width > box.clientWidth) box.scrollLeft = scrolled.get(key) ?? width * past - box.clientWidth * 0.6;
  };
  box.style.setProperty("height", `${height}px`);
  new ResizeObserver(draw).observe(box);
  return picture;
}

/**
 * @param {{rows: Row[], from: number, to: number, bucketSeconds: number, label: string, zone?: string | null, edges?: {at: number, text: string}[]}} data
 * @param {number} width
 * @param {number} height
 */
function drawing({ rows, from, to, bucketSeconds, label, zone, edges = [] }, width, height) {
  const inner = width - 2 * EDGE;
  /** @param {number} at */
  const place = (at) => EDGE + inner * Math.min(1, Math.max(0, (at - from) / (to - from)));
  const shown = zoneFor(zone ?? "UTC");
  const here = now();
  const parts = ticks(from, to, width, shown).map(({ at, text }) => {
    const x = place(at);
    return [
      svg("path.grid", { d: `M${x} ${TOP - 4}V${height - BOTTOM}` }),
      svg("text", { x: Math.min(Math.max(x, 20), width - 20), y: height - 6, "text-anchor": "middle" }, text),
    ];
  });
  for (const { at, text } of edges)
    if (from <= at && at <= to)
      parts.push([
        svg(
          "g.edge",
          null,
          svg("path", { d: `M${place(at)} ${TOP - 4}V${height - BOTTOM}` }),
          svg("circle", { cx: place(at), cy: TOP - 6, r: 2.5 }),
          svg("title", null, text),
        ),
      ]);
  rows.forEach((row, index) => {
    const y = TOP + index * ROW + ROW / 2;
    parts.push([svg("path.lane", { d: `M${EDGE} ${y}H${width - EDGE}` })]);
    parts.push(
      row.marks ? row.marks.map((one) => markShape(one, row, y, place, here)) : densities(row, y, place, bucketSeconds * 1000),
    );
  });
  if (from <= here && here <= to)
    parts.push([noonLine(place(here), height, format(here, shown, { hour: "2-digit", minute: "2-digit" }), width)]);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label }, parts);
}

/**
 * @param {Mark} one
 * @param {Row} row
 * @param {number} y
 * @param {(at: number) => number} place
 * @param {number} here
 */
function markShape(one, row, y, place, here) {
  const kind = shapeOf(one);
  const began = Date.parse(one.started_at_utc ?? one.at_utc);
  const isBar = kind === "completed" || kind === "running";
  const x = place(isBar ? began : Date.parse(one.at_utc));
  const end = one.ended_at_utc ? Date.parse(one.ended_at_utc) : here;
  const drawn = shape(kind, x, y, isBar ? Math.max(3, place(end) - x) : undefined);
  drawn.append(svg("title", null, markText({ ...one, schedule_name: one.schedule_name ?? row.name }, row.timezone)));
  if (one.origin === "backfill") drawn.classList.add("is-backfill");
  return one.occurrence_id
    ? svg(
        "a",
        {
          href: `#/occurrences/${encodeURIComponent(one.occurrence_id)}`,
          "aria-label": markText(one, row.timezone),
          tabindex: "-1",
        },
        drawn,
      )
    : drawn;
}

/**
 * What is too dense for marks: bars whose height is the count, failures on top.
 * @param {Row} row
 * @param {number} y
 * @param {(at: number) => number} place
 * @param {number} length
 */
function densities(row, y, place, length) {
  const buckets = row.buckets ?? [];
  const most = Math.max(1, ...buckets.map(total));
  return buckets.map((one) => {
    const at = Date.parse(one.from_utc),
      x = place(at),
      width = Math.max(1, place(at + length) - x - 0.5);
    let top = y + ROW / 2 - 4;
    const bars = URGENT_FIRST.toReversed()
      .filter((state) => one[state])
      .map((state) => {
        const tall = Math.max(2, ((ROW - 10) * one[state]) / most);
        top -= tall;
        return svg(`rect.f-${state}`, { x, y: top, width, height: tall });
      });
    return svg("g", null, bars, svg("title", null, `${fullText(at, zoneFor(row.timezone))}\n${counts(one)}`));
  });
}

/** @param {Counts} one */
export function total(one) {
  return STATES.reduce((sum, state) => sum + (one[state] ?? 0), 0);
}

/**
 * The counts in words, in the order of the legend.
 * @param {Counts} one
 */
export function counts(one) {
  return (
    STATES.filter((state) => one[state])
      .map((state) => `${one[state]} ${state}`)
      .join(", ") || "nothing"
  );
}

/**
 * The line of now, with its time on top.
 * @param {number} x
 * @param {number} height
 * @param {string} text
 * @param {number} width
 */
function noonLine(x, height, text, width) {
  const middle = Math.min(Math.max(x, 24), width - 24);
  return svg(
    "g.noon",
    { "aria-hidden": "true" },
    svg("path", { d: `M${x} 10V${height - BOTTOM}` }),
    svg("rect", { x: middle - 23, y: 1, width: 46, height: 17, rx: 8.5 }),
    svg("text", { x: middle, y: 13.5, "text-anchor": "middle" }, text),
  );
}

/**
 * Where labels stand: few, at round local times.
 * @param {number} from
 * @param {number} to
 * @param {number} width
 * @param {string} zone
 */
function ticks(from, to, width, zone) {
  const wanted = (to - from) / Math.max(2, Math.floor(width / 84));
  const [step, kind] = /** @type {[number, string]} */ (
    STEPS.find(([one]) => /** @type {number} */ (one) >= wanted) ?? STEPS[STEPS.length - 1]
  );
  const out = [];
  if (kind === "t") {
    const first = dayStart(from, zone);
    for (let at = first + Math.ceil((from - first) / step) * step; at <= to; at += step) {
      const { hour, minute } = local(at, zone);
      out.push({
        at,
        text:
          hour === 0 && minute === 0
            ? format(at, zone, { weekday: "short", day: "numeric" })
            : format(at, zone, { hour: "2-digit", minute: "2-digit" }),
      });
    }
  } else if (kind === "d") {
    for (let at = dayStart(from, zone); at <= to; at = dayStart(at + DAY / 2 + (step - DAY), zone, 1))
      if (at >= from) out.push({ at, text: format(at, zone, { day: "numeric", month: "short" }) });
  } else {
    const months = step > 40 * DAY ? 3 : 1;
    for (let at = from; at <= to; at += DAY) {
      const { day, month } = local(at, zone);
      if (day === 1 && (month - 1) % months === 0)
        out.push({ at: dayStart(at, zone), text: format(at, zone, { month: "short" }) });
    }
  }
  return out;
}
