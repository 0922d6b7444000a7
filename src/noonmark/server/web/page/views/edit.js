// Create and edit: a form beside its JSON, with what the schedule will do while you type.
import { ApiError, ROOT, get, idempotencyKey, part, send } from "../api.js";
import { axis } from "../axis.js";
import { h, replace } from "../dom.js";
import { ask, button, card, commandLine, dollars, notify, plural, segments, sentence } from "../parts.js";
import {
  EXAMPLES,
  HINTS,
  KINDS,
  TARGETS,
  TRIGGERS,
  choicesOf,
  fieldsOf,
  kindOf,
  labelOf,
  policyFields,
  quoted,
  setAt,
  suggestionsOf,
  valueAt,
} from "../schedule_fields.js";
import { DAY, MINE, counting, fireFormat, format, fullText, now } from "../times.js";
import { policySentences } from "../words.js";

/** @typedef {{field: string, detail: string}} Problem */
/** @typedef {{place: string, base: any, draft: any, revision: number | null, updated: string | null, phase: string | null, touched: Set<string>, open: Set<string>}} Work */

const COUNT = 400,
  LISTED = 8;
const READ_ONLY =
  /^(phase|revision|owner|source|next_.*|last_.*|counters|paused|warnings|.*_at_utc|ping_url|forecast|lineage|proposal|outcomes)$/;
/** What is being written, so that a switch of zones does not lose it. @type {Work | null} */
let kept = null;

