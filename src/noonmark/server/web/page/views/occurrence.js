// One occurrence: why it ran or did not, decision by decision; its attempts, and what they said.
import { cancel, redrive } from "../actions.js";
import { ApiError, get, part } from "../api.js";
import { h, replace } from "../dom.js";
import { mark, stateOf } from "../marks.js";
import { button, card, code, dollars, fact, plural, said } from "../parts.js";
import { counting, duration, fullText, time, zoneFor } from "../times.js";
import { targetText, zoneOf } from "../words.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params: [id], signal, may, live }) {
  const path = `/occurrences/${part(id)}`;
  const body = h("div.stack"),
    actions = h("div.buttons");
  let title = "";

  async function read() {
    const [one, explained, { runs }] = await Promise.all([
      get(path, {}, signal),
      get(`${path}/explain`, {}, signal),
      get(`${path}/runs`, {}, signal),
    ]);
    const workflow =
      one.target_snapshot?.target_kind === "workflow" || !one.schedule_id
        ? await get(`/workflow-runs/${part(id)}`, {}, signal).catch((error) => {
            if (error instanceof ApiError && error.status) return null;
            throw error;
          })
        : null;
    const zone = zoneOf(one.trigger_snapshot),
      state = stateOf(one.phase, one.waiting_for);
    title = one.schedule_name ?? one.schedule_id ?? workflow?.workflow_id ?? id;
    const scrolled = new Map(
      [...body.querySelectorAll("pre[id]")].map((/** @type {any} */ box) => [
        box.id,
        box.scrollTop + box.clientHeight >= box.scrollHeight - 4 ? Infinity : box.scrollTop,
      ]),
    );
    replace(
      actions,
      may("run") &&
        !one.completed_at_utc &&
        button("Cancel", () => void cancel(one).then((done) => done && read()), { kind: "danger" }),
      may("run") &&
        state === "failed" &&
        button("Redrive", () => void redrive(one).then((done) => done && read()), { kind: "primary" }),
      one.schedule_id && h("a.button", { href: `#/schedules/${part(one.schedule_id)}` }, "Schedule"),
    );
    replace(
      body,
      h(
        "section.card.verdict",
        null,
        h(
          "p",
          null,
          mark(state, one.phase),
          h("b", null, one.completed_at_utc ? one.phase.replace(/_/g, " ") : state),
          state === "running" && h("span.dim", null, " for ", counting(one.started_at_utc, { since: true })),
        ),
        h("p", { title: one.reason ?? "" }, said(explained.summary, { links: true, zone })),
        one.failure_detail && !explained.summary.includes(one.failure_detail) && h("p.bad.wrap", null, one.failure_detail),
      ),
      h(
        "div.columns",
        null,
        card(
          "Times",
          h(
            "ol.chain",
            null,
            moments(one, runs).map(([at, text]) =>
              h("li", null, h("span.dim", null, time(at, zone)), h("span", { title: fullText(at, zoneFor(zone)) }, text)),
            ),
          ),
        ),
        card("Decisions", decisions(explained.steps)),
        card(
          "What",
          h(
            "dl.facts",
            null,
            fact("Occurrence", h("code", null, one.occurrence_id)),
            one.target_snapshot && fact("Target", targetText(one.target_snapshot)),
            fact("Origin", h("span", { title: one.origin }, one.origin.split(":")[0])),
            one.node && fact("Node", one.node),
            fact("Revision", String(one.schedule_revision)),
            one.missed_count
              ? fact("Stands for", [
                  plural(one.missed_count, "missed fire"),
                  one.missed_from ? [", ", time(one.missed_from, zone), " – ", time(one.missed_to, zone)] : "",
                ])
              : null,
            ...links(one),
          ),
        ),
      ),
      workflow?.steps &&
        card(
          "Steps",
          h("p", null, h("a", { href: `#/workflow-runs/${part(id)}` }, `Run of workflow ${workflow.workflow_id}`)),
          h(
            "div.list",
            null,
            workflow.steps.map((/** @type {any} */ step) =>
              h(
                "div.row",
                null,
                mark(stateOf(step.phase), step.phase),
                h("span", null, step.step_id, h("small", null, step.error ?? step.phase)),
                h(
                  "span.when",
                  null,
                  step.started_at_utc && step.ended_at_utc
                    ? duration(Date.parse(step.ended_at_utc) - Date.parse(step.started_at_utc))
                    : "",
                ),
              ),
            ),
          ),
        ),
      runs.length
        ? card(
            plural(runs.length, "attempt"),
            [...runs].reverse().map((/** @type {any} */ run) => attempt(run)),
          )
        : null,
      one.payload !== null && one.payload !== undefined && card("Payload", code(one.payload)),
    );
    for (const box of body.querySelectorAll("pre[id]"))
      box.scrollTop = Math.min(scrolled.get(box.id) ?? Infinity, box.scrollHeight);
  }

  live(["occurrences", "runs"], () => void read().catch(() => null));
  await read();
  return { title, body, actions: [actions] };
}

