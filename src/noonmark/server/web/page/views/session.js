// One session: the transcript as it grows, and what it used.
import { get, part, send } from "../api.js";
import { h, replace } from "../dom.js";
import { button, card, code, dollars, fact, field, notify, sentence } from "../parts.js";
import { time } from "../times.js";

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params: [id], signal, may, live }) {
  const path = `/sessions/${part(id)}`;
  const facts = h("div"),
    transcript = h("div.transcript", { role: "log", "aria-label": "Transcript" });
  let last = 0;

  async function read() {
    const [one, page] = await Promise.all([
      get(path, {}, signal),
      get(`${path}/messages`, last ? { after: last, limit: 200 } : { newest_first: true, limit: 100 }, signal),
    ]);
    const fresh = last ? page.messages : [...page.messages].reverse();
    if (!last && fresh.length) replace(transcript);
    if (!last && fresh[0]?.number > 1)
      transcript.append(h("p.quiet", null, `The first ${fresh[0].number - 1} messages are not shown.`));
    for (const message of fresh)
      if (message.number > last) {
        transcript.append(shown(message));
        last = message.number;
      }
    if (!last) replace(transcript, h("p.quiet", null, "No message yet."));
    replace(
      facts,
      card(
        "About",
        h(
          "dl.facts",
          null,
          fact("State", one.state),
          fact("Model", one.model),
          fact("Owner", `${one.owner.user} · ${one.owner.tenant}`),
          one.schedule_id && fact("Schedule", h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.schedule_id)),
          one.mob_id && fact("Mob", `${one.mob_id}, ${one.member_id ?? ""}`),
          one.occurrence_id && fact("Last turn", h("a", { href: `#/occurrences/${part(one.occurrence_id)}` }, one.occurrence_id)),
          fact(
            "Tokens",
            `${one.usage.input_tokens.toLocaleString("en")} in, ${one.usage.output_tokens.toLocaleString("en")} out`,
          ),
          fact("Cost", one.cost_usd === null ? "unknown: a price is missing" : dollars(one.cost_usd)),
          fact("Tools", one.tool_access_policy ? code(one.tool_access_policy) : one.enable_schedule ? "may schedule" : "–"),
        ),
        one.system_prompt && h("details", null, h("summary", null, "System prompt"), code(one.system_prompt)),
      ),
    );
    return one;
  }

  const text = h("textarea", { name: "prompt", required: true, rows: 3 });
  const form = h(
    "form.stack",
    {
      onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        try {
          await send("POST", `${path}/messages`, { prompt: text.value });
          text.value = "";
          notify("Sent; the answer appears when it is there.");
        } catch (error) {
          notify(sentence(error), "bad");
        }
      },
    },
    field("Message", text),
    h("div.buttons", null, h("button.primary", { type: "submit" }, "Send")),
  );

  live(["sessions", "runs", "occurrences"], () => void read().catch(() => null));
  const one = await read();
  return {
    title: one.comms_name ?? one.member_id ?? id,
    actions: [button("Refresh", () => void read())],
    body: h(
      "div.columns.wide-first",
      null,
      h("section.card", null, h("h2", null, "Transcript"), transcript, may("run") && one.state !== "archived" && form),
      facts,
    ),
  };
}

/** @param {any} one */
function shown(one) {
  return h(
    `article.message.m-${one.role}`,
    null,
    h(
      "p.dim",
      null,
      `${one.role} `,
      time(one.at_utc),
      one.usage ? ` · ${(one.usage.input_tokens + one.usage.output_tokens).toLocaleString("en")} tokens` : "",
    ),
    one.text && h("p.said", null, one.text),
    one.parts
      .filter((/** @type {any} */ part) => part.type !== "text")
      .map((/** @type {any} */ part) =>
        h(
          "details",
          null,
          h(
            "summary",
            null,
            (part.tool_name ?? part.name) ? `${part.type.replace(/_/g, " ")}: ${part.tool_name ?? part.name}` : part.type,
          ),
          code(part),
        ),
      ),
  );
}
