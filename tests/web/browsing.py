"""A page in a real browser: what it complains about is kept, and fails the test."""

import re
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.embedded.waiting import SOON, eventually
from tests.web.chromium import flags

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
WATCH = """
    globalThis.pendingRequests = 0;
    const plainFetch = globalThis.fetch;
    globalThis.fetch = async (...words) => {
        pendingRequests += 1;
        try {
            const answer = await plainFetch(...words);
            const text = answer.text.bind(answer);
            answer.text = async () => { pendingRequests += 1; try { return await text(); } finally { done(); } };
            return answer;
        } finally { done(); }
    };
    // Whoever waited for the answer draws first.
    const done = () => setTimeout(() => { pendingRequests -= 1; });
    addEventListener("securitypolicyviolation", (event) => console.error(
        `policy violation: ${event.violatedDirective} by ${event.blockedURI} ${event.sample}`));
    addEventListener("unhandledrejection", (event) => console.error(`unhandled rejection: ${event.reason}`));
"""
VIEW = "main > .heading > h1"
"""What every view has as soon as it shows something."""
VERY_LONG = 1_000 * SOON
"""Milliseconds that only a failure takes."""


@contextmanager
def browsing(executable):
    """A browser until the block ends. Playwright keeps an event loop in this thread: nothing else may run one then."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - after the fork of the worker

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags())
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One tab in a context of its own, on a server."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce"} | options)
        self.context.set_default_timeout(VERY_LONG)
        self.context.add_init_script(WATCH)
        self.url, self._complaints, self._forgiven = url, [], []
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._complaints.append(f"uncaught: {error}"))
        self.page.on("dialog", self._refuse)

    def _hear(self, message):
        if message.type in ("error", "warning"):
            where = message.location or {}
            self._complaints.append(f"{message.type}: {message.text} ({where.get('url')}:{where.get('lineNumber')})")

    def _refuse(self, dialog):
        self._complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def forgive(self, *patterns):
        """Expect these complaints."""
        self._forgiven += [re.compile(pattern) for pattern in patterns]

    @property
    def complaints(self):
        """Errors and warnings in the console, violations of the policy, uncaught exceptions, and dialogs."""
        return [one for one in self._complaints if not any(pattern.search(one) for pattern in self._forgiven)]

    def open(self, route=""):
        """Show a view, and wait until it has its data."""
        self.page.goto("about:blank")  # else a route would only replace the view that is shown
        self.page.goto(f"{self.url}/ui{route}")
        return self._shown()

    def move(self, route):
        """Show another view on the page that is open, and wait until it has its data."""
        if self.page.url == "about:blank":
            return self.open(route)
        self.page.evaluate("hash => { document.querySelector('main').replaceChildren(); location.hash = hash; }", route)
        return self._shown()

    def _shown(self):
        self.page.locator(f"{VIEW}, [role=alert]").first.wait_for()
        assert self.page.locator(VIEW).is_visible(), self.page.locator("[role=alert]").first.inner_text()
        self.settle()
        return self.page

    def settle(self):
        """Wait until the page has read what it reads by itself."""
        eventually(lambda: self.page.evaluate("pendingRequests === 0"))

    def text(self):
        """What the view shows."""
        return self.page.locator("main").inner_text()

    def close(self):
        """Close the tab. Raises if the page has complained."""
        complaints = self.complaints
        self.context.close()
        assert not complaints, "\n".join(complaints)


@contextmanager
def visiting(browser, url, **options):
    """A tab until the block ends."""
    visit = Visit(browser, url, **options)
    try:
        yield visit
    except BaseException:
        print("\n".join(visit.complaints))  # noqa: T201 - pytest shows it beside the failure
        visit.context.close()
        raise
    visit.close()


@cache
def axe_source():
    """The code of axe-core, from the wheel that carries it."""
    return (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text()


def violations(page, *rules):
    """What axe finds wrong with a page, a line for each element; by some rules, or by all."""
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(axe_source())
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]} at {node['target']}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]
