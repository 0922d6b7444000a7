// Times: always with their zone. One switch for the whole page: UTC, the viewer's zone, or the schedule's.
import { h } from "./dom.js";

/** @typedef {"utc" | "mine" | "schedule"} ZoneChoice */

const MINE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const MINUTE = 60_000,
  HOUR = 3_600_000,
  DAY = 86_400_000;
/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();
let choice = /** @type {ZoneChoice} */ (localStorage.getItem("noonmark.zone") ?? "mine");
/** What the server's clock is ahead of ours. */
let ahead = 0;

/** @param {string} serverNow */
export function setClock(serverNow) {
  ahead = Date.parse(serverNow) - Date.now();
}

/** The server's time, in milliseconds. */
export function now() {
  return Date.now() + ahead;
}

export function zoneChoice() {
  return choice;
}

/** @param {ZoneChoice} next */
export function chooseZone(next) {
  choice = next;
  localStorage.setItem("noonmark.zone", next);
  document.dispatchEvent(new Event("zone-changed"));
}

/**
 * The zone to show a time in.
 * @param {string | null} [ofSchedule]
 */
export function zoneFor(ofSchedule) {
  if (choice === "utc") return "UTC";
  return choice === "schedule" ? ofSchedule || "UTC" : MINE;
}

/**
 * @param {number | string} instant
 * @param {string} zone
 * @param {Intl.DateTimeFormatOptions} options
 */
export function format(instant, zone, options) {
  const key = zone + JSON.stringify(options);
  let found = formats.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options });
    formats.set(key, found);
  }
  return found.format(typeof instant === "string" ? Date.parse(instant) : instant);
}

/**
 * The parts of a local time, as numbers.
 * @param {number} instant
 * @param {string} zone
 */
export function local(instant, zone) {
  const text = format(instant, zone, {
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
  const [day, month, year, hour, minute, second] = /** @type {string[]} */ (text.match(/\d+/g)).map(Number);
  return { year, month, day, hour, minute, second };
}

/**
 * The instant at which a local day begins in a zone, `days` after the day of `instant`.
 * @param {number} instant
 * @param {string} zone
 * @param {number} [days]
 */
export function dayStart(instant, zone, days = 0) {
  const { year, month, day } = local(instant, zone);
  return fromLocal(year, month, day + days, zone);
}

/**
 * The instant of midnight on a local date; months and days may be out of range.
 * @param {number} year
 * @param {number} month
 * @param {number} day
 * @param {string} zone
 */
export function fromLocal(year, month, day, zone) {
  const wanted = Date.UTC(year, month - 1, day);
  let found = wanted;
  for (let turn = 0; turn < 3; turn++) {
    const at = local(found, zone);
    const off = Date.UTC(at.year, at.month - 1, at.day, at.hour, at.minute, at.second) - wanted;
    if (!off) break;
    found -= off;
  }
  return found;
}

/**
 * Short: the time today, the day and the time otherwise.
 * @param {number | string} instant
 * @param {string} zone
 */
function shortText(instant, zone) {
  const at = typeof instant === "string" ? Date.parse(instant) : instant;
  const gap = Math.abs(at - now());
  const time = format(at, zone, { hour: "2-digit", minute: "2-digit", ...(gap < HOUR && { second: "2-digit" }) });
  const isToday = format(at, zone, { dateStyle: "short" }) === format(now(), zone, { dateStyle: "short" });
  if (isToday) return time;
  if (gap < 6 * DAY) return `${format(at, zone, { weekday: "short" })} ${time}`;
  const year =
    format(at, zone, { year: "numeric" }) === format(now(), zone, { year: "numeric" })
      ? {}
      : { year: /** @type {const} */ ("numeric") };
  return `${format(at, zone, { day: "numeric", month: "short", ...year })}, ${time}`;
}

/**
 * Everything: date, time, offset and zone.
 * @param {number | string} instant
 * @param {string} zone
 */
export function fullText(instant, zone) {
  const text = format(instant, zone, {
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "longOffset",
  });
  return `${text.replace("GMT", "UTC")} ${zone === "UTC" ? "" : zone}`.trim();
}

/**
 * How the fires of one list are written: the day and the time, with seconds where one of them has some.
 * @param {(number | string)[]} instants
 * @returns {(instant: number | string, zone: string) => string}
 */
export function fireFormat(instants) {
  const hasSeconds = instants.some((one) => (typeof one === "string" ? Date.parse(one) : one) % MINUTE);
  return (instant, zone) =>
    format(instant, zone, {
      weekday: "short",
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
      ...(hasSeconds && { second: "2-digit" }),
    });
}

/**
 * A duration: "7 ms", "41 s", "3 m 12 s", "2 h 5 m", "4 d 2 h".
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  const ms = Math.max(0, milliseconds);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (ms < HOUR) return joined(Math.floor(seconds / 60), "m", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (ms < DAY) return joined(Math.floor(minutes / 60), "h", minutes % 60, "m");
  const hours = Math.round(minutes / 60);
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** @param {number} big @param {string} unit @param {number} small @param {string} smallUnit */
function joined(big, unit, small, smallUnit) {
  return small ? `${big} ${unit} ${small} ${smallUnit}` : `${big} ${unit}`;
}

/**
 * "in 2 m 10 s" or "41 s ago"; whole seconds, because it counts.
 * @param {number | string} instant
 */
function relativeText(instant) {
  const gap = (typeof instant === "string" ? Date.parse(instant) : instant) - now();
  if (Math.abs(gap) < 1000) return "now";
  const text = duration(Math.max(1000, Math.round(Math.abs(gap) / 1000) * 1000)).replace(/\.\d s/, " s");
  return gap > 0 ? `in ${text}` : `${text} ago`;
}

/**
 * A time as an element: short, with the full instant on hover. It follows the switch of zones.
 * @param {string | null | undefined} instant
 * @param {string | null} [zone] the zone of the schedule
 */
export function time(instant, zone) {
  if (!instant) return h("span.dim", null, "–");
  const shown = zoneFor(zone);
  return h("time", { datetime: instant, title: titleOf(instant, zone) }, shortText(instant, shown));
}

/**
 * A time that counts: "in 2 m 10 s", "41 s ago", or since when something runs.
 * @param {string | null | undefined} instant
 * @param {{zone?: string | null, since?: boolean}} [options]
 */
export function counting(instant, { zone = null, since = false } = {}) {
  if (!instant) return h("span.dim", null, "–");
  return h(
    "time",
    { datetime: instant, title: titleOf(instant, zone), "data-counts": since ? "since" : "to" },
    countText(instant, since),
  );
}

/** @param {string} instant @param {string | null | undefined} zone */
function titleOf(instant, zone) {
  const zones = [...new Set([zone || "UTC", MINE, "UTC"])];
  return zones.map((one) => fullText(instant, one)).join("\n");
}

/** @param {string} instant @param {boolean} since */
function countText(instant, since) {
  return since
    ? duration(Math.max(1000, Math.floor((now() - Date.parse(instant)) / 1000) * 1000)).replace(/\.\d s/, " s")
    : relativeText(instant);
}

/** Let every counting time on the page count. Called once. */
export function startCounting() {
  setInterval(() => {
    if (document.hidden) return;
    for (const one of document.querySelectorAll("time[data-counts]")) {
      const text = countText(/** @type {HTMLTimeElement} */ (one).dateTime, one.getAttribute("data-counts") === "since");
      if (one.textContent !== text) one.textContent = text;
    }
  }, 1000);
}

export { DAY, HOUR, MINE, MINUTE };