/** @param {import("../app.js").Context} context @returns {Promise<import("../app.js").View>} */
export default async function view({ params, query, signal, may, live, go }) {
  const id = params[0] ?? "",
    place = `${id} ${query}`;
  const work = kept?.place === place ? kept : await begin(id, query.get("copy") ?? "", place, signal);
  kept = work;
  const mayWrite = may("write"),
    mayPropose = may("propose");
  let span = "next",
    fromJson = "",
    sentAs = "",
    waiting = 0,
    isBusy = false,
    isTried = false;
  let asking = new AbortController();
  /** @type {Problem[]} */
  let problems = [];
  /** What a control holds that is not a value. @type {Map<string, string>} */
  const unread = new Map();
  /** @type {Map<string, {input: any, problem: any}>} */
  const controls = new Map();

  const form = h("div.stack"),
    preview = h("section.card.preview", { "aria-label": "Preview" }, h("h2", null, "Preview"), h("p.dim", null, "Reading…"));
  const impact = h("div"),
    meanwhile = h("div"),
    commands = h("div.stack"),
    state = h("span.dim", { role: "status" });
  const json = h("textarea.mono", {
    rows: 18,
    spellcheck: "false",
    "aria-label": "The schedule as JSON",
    "aria-describedby": "json-problem",
    oninput: readJson,
  });
  const jsonProblem = h("small.problem", { id: "json-problem", role: "alert" });
  const saveButton = button(id ? "Save" : "Create", () => void save(), { kind: "primary", title: "Ctrl+Enter" });
  if (!mayWrite && mayPropose) saveButton.textContent = "Propose";
  const paste = h("textarea.mono", {
    rows: 1,
    id: "crontab",
    spellcheck: "false",
    placeholder: "*/5 * * * * /usr/bin/backup --all",
    oninput: () => {
      clearTimeout(pasting);
      pasting = window.setTimeout(readCrontab, 300);
    },
  });
  const pasted = h("small.dim", { role: "status" }, "It fills in the trigger and the command.");
  const sentences = h("small"),
    gist = h("p.gist", { "aria-hidden": "true" });
  let pasting = 0;

  const changes = () => difference(work.base, work.draft);
  const isDirty = () => Object.keys(changes()).length > 0;

  // The form

  /** A part that is folded, and stays as it is when the form is drawn again. @param {string} name @param {any} summary @param {any} content */
  function fold(name, summary, content) {
    const box = h(
      "details",
      { ontoggle: () => work.open[box.open ? "add" : "delete"](name) },
      h("summary", null, summary),
      content,
    );
    box.open = work.open.has(name);
    return box;
  }

  const controlsOf = (paths = [""]) => h("div.fields", null, paths.map(control));

  /** @param {"trigger" | "target"} name */
  function fieldsAndMore(name, first = null) {
    const [fields, more] = fieldsOf(name, work.draft);
    return [h("div.fields", null, first, fields.map(control)), more.length > 0 && fold(name, "More", controlsOf(more))];
  }

  function showForm() {
    const { draft } = work,
      type = draft.trigger?.type ?? "none",
      kind = draft.target?.target_kind ?? "";
    const focused = document.activeElement?.getAttribute("data-path");
    controls.clear();
    unread.clear();
    const types = segments(
      "Trigger",
      Object.entries(TRIGGERS).map(([name, [label]]) => [name, label]),
      type,
      (next) =>
        change(
          () => {
            const fresh = TRIGGERS[next][1];
            setAt(
              draft,
              "trigger",
              fresh
                ? {
                    type: next,
                    ...structuredClone(fresh),
                    ...(fresh.timezone && draft.trigger?.timezone && { timezone: draft.trigger.timezone }),
                  }
                : undefined,
            );
          },
          "trigger",
          true,
        ),
    );
    const kinds = h(
      "select",
      {
        id: "target-kind",
        "data-path": "target.target_kind",
        onchange: () =>
          change(
            () => {
              draft.target = { target_kind: kinds.value, ...structuredClone(TARGETS[kinds.value][1]) };
            },
            "target",
            true,
          ),
      },
      !TARGETS[kind] && h("option", { value: kind, selected: true }, kind || "choose"),
      Object.entries(TARGETS).map(([name, [label]]) => h("option", { value: name, selected: name === kind }, label)),
    );
    const kindField = h("div.field", null, h("label", { for: "target-kind" }, "Kind"), kinds);
    replace(
      form,
      card("Schedule", controlsOf(["name", "labels", "description", ...(id ? [] : ["schedule_id"])])),
      card(
        "When",
        h("div.field.paste", null, h("label", { for: "crontab" }, "Paste a line of a crontab"), paste, pasted),
        types,
        TRIGGERS[type]
          ? fieldsAndMore("trigger")
          : h("p.dim", null, "This form does not know this type of trigger; the JSON has it."),
        gist,
      ),
      card("What runs", TARGETS[kind] ? fieldsAndMore("target", kindField) : kindField),
      h(
        "section.card",
        null,
        fold(
          "policies",
          [h("h2", null, "Policies"), sentences],
          policyFields(draft).map(([title, paths]) =>
            h("fieldset", null, h("legend", null, title), h("small", { "data-of": paths.join(" ") }), controlsOf(paths)),
          ),
        ),
      ),
    );
    showSentences();
    showProblems();
    if (focused) form.querySelector(`[data-path="${CSS.escape(focused)}"]`)?.focus();
  }

  function control(path = "") {
    const kind = kindOf(path),
      hint = HINTS[path],
      label = labelOf(path),
      { draft } = work;
    const name = `f-${path.replace(/\W/g, "-")}`,
      problem = h("small.problem", { id: `${name}-problem` });
    const value = kind === "crons" ? (draft.trigger.crons ?? draft.trigger.expression) : valueAt(draft, path);
    const common = { id: name, "data-path": path, "aria-describedby": `${name}-problem${hint ? ` ${name}-hint` : ""}` };
    const isGroup = kind === "weekdays";
    /** @type {any} */
    let input;
    if (kind === "select" || kind === "policy") {
      const chosen = String((kind === "policy" ? value?.type : null) ?? value ?? ""),
        choices = choicesOf(path, draft);
      if (!choices.some(([one]) => one === chosen)) choices.unshift([chosen, chosen]);
      input = h(
        "select",
        {
          ...common,
          onchange: () =>
            change(
              () => {
                const next = input.value || undefined;
                if (path === "target.type")
                  draft.target = {
                    target_kind: draft.target.target_kind,
                    ...(draft.target.mob_id && { mob_id: draft.target.mob_id }),
                    ...(draft.target.action?.type !== "send" && draft.target.action && { action: draft.target.action }),
                    type: next,
                  };
                else if (path === "target.action.type") setAt(draft, "target.action", { type: next });
                else setAt(draft, path, next && value?.grace_seconds ? { type: next, grace_seconds: value.grace_seconds } : next);
              },
              path,
              kind === "policy" || path.endsWith("type"),
            ),
        },
        choices.map(([one, text]) => h("option", { value: one, selected: one === chosen }, text)),
      );
    } else if (kind === "check") {
      input = h("input", {
        ...common,
        type: "checkbox",
        checked: Boolean(value),
        onchange: () => change(() => setAt(draft, path, input.checked || undefined), path),
      });
    } else if (isGroup) {
      const chosen = new Set(value?.values?.map((/** @type {number} */ one) => one % 7));
      input = h(
        "div.segments",
        { id: name, role: "group", "aria-label": label },
        ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"].map((text, number) =>
          h(
            "button",
            {
              type: "button",
              "data-path": `${path} ${number}`,
              "aria-pressed": String(chosen.has(number)),
              onclick: () =>
                change(
                  () => {
                    if (!chosen.delete(number)) chosen.add(number);
                    setAt(draft, path, chosen.size ? { kind: "values", values: [...chosen].sort() } : undefined);
                  },
                  path,
                  true,
                ),
            },
            text,
          ),
        ),
      );
    } else {
      const { write, read, rows, mono, type } = KINDS[kind],
        text = write(value),
        suggest = suggestionsOf(path);
      input = h(`${rows ? "textarea" : "input"}${mono ? ".mono" : ""}`, {
        ...common,
        value: text,
        placeholder: EXAMPLES[path.replace(/^t\w+\./, "")],
        type: rows ? null : type,
        step: type && 1,
        rows: rows && Math.min(12, Math.max(rows, text.split("\n").length)),
        list: suggest && suggestions(suggest),
        autocomplete: "off",
        spellcheck: "false",
        oninput: () => {
          unread.delete(path);
          try {
            const next = read(input.value);
            change(() => {
              setAt(draft, path, kind === "crons" && Array.isArray(next) ? undefined : next);
              if (kind === "crons") setAt(draft, "trigger.crons", Array.isArray(next) ? next : undefined);
              // Either of them, and one takes the place of the other.
              if (next && /due_at|delay/.test(path)) clear(path.includes("due") ? "trigger.delay_seconds" : "trigger.due_at_utc");
              if (path === "target.action.content") setAt(draft, "target.action.type", "send");
            }, path);
          } catch (error) {
            work.touched.add(path);
            unread.set(path, /** @type {Error} */ (error).message);
            showProblems();
          }
        },
      });
    }
    controls.set(path, { input, problem });
    if (kind === "crons") controls.set("trigger.crons", { input, problem });
    return h(
      "div.field",
      { class: /json|area|words|body/.test(kind) || isGroup || path.endsWith("url") ? "wide" : kind === "check" ? kind : "" },
      h(isGroup ? "span" : "label", { for: isGroup ? null : name }, label),
      input,
      hint && h("small", { id: `${name}-hint` }, hint),
      problem,
    );
  }

  function clear(path = "") {
    setAt(work.draft, path, undefined);
    const other = controls.get(path);
    if (other) other.input.value = "";
  }

  /** The id of a list of suggestions, read when it is first needed. */
  function suggestions(name = "") {
    const at = `suggest-${name}`;
    if (document.getElementById(at) || lists.has(name)) return at;
    const list = h("datalist", { id: at });
    lists.set(name, list);
    body.append(list);
    const fill = (/** @type {[string, string?][]} */ all) =>
      replace(
        list,
        all.map(([value, text]) => h("option", { value }, text)),
      );
    if (name === "zones") fill(["UTC", ...Intl.supportedValuesOf("timeZone")].map((one) => [one]));
    else if (name === "functions")
      void get("/nodes", {}, signal).then(
        ({ nodes }) =>
          fill(
            [...new Set(nodes.flatMap((/** @type {any} */ one) => one.routes))]
              .filter((one) => String(one).startsWith("function:"))
              .map((one) => [String(one).slice(9)]),
          ),
        () => null,
      );
    else
      void get(`/${name}`, { limit: 200 }, signal).then(
        (answer) => fill(answer[name].map((/** @type {any} */ one) => [one[`${name.slice(0, -1)}_id`], one.name])),
        () => null,
      );
    return at;
  }
  /** @type {Map<string, any>} */
  const lists = new Map();

  /** The policies in words, all of them and those of each group. */
  function showSentences() {
    sentences.textContent =
      policySentences(work.draft).join(" ") || "As usual: one run at a time, missed fires are skipped, one attempt.";
    for (const one of form.querySelectorAll("[data-of]"))
      one.textContent = policySentences(
        Object.fromEntries(
          one.dataset.of.split(" ").map((/** @type {string} */ path) => [path.split(".")[0], work.draft[path.split(".")[0]]]),
        ),
      ).join(" ");
  }

  // Changes, both ways

  /** @param {() => void} act @param {string} path @param {boolean} [redraws] */
  function change(act, path, redraws = false) {
    act();
    work.touched.add(path);
    sentAs = "";
    showJson();
    if (redraws) showForm();
    schedulePreview();
  }

  function showJson() {
    fromJson = written(work.draft);
    json.value = fromJson;
    jsonProblem.textContent = "";
    json.removeAttribute("aria-invalid");
    showRest();
  }

  function readJson() {
    try {
      const read = JSON.parse(json.value);
      if (read === null || typeof read !== "object" || Array.isArray(read)) throw new Error("it must be an object");
      for (const name of Object.keys(read)) if (READ_ONLY.test(name)) delete read[name];
      jsonProblem.textContent = "";
      json.removeAttribute("aria-invalid");
      if (written(read) === fromJson) return;
      fromJson = written(read);
      work.draft = read;
      work.touched.add("");
      sentAs = "";
      showForm();
      showRest();
      schedulePreview();
    } catch (error) {
      jsonProblem.textContent = sentence(`This is not JSON yet: ${/** @type {Error} */ (error).message}`);
      json.setAttribute("aria-invalid", "true");
    }
  }

  async function readCrontab() {
    const text = paste.value.trim();
    paste.rows = Math.min(6, paste.value.split("\n").length);
    if (!text) return;
    try {
      const {
        schedules,
        problems: wrong,
        notes,
      } = await send("POST", "/crontabs/read", { text, timezone: work.draft.trigger?.timezone ?? MINE }, signal);
      const said = [...wrong, ...notes].map((/** @type {any} */ one) => sentence(one.detail)).join(" ");
      pasted.className = wrong.length ? "problem" : "dim";
      if (!schedules.length) {
        pasted.textContent = said;
        return;
      }
      const { schedule } = schedules[0];
      change(
        () => {
          work.draft.trigger = schedule.trigger;
          work.draft.target = schedule.target;
          for (const name of ["name", "description", "labels"])
            if (schedule[name] && !work.draft[name]) work.draft[name] = schedule[name];
        },
        "trigger",
        true,
      );
      pasted.textContent = `${schedules.length > 1 ? `The first of ${schedules.length} lines is` : "Trigger and command are"} filled in. ${said}`;
    } catch (error) {
      pasted.className = "problem";
      pasted.textContent = sentence(error);
    }
  }

  // Problems, at the fields they name

  function showProblems() {
    for (const { input, problem } of controls.values()) {
      problem.textContent = "";
      input.removeAttribute("aria-invalid");
    }
    const rest = [];
    for (const { field, detail } of [...[...unread].map(([path, text]) => ({ field: path, detail: text })), ...problems]) {
      const path = [...controls.keys()]
        .filter((one) => field === one || field.startsWith(`${one}.`) || field.startsWith(`${one}[`))
        .sort((one, other) => other.length - one.length)[0];
      const isShown = isTried || work.touched.has("") || [...work.touched].some((one) => one === path || one === field);
      const found = path && controls.get(path);
      if (!found) rest.push(field ? `${field}: ${detail}` : detail);
      else if (isShown && !found.problem.textContent) {
        found.problem.textContent = sentence(
          field === path ? detail : `${field.slice(path.length).replace(/^\./, "")} ${detail}`,
        );
        found.input.setAttribute("aria-invalid", "true");
      }
    }
    const count = problems.length + unread.size;
    state.className = rest.length ? "problem" : "dim";
    state.textContent = rest.length
      ? sentence(rest[0])
      : count
        ? `${plural(count, "field")} to fill in or to correct`
        : !isDirty()
          ? id
            ? "Nothing is changed yet."
            : ""
          : "Ready.";
  }

  function focusProblem() {
    const first = form.querySelector("[aria-invalid]");
    const fold = first?.closest("details");
    if (fold) fold.open = true;
    /** @type {HTMLElement | null} */ (first)?.focus();
  }

  // The preview

  function schedulePreview() {
    clearTimeout(waiting);
    waiting = window.setTimeout(() => void loadPreview(), 180);
  }

  async function loadPreview() {
    asking.abort();
    const mine = (asking = new AbortController());
    signal.addEventListener("abort", () => mine.abort(), { once: true });
    preview.setAttribute("aria-busy", "true");
    try {
      const changed = changes();
      const { checks } = await send(
        "POST",
        "/schedule-checks",
        { schedules: [id ? { ...changed, schedule_id: id } : work.draft] },
        mine.signal,
      );
      problems = checks[0].problems;
      showProblems();
      const wrong = new Set(problems.map((one) => one.field.split(/[.[]/)[0]));
      const good = Object.fromEntries(Object.entries(id ? changed : work.draft).filter(([name]) => !wrong.has(name)));
      if (wrong.has("trigger")) {
        showPreview(null, checks[0].warnings);
        return;
      }
      let answer = null;
      if (id)
        answer = await send(
          "POST",
          "/schedules/preview",
          { schedule_id: id, changes: Object.keys(changed).length ? good : null, count: COUNT },
          mine.signal,
        );
      else if (work.draft.trigger)
        answer = await send(
          "POST",
          "/schedules/preview",
          { trigger: work.draft.trigger, target: good.target, key: work.draft.schedule_id ?? "", count: COUNT },
          mine.signal,
        );
      else answer = { fires: [], description: "when the schedules it depends on have completed", warnings: [] };
      showPreview(answer, checks[0].warnings);
    } catch (error) {
      if (mine.signal.aborted) return;
      replace(
        preview,
        h("h2", null, "Preview"),
        h("p.problem", { role: "alert" }, sentence(error)),
        button("Try again", () => void loadPreview()),
      );
    } finally {
      if (asking === mine) preview.removeAttribute("aria-busy");
    }
  }

  /** @param {any} answer null if the trigger is not valid @param {string[]} warnings */
  function showPreview(answer, warnings) {
    if (!answer) {
      const [first] = problems.filter((one) => one.field.startsWith("trigger"));
      replace(
        preview,
        h("h2", null, "Preview"),
        h(
          "p.dim",
          null,
          "The trigger is not complete yet: ",
          first.field.replace(/^trigger\.?/, "").replace(/_/g, " "),
          " ",
          first.detail,
        ),
      );
      replace(impact);
      replace(gist);
      return;
    }
    const fires = answer.fires.map(Date.parse),
      before = answer.impact?.before.map(Date.parse),
      zone = work.draft.trigger?.timezone ?? "UTC";
    const spans = spansOf(fires, before ?? []),
      picture = h("div");
    const draw = () => {
      const here = now(),
        [, , to] = spans.find(([name]) => name === span) ?? spans[0],
        from = here - (to - here) / 14;
      const rows = [before && lane("before", before.filter(isShown), zone), lane("after", fires.filter(isShown), zone)].filter(
        Boolean,
      );
      /** @param {number} one */
      function isShown(one) {
        return one <= to;
      }
      replace(
        picture,
        axis({
          rows,
          from,
          to,
          bucketSeconds: 1,
          label: "The next fires",
          named: rows.length > 1,
          zone,
          edges: answer.clock_changes?.map((/** @type {any} */ one) => ({ at: Date.parse(one.at_utc), text: one.text })),
        }),
      );
    };
    const type = work.draft.trigger?.type;
    replace(
      preview,
      h(
        "div.heading",
        null,
        h("h2", null, "Preview"),
        spans.length > 1 &&
          segments(
            "How far",
            spans.map(([name, text]) => [name, text]),
            spans.some(([name]) => name === span) ? span : "next",
            (value) => {
              span = value;
              draw();
            },
          ),
      ),
      h("p.words", null, sentence(answer.description)),
      [
        work.phase === "paused" && "the schedule is paused: nothing fires until it is resumed",
        ...new Set([...warnings, ...answer.warnings]),
      ].map((one) => one && h("p.warning", null, sentence(one))),
      fires.length
        ? [picture, times(fires, zone)]
        : h("p.dim", null, !type || type === "event" ? "It has no times of its own." : "Nothing fires any more."),
      answer.clock_changes?.length > 0 && [
        h("h3", null, "Clock changes of the coming year"),
        h(
          "ul.changes",
          null,
          answer.clock_changes.map((/** @type {any} */ one) =>
            h("li", { class: one.is_affected ? "affected" : "" }, sentence(one.text)),
          ),
        ),
      ],
      answer.forecast?.expected_usd &&
        h("p.dim", null, `This month it is expected to cost ${dollars(answer.forecast.expected_usd)}.`),
    );
    if (fires.length) draw();
    replace(gist, sentence(answer.description), fires.length > 0 && [" Next ", counting(answer.fires[0], { zone }), "."]);
    replace(impact, answer.impact && impactCard(answer.impact, zone));
  }

  // Saving

  function showRest() {
    showSentences();
    const changed = changes(),
      path = id ? `/schedules/${part(id)}` : "/schedules";
    const document = JSON.stringify(id ? changed : work.draft);
    const origin = location.origin + ROOT;
    const cli = id
      ? `noonmark schedule update ${quoted(id)}${work.revision === null ? "" : ` --expected-revision ${work.revision}`} --schedule-json ${quoted(document)}`
      : `noonmark schedule create --schedule-json ${quoted(document)}`;
    const curl = `curl ${id ? "-X PATCH " : ""}${origin}${path} -H 'Content-Type: application/json' -H "Authorization: Bearer $NOONMARK_KEY" -d ${quoted(id && work.revision !== null ? JSON.stringify({ ...changed, expected_revision: work.revision }) : document)}`;
    replace(commands, h("h3", null, "Command line"), commandLine(cli), h("h3", null, "HTTP"), commandLine(curl));
    saveButton.disabled = isBusy || !isDirty();
  }

  async function save() {
    if (isBusy || !isDirty() || !(mayWrite || mayPropose)) return;
    isTried = true;
    if (jsonProblem.textContent) {
      json.focus();
      return;
    }
    if (unread.size) {
      showProblems();
      focusProblem();
      return;
    }
    isBusy = saveButton.disabled = true;
    try {
      sentAs = sentAs || idempotencyKey();
      const answer = id
        ? await send("PATCH", `/schedules/${part(id)}`, {
            ...changes(),
            expected_revision: work.revision,
            expected_updated_at_utc: work.updated,
          })
        : await send("POST", "/schedules", { ...work.draft, idempotency_key: sentAs });
      kept = null;
      done = true;
      if (answer.proposal) notify("Proposed. It waits for somebody to approve it.");
      else notify(id ? "Saved." : `${answer.name ?? answer.schedule_id} is created.`);
      if (answer.ping_url)
        await ask(
          "The job calls this URL",
          [
            h("p", null, "Anyone who knows it can call it."),
            commandLine(`curl -fsS ${answer.ping_url}`),
            h("p", null, "To see it again:"),
            commandLine(`noonmark schedule ping-url ${quoted(answer.schedule_id)}`),
          ],
          { confirm: "I have it" },
        );
      go(answer.phase === "proposed" ? "/approvals" : `/schedules/${part(answer.schedule_id)}`);
    } catch (error) {
      if (error instanceof ApiError && error.code === "revision_conflict") {
        isBusy = false;
        await follow();
        meanwhile.querySelector("button")?.focus();
      } else {
        const named = error instanceof ApiError ? error.problems : [];
        problems = named.length
          ? named
          : error instanceof ApiError && error.field
            ? [{ field: error.field, detail: error.detail }]
            : [];
        showProblems();
        if (!problems.length) notify(sentence(error), "bad");
        focusProblem();
      }
    } finally {
      isBusy = false;
      saveButton.disabled = !isDirty();
    }
  }
  let done = false;

  /** @param {any} theirs */
  function theirChanges(theirs) {
    const mine = changes();
    return h(
      "ul.changes",
      null,
      Object.entries(difference(work.base, declared(theirs))).map(([name, value]) =>
        h(
          "li",
          null,
          h("b", null, name.replace(/_/g, " ")),
          ` is now ${brief(value)}`,
          name in mine && h("small", null, ` (you changed it too: yours is ${brief(mine[name])})`),
        ),
      ),
      theirs.phase !== work.phase && h("li", null, `It is ${theirs.phase}.`),
    );
  }

  /** @param {any} theirs */
  function mergeTheirs(theirs) {
    const mine = changes();
    work.base = declared(theirs);
    Object.assign(work, versionOf(theirs));
    work.draft = structuredClone(work.base);
    for (const [name, value] of Object.entries(mine))
      if (value === null) delete work.draft[name];
      else work.draft[name] = value;
    replace(meanwhile);
    showForm();
    showJson();
    void loadPreview();
  }

  async function follow() {
    if (!id || isBusy || done) return;
    const theirs = await get(`/schedules/${part(id)}`, {}, signal);
    if (theirs.updated_at_utc === work.updated) return;
    if (theirs.phase === work.phase && !Object.keys(difference(work.base, declared(theirs))).length)
      Object.assign(work, versionOf(theirs));
    else if (!isDirty()) mergeTheirs(theirs);
    else
      replace(
        meanwhile,
        h(
          "section.card",
          { role: "status" },
          h("h2", null, "It was changed meanwhile"),
          theirChanges(theirs),
          h(
            "div.buttons",
            null,
            button("Take this in, keep my changes", () => mergeTheirs(theirs)),
          ),
        ),
      );
  }

  const body = h(
    "div.stack",
    null,
    meanwhile,
    !mayWrite &&
      !mayPropose &&
      h("p.warning", null, "Your key may not change schedules. You can see here what a change would do."),
    h(
      "div.editor",
      null,
      h(
        "div.stack",
        null,
        form,
        h(
          "div.save",
          null,
          state,
          h(
            "div.buttons",
            null,
            button("Cancel", () => go(id ? `/schedules/${part(id)}` : "/schedules")),
            (mayWrite || mayPropose) && saveButton,
          ),
        ),
      ),
      h(
        "div.stack.beside",
        null,
        preview,
        impact,
        h("section.card", null, h("h2", null, "JSON"), json, jsonProblem),
        card("The same elsewhere", commands),
      ),
    ),
  );
  showJson();
  showForm();
  void loadPreview();
  live(["schedules"], () => void follow().catch(() => null));
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        void save();
      }
    },
    { signal },
  );
  window.addEventListener(
    "beforeunload",
    (event) => {
      if (isDirty() && !done) event.preventDefault();
    },
    { signal },
  );
  return {
    title: id ? `Edit ${work.base.name ?? id}` : "New schedule",
    body,
    leave: async () => {
      if (
        done ||
        !isDirty() ||
        (await ask("Leave without saving?", h("p", null, "What you have written is lost."), { confirm: "Leave", kind: "danger" }))
      ) {
        kept = null;
        return true;
      }
      return false;
    },
  };
}

