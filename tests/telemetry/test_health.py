"""Health: what is said of a process that works, of one that lacks something, and of one whose store hangs."""

import threading
from dataclasses import replace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.ports.records import Heartbeat, node_record
from noonmark.telemetry import probing
from noonmark.telemetry.health import STALLED, Health
from noonmark.telemetry.vitals import Vitals
from tests.embedded.waiting import SOON

RUNS = Vitals(node="here", is_wanted=True, is_running=True, leader="there")
LEADER = node_record(Heartbeat(node="there", lease=10), seen=5, left=None, is_leader=True, now=6)
OTHER = node_record(Heartbeat(node="here", lease=10), seen=5, left=None, is_leader=False, now=6)


class Worker:
    def __init__(self, vitals):
        self._vitals = vitals

    def vitals(self):
        return self._vitals


def one(nodes=lambda: [LEADER, OTHER], vitals=RUNS, waiting=None):
    worker = None if vitals is None else Worker(vitals)
    return Health(nodes, node="here", version="0.0", worker=worker, waiting=waiting)


def down():
    raise StoreUnavailable("down")


def test_the_summary_and_the_sign_of_life_ask_no_store():
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
    ("nodes", "vitals", "failing"),
    [
        (list, RUNS, set()),
        (down, RUNS, {"store"}),
        (lambda: [LEADER], Vitals(is_wanted=True), {"driver"}),
        (lambda: [OTHER], Vitals(is_wanted=True, is_running=True), {"leader"}),
        (lambda: [OTHER, LEADER], Vitals(is_wanted=True, is_running=True), set()),
        (lambda: [OTHER], Vitals(is_wanted=False), set()),
        (list, None, set()),
        (down, None, {"store"}),
    ],
)
def test_it_is_ready_when_store_driver_and_leader_are_there(nodes, vitals, failing):
    is_ready, said = one(nodes, vitals).ready()
    assert {name for name, how in said["checks"].items() if how != "ok"} == failing
    assert is_ready == (not failing)
    assert said["status"] == ("ready" if is_ready else "not_ready")


@pytest.mark.parametrize(
    ("changes", "waiting", "problems"),
    [
        ({"failing": ("lead: no space", "look_once: no space")}, 0, {"duties": "lead: no space; look_once: no space"}),
        ({"idle_for": STALLED}, STALLED - 1, {}),
        ({"idle_for": STALLED - 1}, 9 * STALLED, {}),
        ({"idle_for": STALLED, "is_wanted": False, "is_running": False}, STALLED, {}),
        (
            {"idle_for": 9 * STALLED},
            3 * STALLED,
            {"claims": "work of this node has been due for 30 s, and it has claimed none for that long"},
        ),
        (
            {"clock_ahead": 7_200 * SECOND, "idle_for": 9 * STALLED},
            9 * STALLED,
            {
                "clock": "the store's time leapt ahead by 7200 s: nothing is planned, started or pruned until it"
                " returns, goes on for a lease, or an operator confirms it"
            },
        ),
    ],
)
def test_each_check_that_fails_says_why(changes, waiting, problems):
    is_ready, said = one(vitals=replace(RUNS, **changes), waiting=lambda: waiting).ready()
    assert (is_ready, said["problems"]) == (not problems, problems)
    assert {name for name, how in said["checks"].items() if how != "ok"} == set(problems)


def test_a_store_that_fails_says_why():
    assert one(down).ready()[1]["problems"] == {"store": "the store does not answer: down"}


def test_the_leader_is_known_from_the_store_where_no_worker_runs():
    assert one(vitals=None).ready()[1]["leader"] == "there"


def test_a_store_that_hangs_is_not_waited_for_nor_asked_for_ever(monkeypatch):
    monkeypatch.setattr(probing, "PATIENCE", 0.02)
    asked, answers = threading.Semaphore(0), threading.Event()

    def hangs():
        asked.release()
        assert answers.wait(SOON)
        return [LEADER]

    slow = one(hangs)
    for _ in range(10):
        assert slow.ready()[1]["checks"]["store"] == "failing"
    for _ in range(probing.MOST_QUESTIONS):
        assert asked.acquire(timeout=SOON)
    assert not asked.acquire(blocking=False)
    answers.set()
    monkeypatch.setattr(probing, "PATIENCE", SOON)
    assert slow.ready()[0]


def test_a_question_that_was_lost_does_not_hide_that_the_store_is_back(monkeypatch):
    monkeypatch.setattr(probing, "PATIENCE", 0.02)
    first, answers = threading.Event(), threading.Event()

    def hangs_once():
        if not first.is_set():
            first.set()
            assert answers.wait(SOON)
        return [LEADER]

    back = one(hangs_once)
    assert not back.ready()[0]
    assert first.wait(SOON)
    monkeypatch.setattr(probing, "PATIENCE", SOON)
    assert back.ready()[0]
    answers.set()


def test_damaged_rows_are_told_and_keep_nobody_from_being_ready():
    health = Health(lambda: [LEADER], node="here", version="0.0", damage=lambda: {"schedules": 2, "events": 1})
    assert health.summary()["damaged_rows"] == 3
    is_ready, told = health.ready()
    assert (is_ready, told["damaged_rows"]) == (True, 3)
