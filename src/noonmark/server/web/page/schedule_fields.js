// The fields of a schedule document: those of each trigger, target and policy, and how each is written and read as text.
// Most labels are the names in the document, so that form, JSON, command line and reference speak of the same things.
import { MINE } from "./times.js";

/** How a value stands in a control: `read` answers undefined for nothing, and throws what is wrong. @typedef {{write: (value: any) => string, read: (text: string) => any, rows?: number, mono?: boolean, type?: string}} Kind */

const UNITS = /** @type {[string, number][]} */ ([
  ["w", 604800],
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
  ["ms", 0.001],
]);
const KIND_OF = /** @type {[string, RegExp][]} */ ([
  ["seconds", /_seconds$/],
  ["instant", /_at_utc$/],
  ["crons", /^expression$/],
  ["weekdays", /^day_of_week$/],
  ["values", /^(second|minute|hour|day_of_month|month|year)$/],
  ["json", /^(filters|kwargs|args|payload|inputs|slots|context|params|options|fork_context)$/],
  ["area", /^(description|prompt|content|query|system_prompt)$/],
  ["code", /^stdin$/],
  ["body", /^body$/],
  ["words", /^argv$/],
  ["headers", /headers$/],
  ["env", /^env$/],
  ["labels", /^labels$/],
  ["texts", /event_type$/],
  ["list", /_statuses$/],
  ["waits", /^depends_on$/],
  ["check", /^literal$/],
  ["number", /^(max_|memory_mb|nice|version|multiplier|at_least|at_most|pause_on|limit)|_limit$/],
]);
const CHOICES = /** @type {Record<string, string>} */ ({
  "trigger.dst.gap": " after skip",
  "trigger.dst.fold": " first second both",
  "target.method": "GET HEAD POST PUT PATCH DELETE OPTIONS",
  "target.executor": " thread process",
  "target.action.type": "prompt event",
  "session type": "materialize_on_demand_session resumable_session exact_session",
  "mob type": "flow member spawn_helper fork_helper",
  overlap_policy: " skip queue queue_one allow cancel_running terminate",
  misfire_policy: " skip catch_up_one catch_up_all catch_up_within spread",
  missing_target_policy: " mark_misfired skip",
  delivery: " at_least_once at_most_once",
  "window.end_action": " none cancel pause",
});
const WORDS = /** @type {Record<string, string>} */ ({
  argv: "Program and arguments",
  cwd: "Folder",
  env: "Environment",
  stdin: "Standard input",
  cpu: "Processor time",
  "memory mb": "Memory (MB)",
  nice: "Niceness",
  kwargs: "Arguments",
  args: "Positional arguments",
  query: "What to do",
  literal: "Send braces as they are",
  grace: "May be late by",
  early: "May be early by",
  "target.timeout_seconds": "Answer within",
  "target.completion_timeout_seconds": "End within, if taken over",
  "target.action.type": "It gets",
  "dst gap": "A time that is jumped over",
  "dst fold": "A time that comes twice",
  url: "URL",
  timezone: "Time zone",
  "schedule id": "Id",
  overlap: "A later fire",
  misfire: "Missed fires",
  "misfire grace": "Late by this still runs",
  "retry max attempts": "Attempts in all",
  "retry backoff": "Wait before the second",
  "retry multiplier": "Then times",
  "retry max backoff": "Wait at most",
  "pause on failure": "Pause after failures in a row",
  timeout: "Stop a run after",
  expected: "Report a run after",
  "window duration": "Work goes on after it is due for",
  "window end action": "Then",
  "max runs": "End after runs",
  "missing target": "If no node serves it",
  "budget max cost usd": "Dollars",
  "budget max tokens": "Tokens",
  "budget max model calls": "Model calls",
  "budget max tool calls": "Tool calls",
  "expected rate at least": "At least successes",
  "expected rate at most": "At most starts",
  "expected rate per": "In each",
  "ping urls start": "Call when it starts",
  "ping urls success": "Call when it succeeded",
  "ping urls failure": "Call when it failed",
});
/** What an empty field shows: an example, or what holds without it. */
export const EXAMPLES = /** @type {Record<string, string>} */ ({
  labels: "team=data, env=prod",
  schedule_id: "chosen for you",
  url: "https://example.com/hook",
  argv: "backup --full",
  headers: "X-Team: data",
  secret_headers: "Authorization: name-of-secret",
  filters: '{"path": {"prefix": "/data/"}}',
  "misfire_policy.grace_seconds": "1m",
  "retry_policy.max_attempts": "1",
  pause_on_failure: "never",
  timeout_seconds: "never",
  expected_seconds: "never",
  max_runs: "never",
  "window.duration_seconds": "as long as it takes",
  hour: "every hour",
  minute: "every minute",
  day_of_month: "every day",
  month: "every month",
});
export const HINTS = /** @type {Record<string, string>} */ ({
  "trigger.expression": "minute, hour, day of month, month, day of week; a line each if there are several",
  "target.argv": "No shell: use sh -c '…' for pipes and variables.",
  "target.body": "JSON or text; {{payload.field}} and {{nominal_at}} are filled in.",
  "target.function": "A name that a node has registered.",
  depends_on: "Ids of schedules that must have succeeded; with a ? at its end, one need only have ended.",
});

