// Workflows: what is defined, and what runs.
import { get, part } from "../api.js";
import { h } from "../dom.js";
import { mark, stateOf } from "../marks.js";
import { card, list, pages, plural, said } from "../parts.js";
import { counting, duration, time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ signal, live }) {
  const defined = pages(
    async (cursor) => {
      const page = await get("/workflows", { limit: 50, cursor }, signal);
      return { items: page.workflows, next_cursor: page.next_cursor };
    },
    (items) =>
      list(
        items,
        (/** @type {any} */ one) => [
          "",
          h(
            "span",
            null,
            one.name ?? one.workflow_id,
            h("small", null, one.description || `${plural(one.step_count, "step")}, version ${one.version}`),
          ),
          h("span.when", null, time(one.created_at_utc)),
        ],
        {
          href: (one) => `#/workflows/${part(one.workflow_id)}`,
          empty: "No workflow yet. Make one with: noonmark workflow create FILE",
          label: "Workflows",
        },
      ),
  );
  const runs = pages(async (cursor) => {
    const page = await get("/workflow-runs", { limit: 30, cursor }, signal);
    return { items: page.workflow_runs, next_cursor: page.next_cursor };
  }, runList);
  const load = () => Promise.all([defined.load(), runs.load()]);
  live(["occurrences", "runs", "schedules"], () => void load().catch(() => null));
  await load();
  return { title: "Workflows", body: h("div.columns", null, card("Defined", defined.box), card("Runs", runs.box)) };
}

/** @param {any[]} items */
export function runList(items) {
  return list(
    items,
    (one) => {
      const state = stateOf(one.phase, one.waiting_for);
      return [
        mark(state, one.phase),
        h(
          "span",
          null,
          `${one.workflow_id} ${one.version ? `v${one.version}` : ""}`,
          h("small", { title: one.reason ?? "" }, one.error ?? said(one.why ?? one.phase)),
        ),
        h(
          "span.when",
          null,
          state === "running"
            ? counting(one.started_at_utc, { since: true })
            : one.started_at_utc && one.ended_at_utc
              ? duration(Date.parse(one.ended_at_utc) - Date.parse(one.started_at_utc))
              : time(one.due_at_utc),
        ),
      ];
    },
    { href: (one) => `#/workflow-runs/${part(one.workflow_run_id)}`, empty: "No run yet.", label: "Runs" },
  );
}
