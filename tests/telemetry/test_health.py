"""Health checks."""

import threading
from dataclasses import replace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.ports.records import Heartbeat, node_record
from noonmark.telemetry import health
from noonmark.telemetry.health import CLAIM_LIMIT, Health, WorkerSnapshot
from tests.embedded.waiting import SOON

RUNS = WorkerSnapshot(node="here", is_wanted=True, is_running=True, leader="there")
LEADER = node_record(Heartbeat(node="there", lease=10), seen=5, left=None, is_leader=True, now=6)
OTHER = node_record(Heartbeat(node="here", lease=10), seen=5, left=None, is_leader=False, now=6)


class Worker:
    def __init__(self, snapshot):
        self._vitals = snapshot

    def snapshot(self):
        return self._vitals


def one(nodes=lambda: [LEADER, OTHER], snapshot=RUNS, waiting=None):
    worker = None if snapshot is None else Worker(snapshot)
    return Health(nodes, node="here", version="0.0", worker=worker, waiting=waiting)


def down():
    raise StoreUnavailable("down")


def test_summary_and_liveness_do_not_ask_the_store():
    about = {"service": "noonmark", "version": "0.0", "node": "here"}
    assert one(down).summary() == {
        "status": "healthy",
        **about,
        "worker": "running",
        "leader": "there",
        "damaged_rows": 0,
    }
    assert one(down, None).summary() == {
        "status": "healthy",
        **about,
        "worker": "stopped",
        "leader": None,
        "damaged_rows": 0,
    }
    assert one(down).live() == {"status": "alive", "service": "noonmark"}


@pytest.mark.parametrize(
    ("nodes", "snapshot", "failing"),
    [
        (list, RUNS, set()),
        (down, RUNS, {"store"}),
        (lambda: [LEADER], WorkerSnapshot(is_wanted=True), {"driver"}),
        (lambda: [OTHER], WorkerSnapshot(is_wanted=True, is_running=True), {"leader"}),
        (lambda: [OTHER, LEADER], WorkerSnapshot(is_wanted=True, is_running=True), set()),
        (lambda: [OTHER], WorkerSnapshot(is_wanted=False), set()),
        (list, None, set()),
        (down, None, {"store"}),
    ],
)
def test_readiness_needs_store_driver_and_leader(nodes, snapshot, failing):
    is_ready, said = one(nodes, snapshot).ready()
    assert {name for name, how in said["checks"].items() if how != "ok"} == failing
    assert is_ready == (not failing)
    assert said["status"] == ("ready" if is_ready else "not_ready")


@pytest.mark.parametrize(
    ("changes", "waiting", "problems"),
    [
        ({"failing": ("lead: no space", "claim_due: no space")}, 0, {"duties": "lead: no space; claim_due: no space"}),
        ({"idle_for": CLAIM_LIMIT}, CLAIM_LIMIT - 1, {}),
        ({"idle_for": CLAIM_LIMIT - 1}, 9 * CLAIM_LIMIT, {}),
        ({"idle_for": CLAIM_LIMIT, "is_wanted": False, "is_running": False}, CLAIM_LIMIT, {}),
        (
            {"idle_for": 9 * CLAIM_LIMIT},
            3 * CLAIM_LIMIT,
            {"claims": "work for this node has been due for 30 s, and it has claimed nothing in that time"},
        ),
        (
            {"clock_ahead": 7_200 * SECOND, "idle_for": 9 * CLAIM_LIMIT},
            9 * CLAIM_LIMIT,
            {
                "clock": "the store's time leapt ahead by 7200 s: nothing is planned, started or pruned until it"
                " returns, goes on for a lease, or an operator confirms it"
            },
        ),
    ],
)
def test_failing_check_says_why(changes, waiting, problems):
    is_ready, said = one(snapshot=replace(RUNS, **changes), waiting=lambda: waiting).ready()
    assert (is_ready, said["problems"]) == (not problems, problems)
    assert {name for name, how in said["checks"].items() if how != "ok"} == set(problems)


def test_failing_store_says_why():
    assert one(down).ready()[1]["problems"] == {"store": "the store does not answer: down"}


def test_leader_is_read_from_the_store_without_a_worker():
    assert one(snapshot=None).ready()[1]["leader"] == "there"


def test_hanging_store_is_asked_a_limited_number_of_times(monkeypatch):
    monkeypatch.setattr(health, "STORE_TIMEOUT", 0.02)
    asked, answers = threading.Semaphore(0), threading.Event()

    def hangs():
        asked.release()
        assert answers.wait(SOON)
        return [LEADER]

    slow = one(hangs)
    for _ in range(10):
        assert slow.ready()[1]["checks"]["store"] == "failing"
    for _ in range(health.MAX_PENDING_PROBES):
        assert asked.acquire(timeout=SOON)
    assert not asked.acquire(blocking=False)
    answers.set()
    monkeypatch.setattr(health, "STORE_TIMEOUT", SOON)
    assert slow.ready()[0]


def test_lost_question_does_not_hide_a_recovered_store(monkeypatch):
    monkeypatch.setattr(health, "STORE_TIMEOUT", 0.02)
    first, answers = threading.Event(), threading.Event()

    def hangs_once():
        if not first.is_set():
            first.set()
            assert answers.wait(SOON)
        return [LEADER]

    back = one(hangs_once)
    assert not back.ready()[0]
    assert first.wait(SOON)
    monkeypatch.setattr(health, "STORE_TIMEOUT", SOON)
    assert back.ready()[0]
    answers.set()


def test_damaged_rows_do_not_affect_readiness():
    health = Health(lambda: [LEADER], node="here", version="0.0", damage=lambda: {"schedules": 2, "events": 1})
    assert health.summary()["damaged_rows"] == 3
    is_ready, told = health.ready()
    assert (is_ready, told["damaged_rows"]) == (True, 3)


@pytest.mark.parametrize(("problem", "state"), [(None, "ok"), ("the engine did not answer", "failing")])
def test_an_engine_that_does_not_answer_is_reported_and_the_node_stays_ready(problem, state):
    asked = Health(lambda: [LEADER, OTHER], node="here", version="0.0", worker=Worker(RUNS), engine=lambda: problem)
    assert asked.summary()["engine"] == state
    is_ready, document = asked.ready()
    assert (is_ready, document["status"], document["checks"]["engine"]) == (True, "ready", state)
    assert document["problems"] == ({} if problem is None else {"engine": problem})
    assert "engine" not in one().ready()[1]["checks"]