export function kindOf(path = "") {
  const name = path.replace(/.*\./, "");
  return /^(overlap|misfire)_policy$/.test(path)
    ? "policy"
    : path in CHOICES || path === "target.type"
      ? "select"
      : (KIND_OF.find(([, names]) => names.test(name))?.[0] ?? "text");
}

/** Values and texts of a choice. @param {any} draft @returns {[string, string][]} */
export function choicesOf(path = "", draft) {
  return CHOICES[path === "target.type" ? `${draft.target.target_kind} type` : path]
    .split(" ")
    .map((one) => [one, one ? words(one) : "as usual"]);
}

export function labelOf(path = "") {
  const text = words(
    path
      .replace(/^(trigger|target)\.((create|action|limits)\.)?/, "")
      .replace(/_(policy|seconds|utc)\b/g, "")
      .replace(/\./g, " "),
  );
  return `${WORDS[path] ?? WORDS[text] ?? text.charAt(0).toUpperCase() + text.slice(1)}${/_at_utc$/.test(path) ? ` (${MINE})` : ""}`;
}

const words = (name = "") => (/[a-z]/.test(name) ? name.replace(/_/g, " ") : name);

/** The list that suggests a value. */
export function suggestionsOf(path = "") {
  const name = path.replace(/.*\./, "");
  return name === "timezone"
    ? "zones"
    : name === "function"
      ? "functions"
      : path.startsWith("target.") && /^(workflow|bundle|session|mob)_id$/.test(name)
        ? `${name.slice(0, -3)}s`
        : null;
}

const BOUNDS = "start_at_utc end_at_utc jitter_seconds",
  CLOCK = `dst.gap dst.fold ${BOUNDS}`;
/** Triggers: how each is called, what it begins as, its fields, and those that few need. @type {Record<string, [string, any, string, string]>} */
export const TRIGGERS = {
  cron: ["Cron", { expression: "0 9 * * MON-FRI", timezone: MINE }, "expression timezone", `${CLOCK} key`],
  interval: ["Interval", { every_seconds: 900 }, "every_seconds start_at_utc", "end_at_utc jitter_seconds"],
  once: ["Once", { delay_seconds: 3600 }, "due_at_utc delay_seconds", "jitter_seconds"],
  calendar: [
    "Calendar",
    {
      timezone: MINE,
      minute: { kind: "values", values: [0] },
      hour: { kind: "values", values: [9] },
      day_of_week: { kind: "values", values: [1, 2, 3, 4, 5] },
    },
    "day_of_week hour minute day_of_month timezone month",
    `second year ${CLOCK}`,
  ],
  event: ["Event", {}, "event_type filters", BOUNDS],
  none: ["After others", null, "", ""],
};
/** Targets, likewise. @type {Record<string, [string, any, string, string]>} */
export const TARGETS = {
  http: [
    "HTTP request",
    { method: "POST" },
    "method url body",
    "headers secret_headers expected_statuses retry_statuses timeout_seconds completion_timeout_seconds literal",
  ],
  command: ["Command", {}, "argv", "cwd env stdin payload limits.memory_mb limits.cpu_seconds limits.nice"],
  function: ["Function", {}, "function kwargs", "args payload executor"],
  workflow: ["Workflow", {}, "workflow_id version inputs", ""],
  bundle: ["Bundle", {}, "bundle_id inputs", "digest slots"],
  event: ["Event", {}, "event_type payload", ""],
  session: ["Agent session", { type: "materialize_on_demand_session", action: { type: "prompt" } }, "type", ""],
  mob: ["Mob of agents", { type: "flow" }, "type mob_id", ""],
  task: ["Task for an agent", {}, "query context", ""],
  ping: ["Ping from elsewhere", {}, "grace_seconds early_seconds", ""],
};
const BY_TYPE = /** @type {Record<string, string>} */ ({
  materialize_on_demand_session: "create.model create.system_prompt",
  resumable_session: "session_id",
  exact_session: "session_id",
  flow: "flow_id params",
  member: "member_id action.content",
  spawn_helper: "member_id prompt options",
  fork_helper: "source_member_id member_id prompt fork_context options",
});