/** The moments of its life, in order. @param {any} one @param {any[]} runs @returns {[string, string][]} */
function moments(one, runs) {
  /** @type {[string, string][]} */
  const all = [[one.due_at_utc, "due"]];
  if (one.nominal_at_utc !== one.due_at_utc) all.unshift([one.nominal_at_utc, "nominal time"]);
  for (const run of runs) {
    const late = Date.parse(run.started_at_utc) - Date.parse(one.due_at_utc);
    all.push([
      run.started_at_utc,
      `attempt ${run.attempt} started on ${run.node}${run.attempt === 1 && late > 0 ? `, ${duration(late)} after it was due` : ""}`,
    ]);
    if (run.ended_at_utc) all.push([run.ended_at_utc, `attempt ${run.attempt} ended: ${run.outcome}`]);
  }
  if (one.completed_at_utc && runs[runs.length - 1]?.outcome !== one.phase)
    all.push([one.completed_at_utc, one.phase.replace(/_/g, " ")]);
  return all.sort((a, b) => Date.parse(a[0]) - Date.parse(b[0]));
}

/** The rules that had a say, in their order, with the facts; those that did not apply in one line. @param {any[]} steps */
function decisions(steps) {
  const silent = steps.filter((one) => one.decision === "does_not_apply");
  return [
    h(
      "ol.chain",
      null,
      steps
        .filter((one) => !silent.includes(one))
        .map((one) =>
          h(
            "li",
            null,
            h("span.dim", null, one.rule.replace(/_/g, " ")),
            h(
              "span",
              null,
              said(one.decision.replace(/_/g, " ")),
              Object.entries(one.facts ?? {})
                .filter(([, value]) => typeof value !== "object")
                .map(([name, value]) =>
                  h(
                    "small.fact",
                    null,
                    `${name.replace(/_/g, " ")}: `,
                    /^\d{4}-\d\d-\d\dT/.test(String(value)) ? time(String(value)) : String(value),
                  ),
                ),
            ),
          ),
        ),
    ),
    silent.length ? h("p.quiet", null, `Did not apply: ${silent.map((one) => one.rule.replace(/_/g, " ")).join(", ")}.`) : null,
    h("details", { id: "facts" }, h("summary", null, "All facts"), code(steps)),
  ];
}

/** What caused it, and what it caused. @param {any} one */
function links(one) {
  const event = one.detail?.event_id ?? one.detail?.event?.event_id,
    upstream = one.detail?.upstream_occurrence_id,
    of = one.detail?.redrive_of ?? one.detail?.occurrence_id;
  return [
    event && fact("Event", h("a", { href: `#/events?event=${part(event)}` }, event)),
    upstream && fact("After", h("a", { href: `#/occurrences/${part(upstream)}` }, upstream)),
    of && of !== one.occurrence_id && fact("From", h("a", { href: `#/occurrences/${part(of)}` }, of)),
  ].filter(Boolean);
}

/** @param {any} run */
function attempt(run) {
  const isOpen = !run.ended_at_utc;
  const usage = run.usage;
  return h(
    "details.attempt",
    { id: `run-${run.attempt}`, open: true },
    h(
      "summary",
      null,
      mark(isOpen ? "running" : stateOf(run.outcome ?? "failed"), run.outcome ?? "running"),
      ` Attempt ${run.attempt} on ${run.node}, `,
      isOpen ? counting(run.started_at_utc, { since: true }) : duration((run.duration_seconds ?? 0) * 1000),
      run.outcome ? ` · ${run.outcome}` : "",
    ),
    run.progress &&
      h(
        "div",
        null,
        h("small", null, `${run.progress.message || "progress"} ${Math.round(run.progress.fraction * 100)} %`),
        h("div.meter", null, h("i", { style: { width: `${run.progress.fraction * 100}%` } })),
      ),
    usage &&
      h(
        "p.dim",
        null,
        [
          usage.model,
          usage.input_tokens !== undefined &&
            `${usage.input_tokens.toLocaleString("en")} tokens in, ${usage.output_tokens.toLocaleString("en")} out`,
          usage.cost_usd !== null && usage.cost_usd !== undefined && dollars(usage.cost_usd),
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    run.error && h("pre.bad", { tabindex: "0", id: `error-${run.attempt}` }, run.error),
    run.result !== null &&
      run.result !== undefined &&
      !(run.progress && Object.keys(run.result).join() === "progress") &&
      h("pre", { tabindex: "0", id: `result-${run.attempt}`, "aria-live": isOpen ? "off" : null }, output(run.result)),
  );
}

/** The output of a command as it came; anything else as JSON. @param {any} result */
function output(result) {
  if (typeof result === "string") return result;
  const streams = ["stdout", "stderr", "output"].filter((name) => typeof result?.[name] === "string" && result[name]);
  return streams.length
    ? [
        ...streams.map((name) => result[name]),
        ...(Object.keys(result).length > streams.length
          ? [JSON.stringify(Object.fromEntries(Object.entries(result).filter(([name]) => !streams.includes(name))))]
          : []),
      ].join("\n")
    : JSON.stringify(result, null, 2);
}
