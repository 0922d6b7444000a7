// Keys: who may do what. A new key is shown once.
import { get, part, send } from "../api.js";
import { h } from "../dom.js";
import { mark } from "../marks.js";
import { ask, button, card, commandLine, field, list, notify, pages } from "../parts.js";
import { time } from "../times.js";

const SCOPES = ["read", "write", "run", "propose", "admin"];

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ signal, me }) {
  const { box, load } = pages(
    async (cursor) => {
      const page = await get("/keys", { limit: 100, cursor }, signal);
      return { items: page.keys, next_cursor: page.next_cursor };
    },
    (keys) =>
      list(
        keys,
        (/** @type {any} */ one) => [
          mark(one.status === "active" ? "completed" : "skipped", one.status),
          h(
            "span",
            null,
            one.name ?? one.key_id,
            h(
              "small",
              null,
              `${one.key_id} · ${one.user} · tenant ${one.tenant} · ${one.scopes.join(", ")}${one.agent ? " · an agent’s" : ""}`,
            ),
            h(
              "small",
              null,
              one.status,
              one.expires_at_utc ? [", expires ", time(one.expires_at_utc)] : "",
              one.last_used_at_utc ? [", last used ", time(one.last_used_at_utc)] : ", never used",
            ),
          ),
          h(
            "span.when.buttons",
            null,
            one.status === "active" && [
              button("Rotate", () => void rotate(one), { about: one.name ?? one.key_id }),
              button("Revoke", () => void revoke(one), { about: one.name ?? one.key_id }),
            ],
          ),
        ],
        { empty: "No key yet: everyone who reaches this machine is the administrator.", label: "Keys" },
      ),
  );

  async function create() {
    const done = await ask(
      "New key",
      [
        field("What it is for", h("input", { name: "name", maxlength: 200 })),
        field("User", h("input", { name: "user", maxlength: 200 }), "The owner of what is made with it."),
        me.all_tenants && field("Tenant", h("input", { name: "tenant", maxlength: 63 }), "Empty: yours. *: every tenant."),
        h(
          "fieldset",
          null,
          h("legend", null, "Scopes"),
          SCOPES.map((one) =>
            h("label", null, h("input", { type: "checkbox", name: `scope-${one}`, checked: one === "read" }), ` ${one} `),
          ),
        ),
        h("label", null, h("input", { type: "checkbox", name: "agent" }), " An agent uses it"),
      ],
      {
        confirm: "Create",
        command: "noonmark key create --scopes read",
        act: (values) =>
          send("POST", "/keys", {
            scopes: SCOPES.filter((one) => values[`scope-${one}`]),
            ...(values.name && { name: values.name }),
            ...(values.user && { user: values.user }),
            ...(values.tenant && { tenant: values.tenant }),
            ...(values.agent && { agent: true }),
          }),
      },
    );
    if (done) await showKey(done);
  }

  /** @param {any} one */
  async function rotate(one) {
    const done = await ask(
      `Rotate ${one.name ?? one.key_id}?`,
      h("p", null, "A new key with the same rights is made; the old one is good for a while longer."),
      {
        confirm: "Rotate",
        command: `noonmark key rotate ${one.key_id}`,
        act: () => send("POST", `/keys/${part(one.key_id)}/rotate`, {}),
      },
    );
    if (done) await showKey(done);
  }

  /** @param {any} one */
  async function revoke(one) {
    const done = await ask(`Revoke ${one.name ?? one.key_id}?`, h("p", null, "It stops working at once, and its sign-ins end."), {
      confirm: "Revoke",
      kind: "danger",
      command: `noonmark key revoke ${one.key_id}`,
      act: async () => (await send("POST", `/keys/${part(one.key_id)}/revoke`, {})) || true,
    });
    if (done) {
      notify("Revoked.");
      await load();
    }
  }

  /** @param {any} made */
  async function showKey(made) {
    await load();
    await ask("The new key", [h("p", null, "Copy it now: it is not shown again."), commandLine(made.key)], {
      confirm: "I have it",
      cancel: null,
    });
  }

  await load();
  return { title: "Keys", actions: [button("New key", () => void create(), { kind: "primary" })], body: card(null, box) };
}
