"""The pool of worker threads."""

import threading
from collections import Counter

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Delivered
from noonmark.targets import worker_pool
from noonmark.targets.worker_pool import WorkerPool
from tests.targets.assignments import SOON, Clock, function_assignment, now

ADA, BOB = Owner(tenant="acme", user="ada"), Owner(tenant="acme", user="bob")


class PoolHarness:
    """A pool that calls a function of the test for each assignment, and its reports."""

    def __init__(self, work, limit=256, *, cuts_off=True):
        self.reported, self.cut_off, self.threads, self.gone = [], [], set(), set()
        self._work, self._news, self.clock = work, threading.Condition(), Clock()
        cut = self._cut if cuts_off else None
        self.pool = WorkerPool(self._call, self._report, cut, self.clock, limit, self._leave)

    def submit(self, *assignments):
        self.pool.submit(assignments)

    def until(self, is_there):
        with self._news:
            assert self._news.wait_for(is_there, SOON), "it did not happen"

    def until_reported(self, count):
        self.until(lambda: len(self.reported) >= count)

    def eventually(self, is_so):
        """Poll for a condition that nothing signals."""
        for _ in range(int(SOON / 0.005)):
            if is_so():
                return
            threading.Event().wait(0.005)
        raise AssertionError("it did not happen")

    def news(self):
        with self._news:
            self._news.notify_all()

    def _call(self, assignment):
        self.threads.add(threading.get_ident())
        self._work(assignment)
        return Delivered(outcome=Outcome.COMPLETED, started=assignment.started, ended=now())

    def _leave(self):
        self.gone.add(threading.get_ident())

    def _report(self, assignment, delivered):
        with self._news:
            self.reported.append((assignment, delivered))
            self._news.notify_all()

    def _cut(self, assignment):
        with self._news:
            self.cut_off.append(assignment)
            self._news.notify_all()


@pytest.fixture
def pools():
    """Make pools that are closed at the end, with a gate that releases everything that hangs."""
    collected, gate = [], threading.Event()

    def make(work, **options):
        collected.append(PoolHarness(work, **options))
        return collected[-1]

    make.gate = gate
    yield make
    gate.set()
    for harness in collected:
        harness.pool.close()


def nothing(assignment):
    pass


def test_nothing_starts_early(pools):
    began = {}
    harness = pools(lambda one: began.update({one: now()}))
    waiting = [function_assignment(number, after=number * 7_000) for number in (5, 1, 9, 0, 3)]
    harness.submit(*waiting)
    harness.until_reported(5)
    assert [one for one in waiting if began[one] < one.begins or one.started < one.begins] == []


def test_earliest_assignment_starts_first(pools):
    order = []
    harness = pools(order.append, limit=1)
    blocked = function_assignment("blocker")
    entered = threading.Event()
    harness._work = lambda one: (entered.set(), pools.gate.wait(SOON)) if one is blocked else order.append(one)
    harness.submit(blocked)
    assert entered.wait(SOON)
    late, early = function_assignment("late", after=200_000), function_assignment("early", after=1_000)
    harness.submit(late, early)
    pools.gate.set()
    harness.until_reported(3)
    assert order == [early, late]


def test_owners_take_turns_when_threads_are_scarce(pools):
    order, entered = [], threading.Event()
    harness = pools(lambda one: (entered.set(), pools.gate.wait(SOON), order.append(one)), limit=1)
    blocker = function_assignment("blocker")
    harness.submit(blocker)
    assert entered.wait(SOON)
    many = [function_assignment(number, owner=ADA) for number in range(50)]
    few = [function_assignment(f"few {number}", owner=BOB) for number in range(2)]
    harness.submit(*many)
    harness.submit(*few)
    pools.gate.set()
    harness.until_reported(53)
    assert order == [blocker, many[0], few[0], many[1], few[1], *many[2:]]


def test_backlog_of_one_owner_hardly_delays_another(pools):
    begun, some = [], threading.Event()

    def work(assignment):
        begun.append(assignment)
        if len(begun) >= 100:
            some.set()
        threading.Event().wait(0.005)

    harness = pools(work, limit=4)
    harness.submit(*(function_assignment(number, owner=ADA) for number in range(1_000)))
    assert some.wait(SOON)
    single = function_assignment("single", owner=BOB)
    harness.submit(single)
    before = len(begun)
    harness.until(lambda: any(one is single for one, _ in harness.reported))
    # Each thread may have taken one that is not listed yet, and the first owner has the first turn.
    assert begun.index(single) - before <= 5


def test_hanging_work_delays_no_other(pools):
    def work(assignment):
        if assignment in hanging:
            hung.append(assignment)
            harness.news()
            pools.gate.wait()

    hung = []
    hanging = {function_assignment(f"hangs {number}") for number in range(100)}
    quick = [function_assignment(f"quick {number}") for number in range(100)]
    harness = pools(work)
    harness.submit(*(one for pair in zip(hanging, quick, strict=True) for one in pair))
    harness.until_reported(100)
    harness.until(lambda: len(hung) == 100)
    assert {one for one, _ in harness.reported} == set(quick)


def test_burst_of_quick_work_needs_few_threads(pools):
    harness = pools(nothing)
    harness.submit(*(function_assignment(number) for number in range(5_000)))
    harness.until_reported(5_000)
    assert len(harness.threads) < 256  # as few as the interpreter allows; on a machine of its own, one or two
    assert max(Counter(id(one) for one, _ in harness.reported).values()) == 1


