// Usage: what models cost, by user, model, schedule and day, against budgets, and what the month will cost.
import { get, part } from "../api.js";
import { bars } from "../charts.js";
import { h, replace } from "../dom.js";
import { card, dollars, plural, segments } from "../parts.js";

const GROUPS = /** @type {[string, string][]} */ ([
  ["user", "User"],
  ["model", "Model"],
  ["schedule", "Schedule"],
  ["session", "Session"],
]);

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ query, signal, live, set }) {
  let by = query.get("by") ?? "user";
  const groups = h("div"),
    days = h("div"),
    budgets = h("div"),
    forecast = h("div"),
    total = h("p.dim");

  async function read() {
    const [grouped, daily, budget, coming] = await Promise.all([
      get("/usage", { by, limit: 50 }, signal),
      get("/usage", { by: "day", limit: 62 }, signal),
      get("/budgets", { limit: 100 }, signal),
      get("/usage/forecast", { limit: 20 }, signal),
    ]);
    replace(
      total,
      `This month (UTC): ${dollars(grouped.total.cost_usd)}, ${grouped.total.total_tokens.toLocaleString("en")} tokens in ${plural(grouped.total.model_calls, "call")}${grouped.total.unpriced_calls ? `; the price of ${plural(grouped.total.unpriced_calls, "call")} is unknown` : ""}.`,
    );
    replace(
      groups,
      table(
        ["", "Cost", "Tokens", "Calls"],
        grouped.groups.map((/** @type {any} */ one) => [
          by === "schedule" && one.key
            ? h("a", { href: `#/schedules/${part(one.key)}` }, one.name ?? one.key)
            : by === "session" && one.key
              ? h("a", { href: `#/sessions/${part(one.key)}` }, one.key)
              : (one.name ?? one.key ?? "–"),
          one.cost_usd === null ? "unknown" : dollars(one.cost_usd),
          one.total_tokens.toLocaleString("en"),
          one.model_calls.toLocaleString("en"),
        ]),
        "Nothing was used this month.",
      ),
    );
    const points = daily.groups.map((/** @type {any} */ one) => ({
      label: String(one.key).slice(5),
      title: `${one.key}: ${dollars(one.cost_usd)}, ${one.total_tokens.toLocaleString("en")} tokens`,
    }));
    const isFree = !daily.groups.some((/** @type {any} */ one) => one.cost_usd);
    replace(
      days,
      points.length
        ? bars(
            points,
            daily.groups.map((/** @type {any} */ one) => (isFree ? one.total_tokens : one.cost_usd)),
            isFree
              ? { text: (value) => value.toLocaleString("en"), name: "Tokens by day" }
              : { text: dollars, name: "Cost by day" },
          )
        : h("p.quiet", null, "No day with usage this month."),
    );
    replace(
      budgets,
      budget.budgets.length
        ? budget.budgets.map(budgetLine)
        : h("p.quiet", null, "No budget is set. Set one with: noonmark budget set"),
    );
    replace(
      forecast,
      h(
        "p",
        null,
        coming.p50_usd === null
          ? "Nothing is known to cost anything this month."
          : `${dollars(coming.p50_usd)} by the end of the month, ${dollars(coming.p90_usd)} if it goes badly.`,
      ),
      table(
        ["", "So far", "Month", "At worst"],
        coming.schedules.map((/** @type {any} */ one) => [
          h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.name ?? one.schedule_id),
          dollars(one.spent_usd),
          one.p50_usd === null ? (one.unknown ?? "unknown") : dollars(one.p50_usd),
          one.p90_usd === null ? "–" : dollars(one.p90_usd),
        ]),
        "",
      ),
    );
  }

  live(["usage"], () => void read().catch(() => null));
  await read();
  return {
    title: "Usage",
    body: h(
      "div.stack",
      null,
      total,
      h("div.columns", null, card("By day", days), card("Budgets", budgets)),
      h(
        "div.columns",
        null,
        h(
          "section.card",
          null,
          h(
            "div.heading",
            null,
            h("h2", null, "Where it went"),
            segments("Usage by", GROUPS, by, (value) => {
              by = value;
              set({ by: value });
              void read();
            }),
          ),
          groups,
        ),
        card("Forecast", forecast),
      ),
    ),
  };
}

/** @param {any} one */
function budgetLine(one) {
  const spent = one.max_cost_usd ? (one.spent_usd ?? 0) / one.max_cost_usd : one.spent_tokens / one.max_tokens;
  const words = one.max_cost_usd
    ? `${dollars(one.spent_usd)} of ${dollars(one.max_cost_usd)}`
    : `${one.spent_tokens.toLocaleString("en")} of ${one.max_tokens.toLocaleString("en")} tokens`;
  return h(
    "div.budget",
    null,
    h(
      "p",
      null,
      `${one.scope} ${one.id}`,
      h("span.dim", null, ` · a ${one.period}${one.hard ? "" : ", soft"}`),
      h("span.when", null, words),
    ),
    h(
      "div.meter",
      {
        class: spent >= 1 ? "over" : "",
        role: "meter",
        "aria-label": `${one.scope} ${one.id}`,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
        "aria-valuenow": Math.round(Math.min(1, spent) * 100),
      },
      h("i", { style: { width: `${Math.min(1, spent) * 100}%` } }),
    ),
  );
}

/** @param {string[]} heads @param {any[][]} rows @param {string} empty */
function table(heads, rows, empty) {
  return rows.length
    ? h(
        "div.table",
        { tabindex: "0", role: "group", "aria-label": heads.filter(Boolean).join(", ") },
        h(
          "table",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              heads.map((one, index) => (one ? h("th", { class: index ? "right" : "", scope: "col" }, one) : h("td"))),
            ),
          ),
          h(
            "tbody",
            null,
            rows.map((row) =>
              h(
                "tr",
                null,
                row.map((cell, index) => h("td", { class: index ? "right" : "" }, cell)),
              ),
            ),
          ),
        ),
      )
    : empty && h("p.quiet", null, empty);
}
