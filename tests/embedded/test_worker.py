"""The worker of a server: started and stopped by anybody at any time, and seen from outside."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND
from noonmark.embedded.worker import Worker
from noonmark.targets.programs import Programs
from noonmark.telemetry.vitals import Vitals
from tests.embedded.waiting import NEVER, Gate, eventually, look_far_ahead, phases, together

NODE = "the-node"


@pytest.fixture
def scheduler():
    """Declares schedules in the store of the worker, and runs nothing by itself."""
    one = Scheduler()
    yield one
    one.close()


@pytest.fixture
def worker(scheduler):
    made = Worker(replace(scheduler.runtime, node=NODE), scheduler.functions, Programs(), max_threads=4, grace=0)
    yield made
    made.stop()


def test_it_does_nothing_until_it_is_started(scheduler, worker):
    job = scheduler.schedule(Gate())
    assert worker.vitals() == Vitals(node=NODE)
    assert worker.status()["running"] is False
    worker.wake()
    worker.attend()
    worker.hurry()
    assert phases(scheduler, job) == ["pending"]
    assert worker.due() == 0


def test_it_runs_what_is_due_and_can_be_seen_doing_so(scheduler, worker):
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    assert worker.vitals().delivering == 1
    eventually(lambda: worker.vitals().leads)
    vitals = worker.vitals()
    assert (vitals.node, vitals.leader, vitals.term, vitals.is_running) == (NODE, NODE, 1, True)
    status = worker.status()
    assert (status["running"], status["is_leader"], status["max_threads"]) == (True, True, 4)
    assert (status["lease_seconds"], status["lookahead_ms"]) == (15, 2_000)
    gate.opened.set()
    eventually(lambda: phases(scheduler, job) == ["completed"])


def test_what_it_holds_is_counted_by_schedule(scheduler):
    look_far_ahead(scheduler)
    worker = Worker(replace(scheduler.runtime, node=NODE), scheduler.functions, Programs(), max_threads=4, grace=0)
    soon = scheduler.runtime.clock.now() + timedelta(minutes=30)
    for _ in range(3):
        scheduler.schedule(Gate(), trigger=OnceTrigger(soon))
    scheduler.schedule(Gate(), trigger=NEVER)
    worker.start()
    eventually(lambda: worker.due() == 3)
    assert worker.vitals().claimed == 3
    worker.stop()
    assert worker.due() == 0


def test_stopped_it_hands_back_what_runs_and_started_again_it_goes_on(scheduler, worker):
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    worker.stop()
    assert phases(scheduler, job) == ["pending"]
    assert worker.vitals() == Vitals(node=NODE)
    gate.opened.set()
    worker.start()
    eventually(lambda: phases(scheduler, job) == ["completed"])
    assert [one.name for one in scheduler.nodes() if one.is_alive] == [NODE]


def test_one_that_waits_for_what_runs_can_be_hurried(scheduler):
    worker = Worker(
        replace(scheduler.runtime, node=NODE), scheduler.functions, Programs(), max_threads=4, grace=3_600 * SECOND
    )
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    eventually(lambda: not worker.vitals().is_wanted)
    assert stopping.is_alive()
    worker.hurry()
    eventually(lambda: not stopping.is_alive())
    assert phases(scheduler, job) == ["pending"]


def test_many_may_start_and_stop_it_at_once(scheduler, worker):
    together(8, lambda number: worker.start() if number % 2 else worker.stop())
    worker.start()
    assert worker.vitals().is_running
    assert [one.name for one in scheduler.nodes() if one.is_alive] in ([NODE], [])
    gate = Gate()
    gate.opened.set()
    job = scheduler.schedule(gate)
    worker.wake()
    eventually(lambda: phases(scheduler, job) == ["completed"])
    assert gate.runs == 1


def test_one_whose_driver_died_says_so_and_can_be_started_again(scheduler, worker):
    worker.start()
    engine = worker._engines.current
    engine.stop(0)  # as if its loop had ended by itself
    engine.wait()
    assert worker.vitals() == Vitals(node=NODE, is_wanted=True)
    assert not worker.status()["running"]
    worker.start()
    assert worker.vitals().is_running