def test_no_thread_starts_before_there_is_work(pools):
    harness = pools(nothing)
    assert harness.pool._timer is None
    harness.submit(function_assignment(after=3_600 * SECOND))
    assert harness.pool._timer.is_alive()
    assert harness.pool._threads == 0


def test_number_of_threads_is_limited(pools):
    def work(assignment):
        with lock:
            running.append(assignment)
            most.append(len(running))
            harness.news()
        pools.gate.wait()
        with lock:
            running.remove(assignment)

    running, most, lock = [], [], threading.Lock()
    harness = pools(work, limit=3)
    harness.submit(*(function_assignment(number) for number in range(10)))
    harness.until(lambda: len(most) == 3)
    pools.gate.set()
    harness.until_reported(10)
    assert max(most) == 3


def test_thread_past_its_deadline_is_abandoned_and_replaced(pools):
    slow = function_assignment("slow", timeout=20_000)
    harness = pools(lambda one: pools.gate.wait() if one is slow else None, limit=1)
    harness.submit(slow)
    harness.until(lambda: harness.cut_off)
    assert harness.cut_off == [slow]
    assert slow.is_closed
    assert harness.pool.abandoned == 1
    harness.submit(function_assignment("next"))  # the one thread that is allowed hangs, and no longer counts
    harness.until_reported(1)
    assert len(harness.threads) == 2


def test_abandoned_thread_returns_and_reports_nothing(pools):
    slow = function_assignment("slow", timeout=20_000)
    harness = pools(lambda one: pools.gate.wait() if one is slow else None, limit=1)
    harness.submit(slow)
    harness.until(lambda: harness.cut_off)
    pools.gate.set()
    others = [function_assignment(number) for number in range(20)]
    harness.submit(*others)
    harness.until_reported(20)
    assert {one for one, _ in harness.reported} == set(others)
    harness.eventually(lambda: harness.pool.abandoned == 0)
    assert harness.pool._threads <= 2


def test_work_that_ends_in_time_is_not_cut_off(pools):
    harness = pools(nothing)
    quick = [function_assignment(number, timeout=60 * SECOND) for number in range(10)]
    harness.submit(*quick)
    harness.until_reported(10)
    harness.clock.advance(61 * SECOND)  # after all those deadlines
    harness.submit(function_assignment("last"))
    harness.until_reported(11)
    assert harness.cut_off == []


def test_deadlines_of_ended_work_are_removed(pools):
    harness = pools(nothing)
    for turn in range(10):
        harness.submit(*(function_assignment(f"{turn}.{number}", timeout=3_600 * SECOND) for number in range(200)))
        harness.until_reported(200 * (turn + 1))
    assert len(harness.pool._deadlines) <= 2 * harness.pool._threads + worker_pool.DEADLINE_SLACK + 1


def test_closed_assignment_does_not_start(pools):
    began = []
    harness = pools(began.append)
    handed_back, other = function_assignment("back"), function_assignment("other", after=30_000)
    handed_back.is_closed = True
    harness.submit(handed_back, other)
    harness.until_reported(1)
    assert began == [other]


def test_failed_thread_start_is_tolerated(pools, monkeypatch):
    harness = pools(nothing)
    harness.submit(function_assignment("first"))
    harness.until_reported(1)
    refused = threading.Event()

    def refuse(*_):
        refused.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(harness.pool, "_start_thread", refuse)
    harness._work = lambda one: refused.wait(SOON)
    harness.submit(function_assignment("hangs"), function_assignment("waits"))
    harness.until_reported(3)
    assert harness.pool._timer.is_alive()


def test_saturated_pool_is_checked_at_a_fixed_rate(pools):
    calls = []
    harness = pools(lambda one: pools.gate.wait(), limit=2)
    real = harness.pool._wake_workers

    def call(wanted):
        calls.append(wanted)
        harness.news()
        return real(wanted)

    harness.pool._wake_workers = call
    harness.submit(*(function_assignment(number) for number in range(5)))
    harness.until(lambda: len(calls) >= 12)
    assert max(calls) <= 2


def test_close_ends_idle_threads_and_starts_nothing_more(pools):
    entered = threading.Event()

    def work(assignment):
        entered.set()
        pools.gate.wait()

    harness = pools(work, limit=1)
    running, waiting = function_assignment("running"), function_assignment("waiting")
    harness.submit(running)
    assert entered.wait(SOON)
    harness.submit(waiting)
    harness.pool.close()
    harness.pool._timer.join(SOON)
    assert not harness.pool._timer.is_alive()
    pools.gate.set()
    harness.until_reported(1)
    harness.submit(function_assignment("too late"))
    harness.eventually(lambda: harness.pool._threads == 0)
    assert [one for one, _ in harness.reported] == [running]


def test_idle_thread_ends_after_a_while(pools, monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.01)
    harness = pools(nothing)
    harness.submit(function_assignment())
    harness.until_reported(1)
    harness.eventually(lambda: harness.pool._threads == 0)
    harness.submit(function_assignment("again"))
    harness.until_reported(2)


def test_ending_thread_calls_on_exit(pools, monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.01)
    harness = pools(nothing)
    harness.submit(function_assignment())
    harness.eventually(lambda: harness.threads and harness.gone == harness.threads)


def test_nothing_is_cut_off_without_a_callback(pools):
    harness = pools(lambda one: threading.Event().wait(0.1), cuts_off=False)
    harness.submit(function_assignment(timeout=1_000))
    harness.until_reported(1)
    assert (harness.cut_off, harness.pool.abandoned) == ([], 0)
