// The page: navigation, routes, the header, keys, sign-in. Each view is a module of its own, loaded when it is opened.
import { ApiError, get, queryText, send } from "./api.js";
import { h, replace, svg } from "./dom.js";
import * as live from "./live.js";
import { ask, button, failure, field, loading, sentence } from "./parts.js";
import { MINE, chooseZone, format, now, setClock, startCounting, zoneChoice, zoneFor } from "./times.js";

/** @typedef {{tenant: string, user: string, scopes: string[], all_tenants: boolean, key_id: string | null, agent: boolean}} Me */
/**
 * What a view gets. `may` says if the key has a scope: what it may not do is not offered. `live` calls back when
 * something of these topics changed, until the view is left. `go` opens another route; `set` changes the query of this one.
 * @typedef {{params: string[], query: URLSearchParams, signal: AbortSignal, me: Me, may: (scope: string) => boolean, live: (topics: string[], act: () => void) => void, go: (hash: string) => void, set: (query: Record<string, any>) => void}} Context
 */
/** `leave` is asked before another route is opened. @typedef {{title: string, body: any, actions?: any[], keys?: Record<string, () => void>, leave?: () => Promise<boolean>}} View */

/** Routes: a pattern of the hash, the module in `views/`, and the entry of the navigation that it belongs to. */
const ROUTES = /** @type {[RegExp, string, string][]} */ ([
  [/^\/now$/, "now", "now"],
  [/^\/calendar$/, "calendar", "calendar"],
  [/^\/schedules$/, "schedules", "schedules"],
  [/^\/schedules\/([^/]+)$/, "schedule", "schedules"],
  [/^\/schedules\/([^/]+)\/edit$/, "edit", "schedules"],
  [/^\/new$/, "edit", "schedules"],
  [/^\/occurrences\/([^/]+)$/, "occurrence", "schedules"],
  [/^\/failures$/, "failures", "failures"],
  [/^\/events$/, "events", "events"],
  [/^\/workflows$/, "workflows", "workflows"],
  [/^\/workflows\/([^/]+)$/, "workflow", "workflows"],
  [/^\/workflow-runs\/([^/]+)$/, "workflow_run", "workflows"],
  [/^\/sessions$/, "sessions", "sessions"],
  [/^\/sessions\/([^/]+)$/, "session", "sessions"],
  [/^\/usage$/, "usage", "usage"],
  [/^\/approvals$/, "approvals", "approvals"],
  [/^\/nodes$/, "nodes", "nodes"],
  [/^\/keys$/, "keys", "keys"],
  [/^\/audit$/, "audit", "audit"],
]);
/** The navigation: route, text, the key after `g`, and the scope that it takes. */
const PLACES = /** @type {[string, string, string, string][]} */ ([
  ["now", "Now", "n", "read"],
  ["calendar", "Calendar", "c", "read"],
  ["schedules", "Schedules", "s", "read"],
  ["failures", "Failures", "f", "read"],
  ["events", "Events", "e", "read"],
  ["workflows", "Workflows", "w", "read"],
  ["sessions", "Sessions", "i", "read"],
  ["usage", "Usage", "u", "read"],
  ["approvals", "Approvals", "a", "read"],
  ["nodes", "Nodes", "o", "read"],
  ["audit", "Audit", "l", "read"],
  ["keys", "Keys", "k", "admin"],
]);

/** @type {Me | null} */
let me = null;
let left = new AbortController();
/** @type {Record<string, () => void>} */
let viewKeys = {};
/** @type {() => Promise<boolean>} */
let mayLeave = async () => true;
let goTimer = 0;

const main = h("main", { id: "main", tabindex: "-1" });
const navigation = h("nav", { "aria-label": "Main" });
const offline = h(
  "p.offline",
  { role: "status", hidden: true },
  "The server does not answer. What you see may be old; trying again.",
);
const clock = h("div.clock", { "aria-hidden": "true" });
const find = h("input.find", {
  type: "search",
  placeholder: "Find a schedule, label or id",
  "aria-label": "Find a schedule, label or id",
  autocomplete: "off",
  spellcheck: "false",
});

