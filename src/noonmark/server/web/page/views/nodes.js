// Nodes: who runs the work, who leads, and what is halted.
import { get, send } from "../api.js";
import { h, replace } from "../dom.js";
import { mark } from "../marks.js";
import { ask, button, card, field, list, notify, sentence } from "../parts.js";
import { counting, time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ signal, me, may, live }) {
  const nodes = h("div"),
    halts = h("div"),
    checks = h("div");

  async function read() {
    const [{ nodes: all }, { halts: halted }] = await Promise.all([
      me.all_tenants ? get("/nodes", {}, signal) : { nodes: [] },
      get("/halts", {}, signal),
    ]);
    replace(
      nodes,
      !me.all_tenants
        ? h("p.quiet", null, "Nodes serve all tenants: a key of one tenant does not see them.")
        : list(
            all,
            (/** @type {any} */ one) => [
              mark(
                one.is_alive ? "completed" : one.left_at_utc ? "skipped" : "failed",
                one.is_alive ? "up" : one.left_at_utc ? "left" : "gone",
              ),
              h(
                "span",
                null,
                one.node,
                one.is_leader && h("b", null, " leads"),
                h(
                  "small",
                  null,
                  `${one.is_alive ? `${one.load} of ${one.capacity.toLocaleString("en")} slots taken` : one.left_at_utc ? "left in order" : "gone without a word"} · version ${one.version} · zone data ${one.zone_data}`,
                ),
                h("small", null, one.routes.join(", ") || "serves nothing"),
                one.is_alive && one.capacity
                  ? h("div.meter", null, h("i", { style: { width: `${Math.min(100, (100 * one.load) / one.capacity)}%` } }))
                  : null,
              ),
              h(
                "span.when",
                null,
                one.is_alive ? ["up ", counting(one.started_at_utc, { since: true })] : ["seen ", time(one.seen_at_utc)],
              ),
            ],
            { empty: "No node was seen in the last day: nothing runs.", label: "Nodes" },
          ),
    );
    replace(
      halts,
      list(
        halted,
        (/** @type {any} */ one) => [
          mark("skipped", "halted"),
          h("span", null, scope(one), h("small", null, `${one.reason ?? "no reason given"} · by ${one.halted_by}`)),
          h("span.when", null, time(one.halted_at_utc), " ", may("write") && button("Lift", () => void lift(one))),
        ],
        { empty: "Nothing is halted.", label: "Halts" },
      ),
    );
  }

  async function halt() {
    const done = await ask(
      "Halt",
      [
        h("p", null, "Nothing starts, what runs is cancelled, until it is lifted."),
        field("Only schedules with the label", h("input", { name: "label", placeholder: "name=value" })),
        field("Why", h("input", { name: "reason", maxlength: 500 })),
        h("label", null, h("input", { type: "checkbox", name: "all" }), " Everything of this tenant"),
      ],
      {
        confirm: "Halt",
        kind: "danger",
        command: "noonmark halt",
        act: async ({ label, reason, all }) => {
          const [name, value = ""] = label.trim().split("=", 2);
          if (!name && !all) throw new Error("give a label, or say that everything is meant");
          return send("POST", "/halts", { ...(name && { labels: { [name]: value } }), ...(reason && { reason }) });
        },
      },
    );
    if (done) {
      notify("Halted.");
      await read();
    }
  }

  /** @param {any} one */
  async function lift(one) {
    const done = await ask(`Lift the halt of ${scope(one)}?`, h("p", null, "It starts again from now on."), {
      confirm: "Lift",
      command: `noonmark unhalt ${one.halt_id}`,
      act: () => send("POST", "/halts/lift", { halt_id: one.halt_id }),
    });
    if (done) {
      notify("Lifted.");
      await read();
    }
  }

  async function examine() {
    try {
      const found = await get("/doctor", {}, signal);
      replace(
        checks,
        list(
          found.checks,
          (/** @type {any} */ one) => [
            mark(one.status === "ok" ? "completed" : one.status === "warning" ? "late" : "failed", one.status),
            h("span", null, one.check, h("small", null, one.detail), one.advice && h("small", null, one.advice)),
            h("span"),
          ],
          { label: "Checks" },
        ),
      );
    } catch (error) {
      replace(checks, h("p.problem", null, sentence(error)));
    }
  }

  live(["nodes", "schedules"], () => void read().catch(() => null));
  await read();
  return {
    title: "Nodes",
    actions: [may("write") && button("Halt", () => void halt(), { kind: "danger" })],
    body: h(
      "div.stack",
      null,
      card("Nodes", nodes),
      card("Halts", halts),
      may("admin") &&
        me.all_tenants &&
        card(
          "Doctor",
          h(
            "div.buttons",
            null,
            button("Examine the store", () => void examine()),
          ),
          checks,
        ),
    ),
  };
}

/** @param {any} one */
function scope(one) {
  return Object.keys(one.labels ?? {}).length
    ? Object.entries(one.labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(", ")
    : one.lineage
      ? `lineage ${one.lineage}`
      : "everything";
}
