// A run of a workflow: its graph lights up as it runs.
import { get, part, send } from "../api.js";
import { h, replace } from "../dom.js";
import { graph } from "../graph.js";
import { mark, stateOf } from "../marks.js";
import { ask, button, card, code, fact, list, said } from "../parts.js";
import { counting, duration, time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params: [id], signal, may, live }) {
  const body = h("div.stack"),
    actions = h("div.buttons");
  /** @type {any} */
  let workflow = null;
  let title = id;

  async function read() {
    const run = await get(`/workflow-runs/${part(id)}`, {}, signal);
    title = `${run.workflow_id}, a run`;
    workflow ??= run.version
      ? await get(`/workflows/${part(run.workflow_id)}`, { version: run.version }, signal).catch(() => null)
      : null;
    const steps = run.steps ?? [],
      byId = new Map(
        steps.filter((/** @type {any} */ one) => one.index === null).map((/** @type {any} */ one) => [one.step_id, one]),
      );
    const state = stateOf(run.phase, run.waiting_for);
    replace(
      actions,
      may("run") && !run.ended_at_utc && button("Cancel", () => void cancel(run), { kind: "danger" }),
      h("a.button", { href: `#/occurrences/${part(id)}` }, "Why"),
      h("a.button", { href: `#/workflows/${part(run.workflow_id)}` }, "Workflow"),
    );
    replace(
      body,
      h(
        "section.card.verdict",
        null,
        h(
          "p",
          null,
          mark(state, run.phase),
          h("b", null, run.completed_at_utc || state !== "queued" ? run.phase.replace(/_/g, " ") : "waits"),
          state === "running" && h("span.dim", null, " for ", counting(run.started_at_utc, { since: true })),
        ),
        run.why && h("p", { title: run.reason ?? "" }, said(run.why, { links: true })),
        run.error && h("p.bad.wrap", null, run.error),
      ),
      workflow &&
        card(
          "Steps",
          graph(workflow.steps, (step) => {
            const one = byId.get(step);
            return one
              ? {
                  phase: one.phase,
                  text: textOf(one),
                  href: one.occurrence_id ? `#/occurrences/${part(one.occurrence_id)}` : null,
                }
              : { phase: "pending" };
          }),
        ),
      h(
        "div.columns",
        null,
        card(
          "In order",
          list(
            steps,
            (/** @type {any} */ one) => [
              mark(stateOf(one.phase), one.phase),
              h(
                "details",
                { id: `step-${one.step_id}-${one.index}` },
                h(
                  "summary",
                  null,
                  one.step_id,
                  one.index === null ? "" : ` [${one.index}]`,
                  h("small.inline", null, ` ${textOf(one)}`),
                ),
                one.error && h("p.bad.wrap", null, one.error),
                one.result !== null && code(one.result),
              ),
              h("span.when", null, one.approval_id ? h("a", { href: "#/approvals" }, "decide") : ""),
            ],
            { label: "Steps" },
          ),
        ),
        card(
          "What",
          h(
            "dl.facts",
            null,
            fact("Run", h("code", null, id)),
            run.attempt ? fact("Attempt", String(run.attempt)) : null,
            fact("Due", time(run.due_at_utc)),
            run.schedule_id && fact("Schedule", h("a", { href: `#/schedules/${part(run.schedule_id)}` }, run.schedule_id)),
            fact("Inputs", code(run.inputs)),
          ),
        ),
      ),
      run.result !== null && card("Result", code(run.result)),
    );
  }

  /** @param {any} run */
  async function cancel(run) {
    const done = await ask(
      `Cancel the run of ${run.workflow_id}?`,
      h("p", null, "Steps that run are asked to stop; steps with an undo are undone."),
      {
        confirm: "Cancel the run",
        kind: "danger",
        command: `noonmark workflow cancel ${id}`,
        act: () => send("POST", `/workflow-runs/${part(id)}/cancel`, {}),
      },
    );
    if (done) await read();
  }

  live(["occurrences", "runs", "approvals"], () => void read().catch(() => null));
  await read();
  return { title, body, actions: [actions] };
}

/** @param {any} one */
function textOf(one) {
  if (one.waiting_for) return `waits for ${one.waiting_for}`;
  if (one.compensation) return `undo ${one.compensation}`;
  if (one.started_at_utc && one.ended_at_utc) return duration(Date.parse(one.ended_at_utc) - Date.parse(one.started_at_utc));
  return one.phase;
}
