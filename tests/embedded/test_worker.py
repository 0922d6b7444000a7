"""The worker of a server: started and stopped by any caller at any time, and its state."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND
from noonmark.embedded.worker import Worker
from noonmark.targets.command.programs import ProgramPolicy
from noonmark.telemetry.health import WorkerSnapshot
from tests.embedded.waiting import SOON, Gate, eventually, look_far_ahead, phases, together

NODE = "the-node"


@pytest.fixture
def scheduler():
    """Declares schedules in the store of the worker, and runs nothing by itself."""
    one = Scheduler()
    yield one
    one.close()


@pytest.fixture
def worker(scheduler):
    made = Worker(replace(scheduler._runtime, node=NODE), scheduler._functions, ProgramPolicy(), max_threads=4, grace=0)
    yield made
    made.close()


def test_it_does_nothing_until_it_is_started(scheduler, worker):
    job = scheduler.schedule(Gate())
    assert worker.snapshot() == WorkerSnapshot(node=NODE)
    assert (worker.status()["running"], worker.status()["leader_lock"]) == (False, False)
    worker.wake()
    worker.check_stop_requests()
    worker.hand_back_now()
    assert phases(scheduler, job) == ["pending"]


def test_it_runs_what_is_due_and_can_be_seen_doing_so(scheduler, worker):
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    assert worker.snapshot().delivering == 1
    eventually(lambda: worker.snapshot().leads)
    snapshot = worker.snapshot()
    assert (snapshot.node, snapshot.leader, snapshot.term, snapshot.is_running) == (NODE, NODE, 1, True)
    status = worker.status()
    assert (status["running"], status["is_leader"], status["max_threads"]) == (True, True, 4)
    assert (status["lease_seconds"], status["lookahead_ms"]) == (15, 2_000)
    assert (status["tick_ms"], status["max_catchup_per_tick"], status["leader_lock"]) == (0, 100, True)
    gate.opened.set()
    eventually(lambda: phases(scheduler, job) == ["completed"])


def test_stopped_it_keeps_what_runs_and_started_again_it_does_not_begin_that_twice(scheduler, worker):
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    worker.stop()
    assert phases(scheduler, job) == ["dispatching"]
    status = worker.status()
    assert (status["running"], status["state"], status["delivering"]) == (False, "stopping", 1)
    assert not worker.snapshot().is_wanted
    worker.start()
    after = Gate()
    after.opened.set()
    later = scheduler.schedule(after)
    worker.wake()
    eventually(lambda: phases(scheduler, later) == ["completed"])
    status = worker.status()
    assert (status["state"], status["delivering"]) == ("running", 1)
    assert (phases(scheduler, job), gate.runs) == (["dispatching"], 1)
    gate.opened.set()
    eventually(lambda: phases(scheduler, job) == ["completed"])
    eventually(lambda: worker.status()["delivering"] == 0)
    assert gate.runs == 1


def test_an_earlier_one_that_ends_does_not_sign_off_the_one_that_works(scheduler, worker):
    gate = Gate()
    scheduler.schedule(gate)
    worker.start()
    gate.wait()
    eventually(lambda: worker.snapshot().leads)
    worker.stop()
    worker.start()
    (earlier,) = worker._draining
    eventually(lambda: worker.snapshot().leads)
    gate.opened.set()
    earlier.wait()
    assert [(one.name, one.is_leader) for one in scheduler.nodes() if one.is_alive] == [(NODE, True)]
    assert worker.snapshot().term == 1


def test_stopped_while_nothing_runs_it_hands_back_what_has_not_begun(scheduler):
    look_far_ahead(scheduler)
    worker = Worker(
        replace(scheduler._runtime, node=NODE),
        scheduler._functions,
        ProgramPolicy(),
        max_threads=4,
        grace=3_600 * SECOND,
    )
    soon = scheduler._runtime.clock.now() + timedelta(minutes=30)
    job = scheduler.schedule(Gate(), trigger=OnceTrigger(soon))
    worker.start()
    eventually(lambda: worker.snapshot().claimed == 1)
    assert phases(scheduler, job) == ["claimed"]
    worker.stop()
    assert phases(scheduler, job) == ["pending"]
    assert worker.snapshot() == WorkerSnapshot(node=NODE)
    assert worker.status()["state"] == "stopped"


def test_when_the_process_ends_what_a_stopped_one_runs_is_handed_back(scheduler, worker):
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    worker.stop()
    assert phases(scheduler, job) == ["dispatching"]
    worker.close()
    assert phases(scheduler, job) == ["pending"]
    assert worker.snapshot() == WorkerSnapshot(node=NODE)


def test_one_that_waits_for_what_runs_can_be_hurried(scheduler):
    worker = Worker(
        replace(scheduler._runtime, node=NODE),
        scheduler._functions,
        ProgramPolicy(),
        max_threads=4,
        grace=3_600 * SECOND,
    )
    gates = [Gate(), Gate()]
    earlier = scheduler.schedule(gates[0])
    worker.start()
    gates[0].wait()
    threading.Thread(target=worker.stop, daemon=True).start()
    eventually(lambda: not worker.snapshot().is_wanted)
    worker.start()
    later = scheduler.schedule(gates[1])
    worker.wake()
    gates[1].wait()
    closing = threading.Thread(target=worker.close)
    closing.start()
    eventually(lambda: not worker.snapshot().is_wanted)
    assert closing.is_alive()
    worker.hand_back_now()
    eventually(lambda: not closing.is_alive())
    assert [phases(scheduler, job) for job in (earlier, later)] == [["pending"], ["pending"]]


def test_threads_that_outlived_their_run_are_counted_also_after_a_stop(scheduler, worker):
    let_go = threading.Event()
    for _ in range(2):
        worker.start()
        job = scheduler.schedule(lambda: let_go.wait(SOON), timeout=0.05)
        worker.wake()
        eventually(lambda job=job: phases(scheduler, job) == ["timed_out"])
        worker.stop()
    assert worker.snapshot().abandoned == 2
    let_go.set()
    eventually(lambda: worker.snapshot().abandoned == 0)


def test_one_that_is_hurried_before_it_closes_does_not_wait_either(scheduler):
    worker = Worker(
        replace(scheduler._runtime, node=NODE),
        scheduler._functions,
        ProgramPolicy(),
        max_threads=4,
        grace=3_600 * SECOND,
    )
    gate = Gate()
    job = scheduler.schedule(gate)
    worker.start()
    gate.wait()
    worker.hand_back_now()
    worker.close()
    assert phases(scheduler, job) == ["pending"]


def test_many_may_start_and_stop_it_at_once(scheduler, worker):
    together(8, lambda number: worker.start() if number % 2 else worker.stop())
    worker.start()
    assert worker.snapshot().is_running
    assert [one.name for one in scheduler.nodes() if one.is_alive] in ([NODE], [])
    gate = Gate()
    gate.opened.set()
    job = scheduler.schedule(gate)
    worker.wake()
    eventually(lambda: phases(scheduler, job) == ["completed"])
    assert gate.runs == 1


def test_one_whose_driver_died_says_so_and_can_be_started_again(scheduler, worker):
    worker.start()
    runner = worker._runners.current
    runner.stop(0)  # as if its loop had ended by itself
    runner.wait()
    assert worker.snapshot() == WorkerSnapshot(node=NODE, is_wanted=True)
    assert not worker.status()["running"]
    worker.start()
    assert worker.snapshot().is_running
