// What views share: cards, lists with a keyboard, dialogs, notices, and the states of a view without content.
import { ApiError } from "./api.js";
import { h, replace } from "./dom.js";
import { time } from "./times.js";

/** @typedef {import("./dom.js").Children} Children */

/**
 * A card with a title.
 * @param {Children} title
 * @param {...Children} children
 */
export function card(title, ...children) {
  return h("section.card", null, title && h("h2", null, title), ...children);
}

/**
 * A list of rows for scanning: arrows move, Enter opens, and letters act on the row that has the focus.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Children} cells
 * @param {{href?: (item: T) => string | null, action?: (item: T) => Children, keys?: Record<string, (item: T) => void>, empty?: Children, label?: string, of?: string, id?: (item: T) => string}} [options]
 */
export function list(items, cells, { href, action, keys = {}, empty, label, of = "row", id } = {}) {
  if (!items.length) return h("p.quiet", null, empty ?? "Nothing here.");
  const rows = items.map((item, index) => {
    const to = href?.(item);
    return h(
      `${to ? "a" : "div"}.${of}`,
      {
        href: to,
        "data-id": id?.(item),
        tabindex: index ? "-1" : "0",
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          const act =
            !event.ctrlKey && !event.metaKey && !event.altKey && event.target === event.currentTarget && keys[event.key];
          if (act) {
            event.preventDefault();
            act(item);
          }
        },
      },
      cells(item),
    );
  });
  // A link holds no button, so an action stands beside its row.
  const lines = rows.map((row, index) => {
    const beside = action?.(items[index]);
    return beside ? h("div.pair", null, row, beside) : row;
  });
  const box = h(
    "div.list",
    {
      role: "group",
      "aria-label": label,
      onfocusin: (/** @type {any} */ { target }) => {
        if (rows.includes(target)) rows.forEach((one) => one.setAttribute("tabindex", one === target ? "0" : "-1"));
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const at = rows.indexOf(/** @type {any} */ (event.target).closest?.(`.${of}`));
        const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
        if (at < 0 || next === undefined || /** @type {any} */ (event.target).matches("input, select, textarea")) return;
        event.preventDefault();
        rows[Math.min(Math.max(next, 0), rows.length - 1)].focus();
      },
    },
    lines,
  );
  return box;
}

/**
 * A button.
 * @param {Children} text
 * @param {(event: Event) => void} onclick
 * @param {{kind?: "primary" | "danger" | "plain", title?: string, disabled?: boolean, about?: string}} [options] `about`: what it acts on, where several read the same
 */
export function button(text, onclick, { kind = "plain", title, disabled = false, about } = {}) {
  return h(`button.${kind}`, { type: "button", onclick, title, disabled, "aria-label": about && `${text} ${about}` }, text);
}

/**
 * Choices of which one holds.
 * @param {string} label
 * @param {[string, string][]} choices value and text
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function segments(label, choices, chosen, choose) {
  const box = h("div.segments", { role: "group", "aria-label": label });
  replace(
    box,
    choices.map(([value, text]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          onclick: () => {
            for (const one of box.children) one.setAttribute("aria-pressed", String(one.getAttribute("data-value") === value));
            choose(value);
          },
          "data-value": value,
        },
        text,
      ),
    ),
  );
  return box;
}

/**
 * Ask in a dialog; resolves to what its form holds, or null if it was closed. `act` may refuse by throwing: then the
 * dialog stays and says why.
 * @param {string} title
 * @param {Children} body fields with a name each
 * @param {{confirm?: string, kind?: "primary" | "danger", command?: string, cancel?: string | null, act?: (values: Record<string, string>) => Promise<any>}} [options]
 * `command`: the same on the command line
 * @returns {Promise<any>}
 */
export function ask(title, body, { confirm = "OK", kind = "primary", command, cancel = "Cancel", act } = {}) {
  return new Promise((resolve) => {
    /** @type {any} */
    let outcome = null;
    const problem = h("p.problem", { role: "alert", hidden: true });
    const submit = h(`button.${kind}`, { type: "submit" }, confirm);
    const form = h(
      "form",
      {
        method: "dialog",
        onsubmit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          const values = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
          submit.disabled = true;
          try {
            outcome = act ? ((await act(values)) ?? values) : values;
            dialog.close();
          } catch (error) {
            problem.textContent = sentence(error);
            problem.hidden = false;
          } finally {
            submit.disabled = false;
          }
        },
      },
      h("h2", null, title),
      body,
      problem,
      command && commandLine(command),
      h("div.buttons", null, cancel && button(cancel, () => dialog.close()), submit),
    );
    const dialog = h(
      "dialog",
      {
        onclose: () => {
          dialog.remove();
          resolve(outcome);
        },
        "aria-label": title,
      },
      form,
    );
    document.body.append(dialog);
    dialog.showModal();
    (
      form.querySelector("input, select, textarea") ?? (kind === "danger" ? form.querySelector(".buttons button") : submit)
    ).focus();
  });
}

