// Schedules in words: triggers and targets in short, policies as sentences.
/** @param {any} trigger */
export function zoneOf(trigger) {
  return trigger?.timezone ?? null;
}

/** A trigger in a few words, with the zone of its wall clock. @param {any} trigger */
export function zonedText(trigger) {
  return [triggerText(trigger), zoneOf(trigger)].filter(Boolean).join(" · ");
}

/** A trigger in a few words. @param {any} trigger */
export function triggerText(trigger) {
  switch (trigger?.type) {
    case "once":
      return "once";
    case "interval":
      return `every ${seconds(trigger.every_seconds)}`;
    case "cron":
      return trigger.expression ?? trigger.crons?.join(" or ") ?? "cron";
    case "calendar":
      return "calendar";
    case "event":
      return `on ${[trigger.event_type].flat().join(", ")}`;
    default:
      return "after others";
  }
}

/** A target in a few words. @param {any} target */
export function targetText(target) {
  switch (target?.target_kind) {
    case "function":
      return target.function;
    case "http":
      return `${target.method ?? "POST"} ${target.url}`;
    case "command":
      return (target.argv ?? []).join(" ");
    case "workflow":
      return `workflow ${target.workflow_id}`;
    case "bundle":
      return `bundle ${target.bundle_id ?? target.digest?.slice(0, 12)}`;
    case "event":
      return `emits ${target.event_type}`;
    case "task":
      return `task: ${target.query}`;
    case "session":
      return `session ${target.session_id ?? target.bound_session_id ?? "made at the first fire"}`;
    case "mob":
      return `mob ${target.mob_id}`;
    case "ping":
      return "a ping from elsewhere";
    default:
      return target?.target_kind ?? "";
  }
}

/** A length of time as it was declared, not rounded: "1 h 1 s", "1.5 s", "250 ms". @param {number} count */
export function seconds(count) {
  if (count < 1) return `${Math.round(count * 1_000_000) / 1000} ms`;
  let left = Math.round(count * 1_000_000);
  const words = [];
  for (const [unit, size] of /** @type {const} */ ([
    ["d", 86_400_000_000],
    ["h", 3_600_000_000],
    ["m", 60_000_000],
  ])) {
    if (left >= size) words.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  if (left) words.push(`${left / 1_000_000} s`);
  return words.join(" ");
}

const OVERLAP = /** @type {Record<string, (policy: any) => string>} */ ({
  skip: () => "While one runs, a later fire is skipped.",
  queue: (one) => `While one runs, later fires wait in line${one.queue_limit ? `, at most ${one.queue_limit}` : ""}.`,
  queue_one: () => "While one runs, the latest fire waits; a newer one replaces it.",
  allow: () => "Fires run side by side.",
  cancel_running: (one) =>
    `A later fire asks the running one to stop, gives it ${seconds(one.cancel_grace_seconds ?? 10)}, and starts.`,
  terminate: () => "A later fire kills the running one and starts.",
});
const MISFIRE = /** @type {Record<string, (policy: any) => string>} */ ({
  skip: () => "Fires missed in an outage are skipped, and recorded.",
  catch_up_one: () => "After an outage, the latest missed fire runs.",
  catch_up_all: (one) => `After an outage, missed fires run in order, at most ${one.limit ?? 100}.`,
});

/**
 * The policies of a schedule, a sentence each.
 * @param {any} one
 */
export function policySentences(one) {
  const overlap = typeof one.overlap_policy === "string" ? { type: one.overlap_policy } : one.overlap_policy;
  const misfire = typeof one.misfire_policy === "string" ? { type: one.misfire_policy } : one.misfire_policy;
  const retry = one.retry_policy,
    window = one.window,
    budget = one.budget;
  const bounds =
    budget &&
    [
      budget.max_cost_usd && `$${budget.max_cost_usd}`,
      budget.max_tokens && `${budget.max_tokens.toLocaleString("en")} tokens`,
      budget.max_model_calls && `${budget.max_model_calls} model calls`,
      budget.max_tool_calls && `${budget.max_tool_calls} tool calls`,
    ].filter(Boolean);
  return [
    overlap && OVERLAP[overlap.type]?.(overlap),
    misfire && MISFIRE[misfire.type]?.(misfire),
    misfire?.grace_seconds && `A fire up to ${seconds(misfire.grace_seconds)} late still runs.`,
    retry &&
      (retry.max_attempts > 1
        ? `A failure is tried again, up to ${retry.max_attempts} attempts, after ${seconds(retry.backoff_seconds ?? 1)} and then ${retry.multiplier ?? 2} times as long each, at most ${seconds(retry.max_backoff_seconds ?? 300)}.`
        : "A failure is not tried again."),
    one.delivery === "at_most_once" && "At most once: work that may have begun is never started again.",
    one.timeout_seconds && `A run that takes longer than ${seconds(one.timeout_seconds)} is stopped.`,
    one.expected_seconds && `A run usually takes ${seconds(one.expected_seconds)}; a longer one is reported.`,
    window &&
      `Work may go on for ${seconds(window.duration_seconds)} after it was due; then ${{ cancel: "it is cancelled", pause: "it is suspended until the next window", none: "nothing more starts" }[/** @type {"none"} */ (window.end_action ?? "none")]}.`,
    one.pause_on_failure && `After ${one.pause_on_failure} failures in a row it pauses itself.`,
    one.concurrency_key && `At most ${one.concurrency_limit ?? 1} at once with the key ${one.concurrency_key}, over all nodes.`,
    one.depends_on?.length &&
      `It waits for ${one.depends_on.map((/** @type {any} */ dependency) => dependency.schedule_id).join(", ")}.`,
    bounds?.length && `A run may use at most ${bounds.join(", ")}.`,
    one.max_runs && `It ends after ${one.max_runs.toLocaleString("en")} runs.`,
  ]
    .filter(Boolean)
    .map(String);
}
