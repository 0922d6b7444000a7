// One workflow: its graph, its inputs, its versions and runs.
import { get, idempotencyKey, part, send } from "../api.js";
import { h, replace } from "../dom.js";
import { graph } from "../graph.js";
import { ask, button, card, code, field, list, notify, pages, plural } from "../parts.js";
import { time } from "../times.js";
import { targetText } from "../words.js";
import { runList } from "./workflows.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params: [id], query, signal, may, live, go }) {
  const path = `/workflows/${part(id)}`;
  const [one, { versions }] = await Promise.all([
    get(path, { version: query.get("version") }, signal),
    get(`${path}/versions`, { limit: 20 }, signal),
  ]);
  const runs = pages(async (cursor) => {
    const page = await get("/workflow-runs", { workflow_id: id, limit: 20, cursor }, signal);
    return { items: page.workflow_runs, next_cursor: page.next_cursor };
  }, runList);
  const step = h("div");
  replace(
    step,
    h(
      "p.quiet",
      null,
      `${plural(one.steps.length, "step")}. When one fails, ${one.on_failure === "stop" ? "the others stop" : "those that do not depend on it go on"}.`,
    ),
  );

  async function run() {
    const example = Object.fromEntries(Object.keys(one.inputs ?? {}).map((name) => [name, ""]));
    const done = await ask(
      `Run ${one.name ?? id}?`,
      field("Inputs", h("textarea", { name: "inputs", spellcheck: "false" }, JSON.stringify(example, null, 2)), "JSON"),
      {
        confirm: "Run",
        command: `noonmark workflow run ${id}`,
        act: ({ inputs }) =>
          send("POST", `${path}/runs`, { inputs: JSON.parse(inputs || "{}"), version: one.version, key: idempotencyKey() }),
      },
    );
    if (done) {
      notify("The run has begun.");
      go(`/workflow-runs/${part(done.workflow_run_id)}`);
    }
  }

  live(["occurrences", "runs"], () => void runs.load().catch(() => null));
  await runs.load();
  return {
    title: one.name ?? id,
    actions: [may("run") && button("Run", () => void run(), { kind: "primary" })],
    body: h(
      "div.stack",
      null,
      one.warnings.map((/** @type {string} */ text) => h("p.warning", null, text)),
      one.description && h("p", null, one.description),
      card(
        `Version ${one.version}`,
        graph(one.steps, () => null),
        step,
      ),
      h(
        "div.columns",
        null,
        card("Runs", runs.box),
        card(
          "Steps",
          list(
            one.steps,
            (/** @type {any} */ each) => [
              "",
              h(
                "span",
                null,
                each.id,
                h(
                  "small",
                  null,
                  each.target
                    ? targetText(each.target)
                    : Object.keys(each)
                        .filter((name) => !["id", "depends_on"].includes(name))
                        .join(", "),
                ),
                each.depends_on?.length ? h("small", null, `after ${each.depends_on.join(", ")}`) : null,
              ),
              "",
            ],
            { label: "Steps" },
          ),
        ),
        card(
          "Versions",
          list(
            versions,
            (/** @type {any} */ each) => [
              h("b", null, String(each.version)),
              h("span", null, each.created_by, h("small", null, plural(each.step_count, "step"))),
              h("span.when", null, time(each.created_at_utc)),
            ],
            { href: (each) => `#/workflows/${part(id)}?version=${each.version}`, label: "Versions" },
          ),
        ),
      ),
      h("details.card", null, h("summary", null, "As JSON"), code(one)),
    ),
  };
}