async function start() {
  startCounting();
  document.addEventListener("signed-out", () => {
    if (me) {
      me = null;
      live.disconnect();
      signIn();
    }
  });
  document.addEventListener("online-changed", (event) => {
    offline.hidden = /** @type {CustomEvent} */ (event).detail;
    if (offline.hidden) void refreshCounts();
  });
  document.addEventListener("zone-changed", () => open());
  window.addEventListener("hashchange", async ({ oldURL }) => {
    scrolls.set(entry, scrollY);
    if (await mayLeave()) {
      for (const one of document.querySelectorAll("dialog")) one.close();
      isArriving = true;
      await open();
    } else history.replaceState({ entry }, "", oldURL);
  });
  document.addEventListener("keydown", onKey);
  history.scrollRestoration = "manual"; // the browser would scroll before there is anything to scroll
  await enter();
}

/** Learn who we are; then show the page, or the sign-in. */
async function enter() {
  try {
    me = await get("/whoami");
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return signIn();
    replace(document.body, h("div.alone", null, failure(error, enter)));
    setTimeout(() => {
      if (!me && document.querySelector(".alone")) void enter();
    }, 3000);
    return;
  }
  replace(
    document.body,
    h(
      "a.skip",
      {
        href: "#main",
        onclick: (/** @type {Event} */ event) => {
          event.preventDefault();
          main.focus();
        },
      },
      "Skip to content",
    ),
    h("div.app", null, navigation, h("div.page", null, header(), offline, main)),
    h("div", { id: "notices" }),
  );
  showNavigation("");
  void live.connect();
  live.subscribe(["occurrences", "approvals", "schedules"], refreshCounts, new AbortController().signal);
  void refreshCounts();
  if (!location.hash.startsWith("#/")) history.replaceState(null, "", "#/now");
  await open();
}

function signIn() {
  const problem = h("p.problem", { role: "alert", hidden: true });
  const key = h("input", {
    name: "key",
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: "false",
  });
  replace(
    document.body,
    h(
      "main.alone",
      null,
      h(
        "form.card.sign-in",
        {
          onsubmit: async (/** @type {Event} */ event) => {
            event.preventDefault();
            try {
              await send("POST", "/ui/session", { key: key.value.trim() });
              await enter();
            } catch (error) {
              problem.textContent = sentence(error);
              problem.hidden = false;
              key.select();
            }
          },
        },
        h("h1", null, logo(), "Noonmark"),
        field("Key", key, "An operator makes one with: noonmark key create"),
        problem,
        h("button.primary", { type: "submit" }, "Sign in"),
      ),
    ),
  );
  document.title = "Sign in · Noonmark";
  key.focus();
}

function header() {
  let timer = 0;
  find.oninput = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => go(`/schedules?${queryText({ text: find.value.trim() })}`), 200);
  };
  find.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") find.blur();
    if (event.key !== "Enter" || !find.value.trim()) return;
    clearTimeout(timer);
    const text = find.value.trim();
    void get(`/occurrences/${encodeURIComponent(text)}`).then(
      () => go(`/occurrences/${encodeURIComponent(text)}`),
      () => go(`/schedules?${queryText({ text })}`),
    );
  };
  const zones = h("div.segments", { role: "group", "aria-label": "Zone of times" });
  const showZones = () =>
    replace(
      zones,
      /** @type {[import("./times.js").ZoneChoice, string, string][]} */ ([
        ["utc", "UTC", "UTC"],
        ["mine", MINE.split("/").pop()?.replace(/_/g, " ") ?? MINE, MINE],
        ["schedule", "Schedule’s", "the zone of each schedule"],
      ])
        .filter(([value]) => MINE !== "UTC" || value !== (zoneChoice() === "mine" ? "utc" : "mine"))
        .map(([value, text, title]) =>
          h(
            "button",
            {
              type: "button",
              title: `Times in ${title}`,
              "aria-pressed": String(zoneChoice() === value),
              onclick: () => {
                chooseZone(value);
                showZones();
                tick();
              },
            },
            text,
          ),
        ),
    );
  showZones();
  tick();
  setInterval(tick, 1000);
  return h("header", null, h("div.find-box", null, find, h("kbd", { "aria-hidden": "true" }, "/")), zones, clock);
}