const paths = (before = "", names = "") =>
  names
    .split(" ")
    .filter(Boolean)
    .map((name) => `${before}.${name}`);

/** The paths of the fields of a trigger, or of a target, and those that few need. @param {"trigger" | "target"} part @param {any} draft @returns {[string[], string[]]} */
export function fieldsOf(part, draft) {
  const value = draft[part];
  if (part === "trigger") {
    const [, , fields, more] = TRIGGERS[value?.type ?? "none"],
      waits = ["depends_on"],
      isMain = !value || draft.depends_on;
    return [
      [...paths(part, fields), ...(isMain ? waits : [])],
      [...paths(part, more), ...(isMain ? [] : waits)],
    ];
  }
  const [, , fields, more] = TARGETS[value.target_kind];
  const turn =
    value.target_kind === "session"
      ? ` action.type ${value.action?.type === "event" ? "action.event_type action.payload" : "action.prompt"}`
      : "";
  return [paths(part, `${fields} ${BY_TYPE[value.type] ?? ""}${turn}`), paths(part, more)];
}

/** Policies in groups, the title of each the beginning of a sentence. @param {any} draft @returns {[string, string[]][]} */
export function policyFields({ overlap_policy: overlap, misfire_policy: misfire }) {
  const busy = overlap?.type ?? overlap,
    late = misfire?.type ?? misfire;
  return /** @type {[string, string[]][]} */ (
    [
      [
        "While a run is still going",
        `overlap_policy ${{ queue: "overlap_policy.queue_limit", cancel_running: "overlap_policy.cancel_grace_seconds" }[/** @type {"queue"} */ (busy)] ?? ""}`,
      ],
      [
        "After an outage",
        `misfire_policy misfire_policy.grace_seconds ${/all|within|spread/.test(late) ? "misfire_policy.limit" : ""} ${/within|spread/.test(late) ? "misfire_policy.window_seconds" : ""}`,
      ],
      [
        "When a run fails",
        "retry_policy.max_attempts retry_policy.backoff_seconds retry_policy.multiplier retry_policy.max_backoff_seconds pause_on_failure",
      ],
      ["How long it may take", "timeout_seconds expected_seconds window.duration_seconds window.end_action"],
      ["How often, and beside what", "max_runs concurrency_key concurrency_limit delivery missing_target_policy"],
      ["What a run may use", "budget.max_cost_usd budget.max_tokens budget.max_model_calls budget.max_tool_calls"],
      [
        "What others learn",
        "expected_rate.at_least expected_rate.at_most expected_rate.per_seconds ping_urls.start ping_urls.success ping_urls.failure",
      ],
    ].map(([title, names]) => [title, names.split(" ").filter(Boolean)])
  );
}