/** What is written at first: the schedule, a copy of another, or something to begin with. @param {AbortSignal} signal @returns {Promise<Work>} */
async function begin(id = "", copy = "", place = "", signal) {
  const found = id || copy ? await get(`/schedules/${part(id || copy)}`, {}, signal) : null;
  const base = found ? declared(found) : {};
  const draft = found
    ? structuredClone(base)
    : { trigger: { type: "cron", ...TRIGGERS.cron[1] }, target: { target_kind: "http", ...TARGETS.http[1] } };
  if (copy) {
    delete draft.schedule_id;
    if (draft.name) draft.name += " (copy)";
  }
  return {
    place,
    base: id ? base : structuredClone(copy ? {} : draft),
    draft,
    touched: new Set(),
    open: new Set(),
    ...(id ? versionOf(found) : { revision: null, updated: null, phase: null }),
  };
}

/** @param {any} schedule */
const versionOf = ({ revision, updated_at_utc: updated, phase }) => ({ revision, updated, phase });

/** What a schedule declares, without what the server adds. @param {any} schedule */
function declared(schedule) {
  return Object.fromEntries(Object.entries(schedule).filter(([name]) => !READ_ONLY.test(name) && name !== "schedule_id"));
}

/** The fields that differ, as an update sends them: null takes one out. @param {any} before @param {any} after @returns {Record<string, any>} */
function difference(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return Object.fromEntries(
    names
      .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
      .map((name) => [name, after[name] === undefined ? null : after[name]]),
  );
}

