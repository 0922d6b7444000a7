"""What others write is text on the page, never markup: in every field, and in every view that shows it."""

import pytest

from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving
from tests.web.browsing import visiting

HOSTILE = """'"><img src=x onerror=pwned()><script>pwned()</script><a href="javascript:pwned()">x</a>"""
FUNCTIONS = f"""
def answer(**words):
    return {{"text": {HOSTILE!r}, {HOSTILE!r}: 1}}

def fail(**words):
    raise ValueError({HOSTILE!r})
"""
FLAGS = ("--function", "answer=work:answer", "--function", "fail=work:fail", "--agent-model", "test")
NEVER = {"type": "cron", "expression": "0 0 1 1 *", "timezone": "UTC"}


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    """A server whose data are all hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "work.py").write_text(FUNCTIONS)
    with serving(folder, *FLAGS) as server:
        server.ids = write(server.ask)
        yield server


def write(ask):
    def do(method, path, body=None):
        answer = ask(method, path, body)
        assert answer.status < 300, (path, answer.text)
        return answer.json

    def schedule(name, target, **more):
        words = {"name": f"{name} {HOSTILE}", "description": HOSTILE, "labels": {"team": HOSTILE}}
        do("POST", "/schedules", {"schedule_id": name, "trigger": NEVER, "target": target, **words, **more})

    function = {"target_kind": "function"}
    schedule("answer", {**function, "function": "answer", "kwargs": {"a": HOSTILE}}, accepts_payload=True)
    schedule("fail", {**function, "function": "fail"})
    schedule("paused", {"target_kind": "event", "event_type": "page.hostile", "payload": {HOSTILE: HOSTILE}})
    schedule("listens", {**function, "function": "answer"}, trigger={"type": "event", "event_type": "page.hostile"})
    do("POST", "/schedules/paused/pause", {"reason": HOSTILE})
    do("POST", "/events", {"event_type": "page.hostile", "payload": {HOSTILE: [HOSTILE]}, "source": HOSTILE})
    do("POST", "/sessions", {"session_id": "talk", "model": "test", "system_prompt": HOSTILE, "labels": {"a": HOSTILE}})
    steps = [{"id": "ask", "approval": {"message": HOSTILE}}]
    do("POST", "/workflows", {"workflow_id": "flow", "name": HOSTILE, "description": HOSTILE, "steps": steps})
    do("POST", "/halts", {"labels": {"nobody": HOSTILE}, "reason": HOSTILE})
    ids = {
        "completed": do("POST", "/schedules/answer/run", {"payload": {"b": HOSTILE}})["occurrence_id"],
        "failed": do("POST", "/schedules/fail/run", {})["occurrence_id"],
        "turn": do("POST", "/sessions/talk/messages", {"prompt": HOSTILE})["occurrence_id"],
    }
    for occurrence_id in ids.values():
        eventually(lambda one=occurrence_id: do("GET", f"/occurrences/{one}")["phase"] in FINAL)
    ids["workflow_run"] = do("POST", "/workflows/flow/runs", {})["workflow_run_id"]
    eventually(lambda: do("GET", "/approvals")["approvals"])
    return ids


ROUTES = (
    "#/now",
    "#/calendar?by=agenda",
    "#/calendar?by=day",
    "#/schedules",
    "#/schedules/answer",
    "#/schedules/paused",
    "#/schedules/listens",
    "#/schedules/answer/edit",
    "#/occurrences/{completed}",
    "#/occurrences/{failed}",
    "#/failures",
    "#/events",
    "#/workflows",
    "#/workflows/flow",
    "#/sessions/talk",
    "#/approvals",
    "#/nodes",
)


def test_hostile_text_is_text_in_every_view(browser, server):
    with visiting(browser, server.url) as visit:
        visit.context.add_init_script("globalThis.pwned = () => console.error('pwned')")
        for route in ROUTES:
            page = visit.move(route.format(**server.ids))
            page.evaluate("document.querySelectorAll('main details').forEach((one) => (one.open = true))")
            made = page.locator("main :is(img, script, iframe, a[href^='javascript:'])")
            assert made.count() == 0, route
            shown = visit.text() + "".join(box.input_value() for box in page.locator("main :is(textarea, input)").all())
            assert HOSTILE in shown, f"{route} does not show it"
