"""A server is killed while many callers create schedules: whatever it has acknowledged is there."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest

from tests.embedded.waiting import eventually
from tests.service.server import serving

CALLERS, ENOUGH = 12, 80
DOCUMENT = {
    "trigger": {"type": "cron", "expression": "0 0 1 1 *"},
    "target": {"target_kind": "function", "function": "nothing"},
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_acknowledged_creates_survive_a_kill(kind, request, tmp_path):
    url = f"sqlite:///{tmp_path}/noonmark.db" if kind == "sqlite" else request.getfixturevalue("database").url
    acknowledged, lock = {}, threading.Lock()

    def create(server, caller):
        """Create one after another until the server is gone; every fourth is refused."""
        for number in range(10 * ENOUGH):
            name, is_bad = f"{caller}-{number}", number % 4 == 3
            try:
                answer = server.ask("POST", "/schedules", DOCUMENT | {"name": "" if is_bad else name})
            except (OSError, HTTPException):
                return
            assert answer.status == (400 if is_bad else 201), answer.text
            if not is_bad:
                with lock:
                    acknowledged[answer.json["schedule_id"]] = name

    with (
        serving(tmp_path, "--store", url, "--migrate", "--no-worker") as server,
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        calls = [threads.submit(create, server, caller) for caller in range(CALLERS)]
        eventually(lambda: len(acknowledged) >= ENOUGH or any(call.done() for call in calls))
        server.process.send_signal(signal.SIGKILL)
        for call in calls:
            call.result()
    with serving(tmp_path, "--store", url, "--no-worker", name="again") as server:
        found, cursor = {}, ""
        while cursor is not None:
            page = server.get(f"/schedules?limit=200{cursor and f'&cursor={cursor}'}").json
            found |= {one["schedule_id"]: one["name"] for one in page["schedules"]}
            cursor = page["next_cursor"]
    assert len(acknowledged) >= ENOUGH
    assert acknowledged.items() <= found.items()
    assert len(found) <= len(acknowledged) + CALLERS, "at most what each caller was waiting for"