function tick() {
  const zone = zoneFor("UTC"),
    at = now();
  const time = format(at, zone, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  if (clock.firstChild?.textContent === time) return;
  replace(
    clock,
    h("b", null, time),
    h("small", null, `${format(at, zone, { weekday: "short", day: "numeric", month: "short" })}, ${zone}`),
  );
}

/** @type {Record<string, number>} */
let numbers = {};

async function refreshCounts() {
  if (!me?.scopes.includes("read")) return;
  try {
    const overview = await get("/overview", { timezone: zoneFor("UTC") });
    setClock(overview.now_utc);
    numbers = {
      schedules: overview.schedules?.total ?? 0,
      failures: overview.failed_last_day ?? 0,
      approvals: (overview.approvals_waiting ?? 0) + (overview.proposals_waiting ?? 0),
    };
    showNavigation();
  } catch {
    // The view itself says what is wrong.
  }
}

let place = "";

/** @param {string} [at] */
function showNavigation(at = place) {
  place = at;
  const shown = PLACES.filter(([, , , scope]) => me?.scopes.includes(scope));
  replace(
    navigation,
    h("a.brand", { href: "#/now" }, logo(), "Noonmark"),
    h(
      "div.places",
      null,
      shown.map(([route, text]) =>
        h(
          "a",
          { href: `#/${route}`, "aria-current": route === at ? "page" : null },
          text,
          numbers[route]
            ? h(`span.${route === "schedules" ? "count" : "alarm"}`, null, numbers[route].toLocaleString("en"))
            : null,
        ),
      ),
    ),
    h(
      "div.who",
      null,
      h(
        "span",
        { title: `tenant ${me?.tenant}` },
        me?.user === "local" && !me?.key_id ? "No key is set" : `${me?.user} · ${me?.tenant}`,
      ),
      me?.all_tenants && me.key_id && button("Another tenant", () => void changeTenant()),
      button("Keyboard (?)", help),
      me?.key_id && button("Sign out", () => leave(false)),
      me?.key_id && button("Sign out everywhere", () => leave(true)),
    ),
  );
}

/** A key of every tenant acts for one of them at a time. */
async function changeTenant() {
  const done = await ask(
    "Act for which tenant?",
    field("Tenant", h("input", { name: "tenant", value: me?.tenant ?? "", maxlength: 63 }), "Empty: that of your key."),
    {
      confirm: "Change",
      act: async ({ tenant }) => {
        sessionStorage.setItem("noonmark.tenant", tenant.trim());
        return true;
      },
    },
  );
  if (done) location.reload();
}

/** @param {boolean} everywhere */
async function leave(everywhere) {
  await send("DELETE", everywhere ? "/ui/session?everywhere=true" : "/ui/session").catch(() => null);
  sessionStorage.removeItem("noonmark.tenant");
  location.hash = "#/now";
  location.reload();
}

function logo() {
  return svg(
    "svg.logo",
    { viewBox: "0 0 20 20", width: 20, height: 20, "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 10, r: 8.5 }),
    svg("path.noon-hand", { d: "M10 1.5V18.5" }),
    svg("path", { d: "M10 10L15 6.5" }),
  );
}

/** @param {string} hash */
function go(hash) {
  location.hash = hash.startsWith("#") ? hash : `#${hash}`;
}

/** @type {Map<string, number>} */
const failedLoads = new Map();

/** The module of a view. A browser remembers a module that it could not load, so the next attempt has another address. @param {string} name */
async function load(name) {
  const failed = failedLoads.get(name) ?? 0;
  try {
    return await import(`./views/${name}.js${failed ? `?${failed}` : ""}`);
  } catch (error) {
    failedLoads.set(name, failed + 1);
    throw error instanceof TypeError ? new ApiError(0, { code: "offline", detail: "the server does not answer" }) : error;
  }
}

/** How far each entry of the history was scrolled: a new one begins at its top, and the way back ends where it began. @type {Map<number, number>} */
const scrolls = new Map();
let entry = 0,
  isArriving = true;

function arrive() {
  if (!isArriving) return;
  isArriving = false;
  entry = history.state?.entry ?? Math.max(0, ...scrolls.keys()) + 1;
  history.replaceState({ entry }, "");
  scrollTo(0, scrolls.get(entry) ?? 0);
}

/** Open the view that the hash names. The one before stays until there is something to show instead. */
async function open() {
  if (!me) return;
  const [path, query = ""] = location.hash.slice(1).split("?", 2);
  const route = ROUTES.find(([pattern]) => pattern.test(path));
  left.abort();
  const mine = (left = new AbortController());
  viewKeys = {};
  mayLeave = async () => true;
  if (!route) return go("/now");
  const [pattern, name, at] = route;
  showNavigation(at);
  const wait = setTimeout(() => replace(main, loading()), 150);
  const params = /** @type {RegExpMatchArray} */ (path.match(pattern)).slice(1).map(decodeURIComponent);
  const asked = new URLSearchParams(query);
  if (document.activeElement !== find) find.value = at === "schedules" && name === "schedules" ? (asked.get("text") ?? "") : "";
  try {
    /** @type {{default: (context: Context) => Promise<View>}} */
    const module = await load(name);
    const view = await module.default({
      params,
      query: asked,
      signal: mine.signal,
      me,
      may: (scope) => Boolean(me?.scopes.includes(scope)),
      go,
      live: (topics, act) => live.subscribe(topics, act, mine.signal),
      set: (changes) => {
        for (const [key, value] of Object.entries(changes))
          value === null || value === undefined || value === "" ? asked.delete(key) : asked.set(key, String(value));
        history.replaceState(history.state, "", `#${path}${asked.size ? `?${asked}` : ""}`);
      },
    });
    if (mine.signal.aborted) return;
    document.title = `${view.title} · Noonmark`;
    viewKeys = view.keys ?? {};
    mayLeave = view.leave ?? mayLeave;
    replace(main, h("div.heading", null, h("h1", null, view.title), h("div.buttons", null, view.actions)), view.body);
    arrive();
  } catch (error) {
    if (mine.signal.aborted) return;
    live.subscribe(["schedules"], open, mine.signal); // once the server is back, by itself
    replace(main, failure(error, open));
  } finally {
    clearTimeout(wait);
  }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.defaultPrevented ||
    target.closest("dialog") ||
    target.matches("input, textarea, select, [contenteditable]")
  )
    return;
  const { key } = event;
  if (goTimer) {
    clearTimeout(goTimer);
    goTimer = 0;
    const found = PLACES.find(([, , letter, scope]) => letter === key && me?.scopes.includes(scope));
    if (found) {
      event.preventDefault();
      go(`/${found[0]}`);
    }
  } else if (key === "g") {
    goTimer = setTimeout(() => (goTimer = 0), 1500);
  } else if (key === "/") {
    event.preventDefault();
    find.focus();
    find.select();
  } else if (key === "?") help();
  else if (key === "n" && (me?.scopes.includes("write") || me?.scopes.includes("propose"))) go("/new");
  else if (viewKeys[key]) {
    event.preventDefault();
    viewKeys[key]();
  } else if ((key === "ArrowDown" || key === "j") && target === document.body)
    /** @type {HTMLElement | null} */ (main.querySelector(".list [tabindex='0']"))?.focus();
}

function help() {
  const rows = [
    ["/", "find"],
    ["n", "new schedule"],
    ["↑ ↓", "move in a list"],
    ["Enter", "open"],
    ["p", "pause or resume the row"],
    ["r", "run the row now"],
    ["Esc", "close"],
    ["?", "this help"],
    ...PLACES.filter(([, , , scope]) => me?.scopes.includes(scope)).map(([, text, letter]) => [`g ${letter}`, text]),
  ];
  const dialog = h(
    "dialog",
    { onclose: () => dialog.remove(), "aria-label": "Keyboard" },
    h("h2", null, "Keyboard"),
    h(
      "dl.keys",
      null,
      rows.map(([keys, text]) => [
        h(
          "dt",
          null,
          keys.split(" ").map((one) => h("kbd", null, one)),
        ),
        h("dd", null, text),
      ]),
    ),
    h(
      "div.buttons",
      null,
      button("Close", () => dialog.close(), { kind: "primary" }),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

void start();