/** JSON to read: the first fields in their usual order, short lists on a line. @param {any} document */
function written(document) {
  const names = new Set(["schedule_id", "name", "description", "labels", "trigger", "target", ...Object.keys(document)]);
  return JSON.stringify(
    Object.fromEntries([...names].filter((name) => name in document).map((name) => [name, document[name]])),
    null,
    2,
  ).replace(/\[\n\s*([^[\]{}]{0,200}?)\n\s*\]/g, (_, inner) => `[${inner.replace(/\n\s*/g, " ")}]`);
}

/** @param {any} value */
function brief(value) {
  const text = value === null ? "gone" : typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

/** How far the picture may reach: as far as all fires are known. @param {number[][]} all @returns {[string, string, number][]} */
function spansOf(...all) {
  const here = now(),
    [fires] = all,
    next = fires[Math.min(11, fires.length - 1)] ?? here;
  const until = Math.min(...all.map((one) => (one.length < COUNT ? Infinity : one[COUNT - 1])));
  const spans = /** @type {[string, string, number][]} */ ([
    ["day", "Day", DAY],
    ["week", "Week", 7 * DAY],
    ["month", "Month", 31 * DAY],
    ["year", "Year", 366 * DAY],
  ]);
  return [
    ["next", "Next", Math.min(until, next + (next - here) / 12 + 1000)],
    ...spans
      .map(([name, text, length]) => /** @type {[string, string, number]} */ ([name, text, here + length]))
      .filter(([, , to]) => fires[0] < to && to <= until),
  ];
}

/** A row of the picture. @param {number[]} fires @returns {import("../axis.js").Row} */
const lane = (name = "", fires, zone = "") => ({
  schedule_id: null,
  name,
  timezone: zone,
  buckets: null,
  marks: fires.map((one) => ({ occurrence_id: null, at_utc: new Date(one).toISOString(), state: "planned" })),
});

/** The next fires: in the zone of the schedule, in that of the viewer, and how far away. */
function times(fires = [0], zone = "") {
  const zones = zone === MINE ? [zone] : [zone, MINE];
  const wall = fireFormat(fires.slice(0, LISTED));
  return h(
    "div.table",
    null,
    h(
      "table.times",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          zones.map((one) => h("th", { scope: "col" }, one)),
          h("th.right", { scope: "col" }, "In"),
        ),
      ),
      h(
        "tbody",
        null,
        fires.slice(0, LISTED).map((at) =>
          h(
            "tr",
            null,
            zones.map((one) => h("td", { title: fullText(at, one) }, wall(at, one))),
            h("td.right.dim", null, counting(new Date(at).toISOString(), { zone })),
          ),
        ),
      ),
    ),
    fires.length > LISTED && h("small", null, fires.length < COUNT ? `${fires.length} fires in all.` : ""),
  );
}

