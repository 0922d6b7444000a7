// Small exact charts: the heat map of a year, and bars with a line over time.
import { h, svg } from "./dom.js";
import { counts } from "./axis.js";

/** @typedef {{from_utc: string, local_date: string, completed: number, late: number, failed: number, skipped: number, planned: number, duration_p50_seconds: number | null, duration_p95_seconds: number | null, cost_usd: number | null}} Trend */

/**
 * A year of days, a column each week: how much ran, and where something failed.
 * @param {Trend[]} days
 * @param {string} today its local date
 */
export function heatMap(days, today) {
  const byDate = new Map(days.map((one) => [one.local_date, one]));
  const end = Date.parse(`${today}T00:00:00Z`),
    size = 13;
  const start = end - (364 + ((new Date(end).getUTCDay() + 6) % 7)) * 86_400_000;
  const most = Math.max(1, ...days.map(ran));
  const cells = [],
    labels = [];
  let month = -1;
  for (let at = start, index = 0; at <= end; at += 86_400_000, index++) {
    const day = new Date(at),
      text = day.toISOString().slice(0, 10),
      one = byDate.get(text);
    const x = Math.floor(index / 7) * size,
      y = 16 + (index % 7) * size;
    const kind = !one || !(ran(one) + one.skipped) ? "none" : one.failed ? "failed" : ran(one) ? "completed" : "skipped";
    const share = one && kind !== "none" ? 0.3 + (0.7 * ran(one)) / most : 1;
    cells.push(
      svg(
        `rect.h-${kind}`,
        { x, y, width: size - 2, height: size - 2, rx: 2, "fill-opacity": share.toFixed(2) },
        svg("title", null, `${text}: ${one ? counts(one) : "nothing"}`),
      ),
    );
    if (one?.failed) cells.push(svg("path.h-cross", { d: `M${x + 3} ${y + 3}l5 5m0-5l-5 5` }));
    if (day.getUTCMonth() !== month && day.getUTCDate() <= 7) {
      month = day.getUTCMonth();
      labels.push(svg("text", { x, y: 10 }, day.toLocaleString("en", { month: "short", timeZone: "UTC" })));
    }
  }
  const width = 53 * size + size,
    sum = days.reduce((all, one) => all + ran(one), 0),
    failed = days.reduce((all, one) => all + one.failed, 0);
  const box = h(
    "div.axis-scroll.chart",
    { tabindex: "0", role: "group", "aria-label": `A year: ${sum} ran, ${failed} failed` },
    svg(
      "svg.year",
      { width, height: 16 + 7 * size, role: "img", "aria-label": `A year: ${sum} ran, ${failed} failed` },
      labels,
      cells,
    ),
  );
  return fromEnd(box);
}

/** On a phone, what is newest comes first. @param {HTMLElement} box */
function fromEnd(box) {
  requestAnimationFrame(() => (box.scrollLeft = box.scrollWidth));
  return box;
}

/** @param {Trend} one */
function ran(one) {
  return one.completed + one.late + one.failed;
}

/**
 * Bars over time, and perhaps a second value as a line of dots.
 * @param {{title: string, label: string}[]} points
 * @param {(number | null)[]} values
 * @param {{text: (value: number) => string, over?: (number | null)[], name: string}} options
 */
export function bars(points, values, { text, over, name }) {
  const width = 560,
    height = 120,
    top = 14,
    floor = height - 18;
  const most = Math.max(...values.map((one) => one ?? 0), ...(over ?? []).map((one) => one ?? 0)) || 1;
  const step = (width - 52) / Math.max(1, points.length);
  /** @param {number} value */
  const place = (value) => floor - ((floor - top) * value) / most;
  return fromEnd(
    h(
      "div.chart",
      { tabindex: "0", role: "group", "aria-label": name },
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": name },
        svg("path.grid", { d: `M0 ${floor}H${width - 48}M0 ${top}H${width - 48}` }),
        svg("text", { x: width - 44, y: top + 4 }, text(most)),
        svg("text", { x: width - 44, y: floor + 4 }, text(0)),
        points.map((point, index) => {
          const value = values[index],
            x = index * step,
            second = over?.[index];
          return svg(
            "g",
            null,
            svg("title", null, point.title),
            value !== null &&
              value > 0 &&
              svg("rect.bar", {
                x: x + step * 0.12,
                y: place(value),
                width: Math.max(1, step * 0.76),
                height: Math.max(1, floor - place(value)),
                rx: Math.min(2, step / 4),
              }),
            second !== null && second !== undefined && svg("circle.dot", { cx: x + step / 2, cy: place(second), r: 2 }),
            svg("rect.hit", { x, y: 0, width: step, height: floor }),
          );
        }),
        points
          .filter((_, index) => index % Math.ceil(points.length / 6) === 0)
          .map((point) => svg("text", { x: points.indexOf(point) * step, y: height - 4 }, point.label)),
      ),
    ),
  );
}
