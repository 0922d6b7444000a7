// Approvals and proposals: what waits for a person.
import { get, part, send } from "../api.js";
import { h, replace } from "../dom.js";
import { ask, button, card, code, field, fieldChanges, list, notify } from "../parts.js";
import { counting, time } from "../times.js";
import { targetText, triggerText } from "../words.js";

const DECIDED = ["approved", "denied", "expired"];
const LABELS = { approve: "Approve", deny: "Deny" };

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ signal, may, live }) {
  const waiting = h("div"),
    proposed = h("div"),
    decided = h("div");

  async function read() {
    const [open, proposals, ...pages] = await Promise.all([
      get("/approvals", { state: "pending", limit: 100 }, signal),
      get("/proposals", { limit: 100 }, signal),
      ...DECIDED.map((state) => get("/approvals", { state, limit: 30 }, signal)),
    ]);
    const all = pages
      .flatMap((page) => page.approvals)
      .sort(
        (one, other) =>
          Date.parse(other.decided_at_utc ?? other.expires_at_utc) - Date.parse(one.decided_at_utc ?? one.expires_at_utc),
      )
      .slice(0, 30);
    replace(
      waiting,
      list(
        open.approvals,
        (/** @type {any} */ one) => [
          h("span.dim", null, "?"),
          h(
            "span",
            null,
            h(
              "a",
              {
                href: one.workflow_run_id
                  ? `#/workflow-runs/${part(one.workflow_run_id)}`
                  : `#/occurrences/${part(one.occurrence_id)}`,
              },
              one.schedule_name ?? one.workflow_id ?? one.schedule_id ?? one.occurrence_id,
            ),
            one.step_id ? h("span.dim", null, ` · step ${one.step_id}`) : null,
            h("small", null, one.message),
            h("small", null, "expires ", counting(one.expires_at_utc)),
          ),
          h(
            "span.when.buttons",
            null,
            may("run") && [
              button("Approve", () => void decideApproval(one, "approve"), { kind: "primary" }),
              button("Deny", () => void decideApproval(one, "deny")),
            ],
          ),
        ],
        { empty: "Nothing waits for approval.", label: "Waiting for approval" },
      ),
    );
    replace(
      proposed,
      list(
        proposals.proposals,
        (/** @type {any} */ one) => [
          h("span.dim", null, "?"),
          h(
            "span",
            null,
            h("a", { href: `#/schedules/${part(one.schedule_id)}` }, one.schedule_name ?? one.schedule_id),
            h("span.dim", null, ` · ${one.action}, by ${one.agent ? "the agent " : ""}${one.by}`),
            one.reason && h("small", null, one.reason),
            one.conflicts.map((/** @type {string} */ text) => h("p.warning", null, text)),
            fieldChanges(one.changes),
            details(one),
            h("small", null, "expires ", counting(one.expires_at_utc)),
          ),
          h(
            "span.when.buttons",
            null,
            may("write") && [
              button("Approve", () => void decideProposal(one, "approve"), { kind: "primary" }),
              button("Deny", () => void decideProposal(one, "deny")),
            ],
          ),
        ],
        { empty: "Nothing is proposed.", label: "Proposals" },
      ),
    );
    replace(
      decided,
      list(
        all,
        (/** @type {any} */ one) => [
          "",
          h(
            "span",
            null,
            one.schedule_name ?? one.workflow_id ?? one.occurrence_id,
            h("small", null, `${one.state}${one.by ? ` by ${one.by}` : ""}${one.comment ? `: ${one.comment}` : ""}`),
          ),
          h("span.when", null, time(one.decided_at_utc)),
        ],
        { empty: "Nothing was decided yet.", label: "Decided" },
      ),
    );
  }

  /** @param {any} one @param {"approve" | "deny"} verb */
  const decideApproval = (one, verb) =>
    decide(
      verb,
      `${LABELS[verb]}?`,
      [h("p", null, one.message), field("Comment", h("input", { name: "comment", maxlength: 500 }))],
      `approval ${verb} ${one.approval_id}`,
      `/approvals/${part(one.approval_id)}/${verb}`,
    );

  /** @param {any} one @param {"approve" | "deny"} verb */
  const decideProposal = (one, verb) =>
    decide(
      verb,
      `${LABELS[verb]} what ${one.by} proposes?`,
      [
        h("p", null, `${one.action} ${one.schedule_name ?? one.schedule_id}`),
        field("Comment", h("input", { name: "comment", maxlength: 500 })),
      ],
      `schedule ${verb} ${one.schedule_id}`,
      `/schedules/${part(one.schedule_id)}/${verb}`,
    );

  /** @param {"approve" | "deny"} verb @param {string} title @param {any} body @param {string} command @param {string} path */
  async function decide(verb, title, body, command, path) {
    const done = await ask(title, body, {
      confirm: LABELS[verb],
      kind: verb === "approve" ? "primary" : "danger",
      command: `noonmark ${command}`,
      act: (values) => send("POST", path, Object.fromEntries(Object.entries(values).filter(([, value]) => value))),
    });
    if (done) {
      notify(verb === "approve" ? "Approved." : "Denied.");
      await read();
    }
  }

  live(["approvals", "schedules"], () => void read().catch(() => null));
  await read();
  return {
    title: "Approvals",
    body: h(
      "div.stack",
      null,
      card("Waiting for approval", waiting),
      card("Proposed by agents and others", proposed),
      card("Decided", decided),
    ),
  };
}

/** @param {any} one */
function details(one) {
  const document = one.document?.document ?? one.document?.schedule;
  return document?.target
    ? [
        h("small", null, `${triggerText(document.trigger)} · ${targetText(document.target)}`),
        h("details", { id: `proposal-${one.schedule_id}` }, h("summary", null, "Document"), code(document)),
      ]
    : null;
}