/** @param {any} impact @param {string} zone */
function impactCard(impact, zone) {
  const at = (/** @type {string} */ one) =>
    h("time", { datetime: one, title: fullText(one, zone) }, fireFormat([one])(one, zone));
  const counts = [
    [impact.kept, "stay"],
    [impact.moved, "move"],
    [impact.added, "are added"],
    [impact.removed, "are removed"],
  ].filter(([count]) => count);
  return h(
    "section.card",
    { role: "status" },
    h("h2", null, "What saving does"),
    h(
      "p",
      null,
      counts.length
        ? `Of the fires until ${format(impact.until_utc, zone, { day: "numeric", month: "short", year: "numeric" })}, ${counts.map(([count, text]) => `${count} ${text}`).join(", ")}.`
        : "No fire changes.",
      impact.revision_after !== impact.revision_before
        ? ` It becomes revision ${impact.revision_after}. What runs finishes as it began.`
        : "",
    ),
    impact.fires.length > 0 &&
      h(
        "ul.changes",
        null,
        impact.fires
          .slice(0, LISTED)
          .map((/** @type {any} */ one) =>
            h(
              "li",
              { class: one.before_utc && one.after_utc ? "moved" : one.after_utc ? "added" : "removed" },
              one.before_utc && one.after_utc
                ? [at(one.before_utc), " → ", at(one.after_utc)]
                : at(one.after_utc ?? one.before_utc),
            ),
          ),
      ),
    impact.fires.length > LISTED && h("small", null, `and ${impact.fires.length - LISTED} more`),
    impact.changes.length > 0 &&
      h(
        "dl.facts",
        null,
        impact.changes.map((/** @type {any} */ one) => [
          h("dt", null, one.field),
          h("dd", null, h("del", null, brief(one.before)), " ", h("ins", null, brief(one.after))),
        ]),
      ),
  );
}