/** Words as a shell reads them, without expanding anything. */
function readWords(text = "") {
  const out = [];
  for (const [whole] of text.matchAll(/(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+|\S+/g)) {
    if (/^['"]/.test(whole) && !/['"]$/.test(whole)) throw new Error(`has no closing ${whole[0]}`);
    out.push(
      whole.replace(
        /'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)/g,
        (_, single, double, one) => single ?? double?.replace(/\\(["\\$`])/g, "$1") ?? one,
      ),
    );
  }
  return out;
}

export function quoted(text = "") {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}

/** @returns {Kind} */
const pairs = (between = "", apart = "", more = {}) => ({
  ...more,
  write: (value) =>
    Object.entries(value ?? {})
      .map(([name, one]) => `${name}${between}${one}`)
      .join(apart),
  read: (text) => {
    const all = text
      .split(apart.trim() || "\n")
      .filter((one) => one.trim())
      .map((one) => {
        const [name, ...rest] = one.split(between.trim());
        if (!name.trim() || !rest.length) throw new Error(`must be name${between}value`);
        return [name.trim(), rest.join(between.trim()).trim()];
      });
    return all.length ? Object.fromEntries(all) : undefined;
  },
});
const commas = (text = "") =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);
/** @param {any} value */
const shown = (value) => (value === undefined || value === null ? "" : String(value));
const TEXT = { write: shown, read: (text = "") => text || undefined };
const LINES = { rows: 2, mono: true };

/** @type {Record<string, Kind>} */
export const KINDS = {
  text: TEXT,
  area: { ...TEXT, rows: 2 },
  code: { ...TEXT, ...LINES },
  number: {
    write: shown,
    read: (text) => {
      if (Number.isNaN(Number(text))) throw new Error("must be a number");
      return text.trim() ? Number(text) : undefined;
    },
  },
  seconds: {
    write: (value) => {
      let left = Number(value);
      if (!left) return shown(value);
      return UNITS.slice(1, 5)
        .map(([unit, length]) => {
          const count = unit === "s" ? Math.round(left * 1e6) / 1e6 : Math.floor(left / length);
          left -= count * length;
          return count ? `${count}${unit}` : "";
        })
        .filter(Boolean)
        .join(" ");
    },
    read: (text) => {
      if (!/^\s*(\d+(\.\d+)?\s*(ms|[smhdw])?[a-z]*\s*)*$/i.test(text))
        throw new Error("must be a duration, such as 90s, 15m or 1h 30m");
      const sum = [...text.matchAll(/([\d.]+)\s*(ms|[smhdw])?/gi)].reduce(
        (all, [, count, unit = "s"]) => all + Number(count) * (UNITS.find(([one]) => one === unit.toLowerCase())?.[1] ?? 1),
        0,
      );
      return text.trim() ? Math.round(sum * 1e6) / 1e6 : undefined;
    },
  },
  instant: {
    type: "datetime-local",
    write: (value) => {
      const at = new Date(value ?? NaN);
      return Number.isNaN(at.getTime())
        ? ""
        : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
    },
    read: (text) => (text ? new Date(text).toISOString().replace(".000", "") : undefined),
  },
  json: {
    ...LINES,
    write: (value) => (value === undefined ? "" : JSON.stringify(value, null, 2)),
    read: (text) => {
      try {
        return text.trim() ? JSON.parse(text) : undefined;
      } catch (error) {
        throw new Error(`must be JSON: ${/** @type {Error} */ (error).message}`);
      }
    },
  },
  // JSON, or else the text itself.
  body: {
    ...LINES,
    write: (value) => (typeof value === "string" ? value : value ? JSON.stringify(value, null, 2) : ""),
    read: (text) => {
      try {
        return JSON.parse(text);
      } catch {
        return text || undefined;
      }
    },
  },
  words: {
    mono: true,
    write: (value) =>
      [value ?? []]
        .flat()
        .map((one) => quoted(String(one)))
        .join(" "),
    read: (text) => (text.trim() ? readWords(text) : undefined),
  },
  headers: pairs(": ", "\n", LINES),
  env: pairs("=", "\n", LINES),
  labels: pairs("=", ", "),
  texts: {
    write: (value) => [value ?? []].flat().join(", "),
    read: (text) => {
      const all = commas(text);
      return all.length > 1 ? all : all[0];
    },
  },
  list: {
    write: (value) => (value ?? []).join(", "),
    read: (text) => {
      const all = commas(text).map((one) => (/^\d+$/.test(one) ? Number(one) : one));
      return all.length ? all : undefined;
    },
  },
  values: {
    write: (value) => (value?.values ?? []).join(", "),
    read: (text) => {
      const values = commas(text).flatMap((one) => {
        const [low, high = low] = one.split("-").map(Number);
        if (!(low <= high && high - low < 400)) throw new Error("must be numbers and ranges, such as 0, 15, 30-35");
        return Array.from({ length: high - low + 1 }, (_, index) => low + index);
      });
      return values.length ? { kind: "values", values } : undefined;
    },
  },
  // "import, export?": it waits for both, and the second need not succeed.
  waits: {
    write: (value) =>
      (value ?? []).map((/** @type {any} */ one) => `${one.schedule_id}${one.require_success === false ? "?" : ""}`).join(", "),
    read: (text) => {
      const all = commas(text).map((one) => ({ schedule_id: one.replace(/\?$/, ""), require_success: !one.endsWith("?") }));
      return all.length ? all : undefined;
    },
  },
  crons: {
    rows: 1,
    mono: true,
    write: (value) => [value ?? []].flat().join("\n"),
    read: (text) => {
      const all = text
        .split("\n")
        .map((one) => one.trim())
        .filter(Boolean);
      return all.length > 1 ? all : all[0];
    },
  },
};
/** @param {any} root @param {string} path */
export function valueAt(root, path) {
  return path.split(".").reduce((value, name) => (value !== null && typeof value === "object" ? value[name] : undefined), root);
}

/** Set a value in a document, or take it out if it is undefined; an object that is left empty goes with it. @param {any} root @param {string} path @param {any} value */
export function setAt(root, path, value) {
  const [name, ...rest] = path.split(".");
  if (rest.length) {
    // A policy may be its name alone.
    const inner = typeof root[name] === "string" ? { type: root[name] } : { ...root[name] };
    setAt(inner, rest.join("."), value);
    if (Object.keys(inner).length || name === "trigger" || name === "target") root[name] = inner;
    else delete root[name];
  } else if (value === undefined) delete root[name];
  else root[name] = value;
}
