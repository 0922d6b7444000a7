"""The page while things happen: it shows them without a reload, survives its server, and does not grow."""

import pytest

from tests.service.server import serving
from tests.web.browsing import visiting

FUNCTIONS = """
def fail(**words):
    raise ConnectionError("nobody answers")
"""
FLAGS = ("--function", "fail=work:fail")
NEVER = {"type": "cron", "expression": "0 0 1 1 *", "timezone": "UTC"}
FAST_HINTS = """
    // Hints come when the test says so, and views read at once.
    const fetched = globalThis.fetch, encoder = new TextEncoder();
    globalThis.fetch = (url, ...rest) => {
        if (!String(url).endsWith("/stream")) return fetched(url, ...rest);
        const body = new ReadableStream({start: (stream) => (globalThis.stream = stream)});
        globalThis.hint = (data) => stream.enqueue(encoder.encode(`event: change\\ndata: ${data}\\n\\n`));
        return Promise.resolve(new Response(body));
    };
    const later = globalThis.setTimeout;
    globalThis.setTimeout = (act, wait, ...words) => later(act, wait === 300 ? 0 : wait, ...words);
"""
UPDATE = """
    async (count) => {
        const data = JSON.stringify({counter: 1, topics: ["schedules", "occurrences", "runs", "nodes"]});
        let drawn = 0;
        const watch = new MutationObserver(() => (drawn += 1));
        watch.observe(document.querySelector("main"), {childList: true, subtree: true});
        for (let number = 0; number < count; number += 1) {
            const before = drawn;
            for (let again = 0; again < 10; again += 1) hint(data);
            while (drawn === before || pendingRequests) await new Promise(requestAnimationFrame);
        }
        watch.disconnect();
    }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work.py").write_text(FUNCTIONS)
    return tmp_path


def create(server, name):
    """A schedule that fails when it runs."""
    target = {"target_kind": "function", "function": "fail"}
    document = {"schedule_id": name, "name": name, "trigger": NEVER, "target": target}
    assert server.ask("POST", "/schedules", document).status == 201


def test_what_happens_is_shown_without_a_reload(browser, folder):
    with serving(folder, *FLAGS) as server, visiting(browser, server.url) as visit:
        page = visit.open("#/now")
        page.get_by_role("heading", name="No schedule yet").wait_for()
        page.evaluate("globalThis.isSame = true")
        create(server, "first")
        page.get_by_label("Up next").get_by_text("first").wait_for()
        assert server.ask("POST", "/schedules/first/run", {}).status < 300
        page.get_by_label("Needs attention").get_by_text("first").wait_for()
        page.get_by_role("navigation").get_by_role("link", name="Failures 1").click()
        page.get_by_label("Failures").get_by_text("nobody answers").wait_for()
        assert page.evaluate("isSame")


def test_the_page_outlives_its_server(browser, folder):
    with serving(folder, *FLAGS) as server:
        create(server, "before")
        port, url = str(server.port), server.url
        with visiting(browser, url) as visit:
            visit.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
            page = visit.open("#/now")
            offline = page.get_by_text("The server does not answer. What you see may be old")
            assert offline.is_hidden()
            server.process.kill()
            server.process.wait()
            offline.wait_for()
            assert page.get_by_label("Up next").get_by_text("before").is_visible()
            page.get_by_role("navigation").get_by_role("link", name="Nodes").click()
            page.get_by_role("heading", name="The server does not answer").wait_for()
            with serving(folder, *FLAGS, port=port, name="again"):
                offline.wait_for(state="hidden")
                page.get_by_role("heading", name="Nodes", level=1).wait_for()


def sizes(session):
    """How many elements and listeners the page has, and the bytes of its objects."""
    session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return [found[name] for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")]


@pytest.mark.parametrize("redraws", [20, pytest.param(2_000, marks=pytest.mark.soak)])
def test_live_updates_leave_nothing_behind(browser, server, redraws):
    """The hints that come meanwhile are collected: ten for each time that the view reads and draws."""
    with visiting(browser, server.url) as visit:
        visit.context.add_init_script(FAST_HINTS)
        page = visit.open("#/now")
        session = visit.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.evaluate(UPDATE, 10)
        nodes, listeners, heap = sizes(session)
        page.evaluate(UPDATE, redraws)
        more_nodes, more_listeners, more_heap = sizes(session)
    assert more_nodes < 1.1 * nodes
    assert more_listeners < 1.1 * listeners
    assert more_heap < heap + 1_000_000
