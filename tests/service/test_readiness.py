"""`/health/ready` of a real server that cannot plan or write: which check fails, why, and how it recovers."""

import resource
import shutil
import sqlite3
import threading

import pytest

from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.soak import SCALE

CHECKS = {"store", "driver", "leader", "clock", "duties", "claims"}
HOURLY = {
    "trigger": {"type": "interval", "every_seconds": 3_600},
    "target": {"target_kind": "event", "event_type": "x"},
}


def create(server, **fields):
    return server.ask("POST", "/schedules", HOURLY | fields)


def ready(server):
    """The answer once it is ready."""
    return eventually(lambda: (answer := server.get("/health/ready")).status == 200 and answer.json)


def failing(server, check):
    """The problem of a check, once it fails."""

    def problem():
        answer = server.get("/health/ready")
        assert (answer.status == 503) == bool(answer.json["problems"])
        return answer.json["problems"].get(check)

    return eventually(problem)


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), "--lease", "3") as server:
        yield server


@pytest.fixture
def server(one_for_all):
    """Ready, whatever was done to it before."""
    told = ready(one_for_all)
    assert told["checks"] == dict.fromkeys(CHECKS, "ok")
    assert told["problems"] == {}
    return one_for_all


def test_writes_fail_while_the_store_file_is_removed(server):
    schedule_id = create(server).json["schedule_id"]
    path, away = server.folder / "noonmark.db", server.folder / "away.db"
    path.rename(away)
    refused = create(server)
    assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
    assert "was removed while it was open" in refused.text
    assert server.get(f"/schedules/{schedule_id}").status == 503, "what is read there may be gone as well"
    assert "was removed" in failing(server, "store")
    assert server.get("/doctor").status == 503
    assert not path.exists(), "nobody makes another one in its place"
    away.rename(path)
    ready(server)
    assert create(server).status == 201
    assert server.get(f"/schedules/{schedule_id}").status == 200


def test_writes_fail_while_the_store_file_is_replaced(server):
    path, away = server.folder / "noonmark.db", server.folder / "away.db"
    path.rename(away)
    shutil.copy(away, path)
    refused = create(server)
    assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
    assert "was replaced while it was open" in refused.text
    assert "restart this process" in failing(server, "store")
    away.replace(path)


def test_writes_fail_while_the_write_ahead_log_is_removed(server):
    journal, away = server.folder / "noonmark.db-wal", server.folder / "away"
    journal.rename(away)
    assert create(server).status == 503
    assert "noonmark.db-wal was removed" in failing(server, "store")
    away.rename(journal)


def test_a_full_disk_is_reported_and_work_resumes_when_there_is_space(server):
    pid, sizes = server.process.pid, [one.stat().st_size for one in server.folder.glob("noonmark.db*")]
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(sizes), hard))
    eventually(lambda: create(server, labels={"filler": "x" * 250}).status == 503)
    assert ": the database" in failing(server, "duties")  # of the duty that was the first to write
    assert server.samples()["noonmark_duties_failing"] >= 1
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    ready(server)
    assert create(server).status == 201
    assert server.samples()["noonmark_duties_failing"] == 0


@pytest.mark.skipif(SCALE == 1, reason="due work has to wait for 10 seconds first")
def test_unclaimed_due_work_is_reported(server):
    often = {"type": "interval", "every_seconds": 1}
    assert create(server, trigger=often).status == 201
    locked = sqlite3.connect(server.folder / "noonmark.db", isolation_level=None)
    try:
        locked.execute("BEGIN IMMEDIATE")
        assert "has been due for" in failing(server, "claims")
        threading.Event().wait(1)
        locked.execute("ROLLBACK")
    finally:
        locked.close()
    ready(server)


def test_the_doctor_says_that_the_engine_does_not_answer(tmp_path):
    engine = ("--engine", "temporal://127.0.0.1:1/default", "--engine-routes", "command")
    with serving(tmp_path, *engine) as server:

        def problem():
            checks = {check["check"]: check for check in server.get("/doctor").json["checks"]}
            return checks["engine"]["status"] == "problem" and checks["engine"]

        assert eventually(problem)["detail"] == "the engine at 127.0.0.1:1 did not answer: UNAVAILABLE"
    with serving(tmp_path) as server:
        assert "engine" not in {check["check"] for check in server.get("/doctor").json["checks"]}