/**
 * The same on the command line, to copy.
 * @param {string} text
 */
export function commandLine(text) {
  return h("div.command", null, h("code", { tabindex: "0" }, text), copyButton(text));
}

/** @param {string} text */
export function copyButton(text) {
  if (!navigator.clipboard) return null; // browsers have one only over https, or on this machine
  const copy = h(
    "button.plain",
    {
      type: "button",
      "aria-label": `Copy: ${text.slice(0, 80)}`,
      onclick: async () => {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = "Copy"), 1500);
      },
    },
    "Copy",
  );
  return copy;
}

/**
 * A label with its field.
 * @param {string} text
 * @param {any} control
 * @param {string} [hint]
 */
export function field(text, control, hint) {
  return h("label.field", null, h("span", null, text), control, hint && h("small", null, hint));
}

/**
 * A line of a list of facts, for `dl.facts`.
 * @param {string} name
 * @param {Children} value
 */
export function fact(name, value) {
  return [h("dt", null, name), h("dd", null, value)];
}

/** The fields of a document that a change changed. @param {{field: string, before: any, after: any}[] | null} changes */
export function fieldChanges(changes) {
  /** @param {any} value */
  const short = (value) => {
    const text = value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
    return text.length > 200 ? `${text.slice(0, 200)}…` : text;
  };
  return (changes ?? []).map(({ field, before, after }) =>
    h("div.change", null, h("span.dim", null, field), h("del", null, short(before)), h("ins", null, short(after))),
  );
}

/** JSON or text as it is, in a block that scrolls. @param {any} value */
export function code(value) {
  return h("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

/**
 * Say something in passing.
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
export function notify(text, kind = "good") {
  const box = document.querySelector("#notices");
  const one = h(`p.notice.${kind}`, { role: kind === "bad" ? "alert" : "status" }, text);
  box?.append(one);
  setTimeout(() => one.remove(), kind === "bad" ? 10_000 : 4000);
}

/**
 * A sentence of the API: what stands between backticks is code, its instants follow the switch of zones, and an
 * occurrence can be opened unless the sentence stands in a link already.
 * @param {string | null | undefined} text
 * @param {{links?: boolean, zone?: string | null}} [options]
 */
export function said(text, { links = false, zone } = {}) {
  return (text ?? "").split("`").map((one, index) => {
    if (index % 2)
      return links && one.startsWith("occ_")
        ? h("a", { href: `#/occurrences/${one}` }, h("code", null, one))
        : h("code", null, one);
    return one
      .split(/(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.\d+)?(?: UTC|Z)/)
      .map((piece, turn) => (turn % 2 ? time(`${piece.replace(" ", "T")}Z`, zone) : piece));
  });
}

/** What went wrong, as a sentence. @param {unknown} error */
export function sentence(error) {
  const text =
    error instanceof SyntaxError ? `this is no JSON: ${error.message}` : error instanceof Error ? error.message : String(error);
  const done = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(done) ? done : `${done}.`;
}

/**
 * What a view shows instead of content when it could not read it.
 * @param {unknown} error
 * @param {() => void} again
 */
export function failure(error, again) {
  const known = error instanceof ApiError ? error : null;
  const title = known?.isOffline
    ? "The server does not answer"
    : known?.status === 404
      ? "Not found"
      : known?.status === 403
        ? "Your key may not see this"
        : "This could not be read";
  return h(
    "div.card.blank",
    { role: "alert" },
    h("h1", null, title),
    h(
      "p",
      null,
      known?.isOffline
        ? "The page tries again by itself as soon as it is back."
        : sentence(known?.status === 404 ? known.detail : error),
    ),
    known?.requestId && h("p.dim", null, "Request ", h("code", null, known.requestId)),
    button("Try again", again, { kind: "primary" }),
  );
}

/** What a view shows while it reads. */
export function loading() {
  return h("div.card.blank", { "aria-busy": "true" }, h("p.dim", null, "Reading…"));
}

/**
 * A number of things: "1 schedule", "3 schedules".
 * @param {number} count
 * @param {string} word
 */
export function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

/** Dollars, as exact as their size asks. @param {number | string | null | undefined} usd */
export function dollars(usd) {
  const value = Number(usd ?? 0);
  return `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: value && Math.abs(value) < 0.1 ? 4 : 2 })}`;
}

/**
 * A list that reads page after page.
 * @template T
 * @param {(cursor: string | null) => Promise<{items: T[], next_cursor: string | null}>} read
 * @param {(items: T[]) => Children} show
 */
export function pages(read, show) {
  const box = h("div");
  /** @type {T[]} */
  let items = [];
  /** @type {string | null} */
  let cursor = null;
  /** @param {boolean} more */
  async function load(more) {
    const page = await read(more ? cursor : null);
    items = more ? [...items, ...page.items] : page.items;
    cursor = page.next_cursor;
    replace(
      box,
      show(items),
      cursor &&
        h(
          "div.buttons",
          null,
          button("Show more", () => void load(true)),
        ),
    );
  }
  return { box, load: () => load(false) };
}
