"""Worker threads: on time, on demand, and none of them held up by another."""

import threading
from collections import Counter

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Delivered
from noonmark.targets import worker_pool
from noonmark.targets.worker_pool import WorkerPool
from tests.targets.assignments import SOON, Clock, assigned, now

ADA, BOB = Owner(tenant="acme", user="ada"), Owner(tenant="acme", user="bob")


class Crew:
    """Workers that call a function of the test for each assignment, and what they reported."""

    def __init__(self, work, limit=256, *, cuts_off=True):
        self.reported, self.cut_off, self.threads, self.gone = [], [], set(), set()
        self._work, self._news, self.clock = work, threading.Condition(), Clock()
        cut = self._cut if cuts_off else None
        self.workers = WorkerPool(self._call, self._report, cut, self.clock, limit, self._leave)

    def submit(self, *assignments):
        self.workers.submit(assignments)

    def until(self, is_there):
        with self._news:
            assert self._news.wait_for(is_there, SOON), "it did not happen"

    def until_reported(self, count):
        self.until(lambda: len(self.reported) >= count)

    def eventually(self, is_so):
        """For what nobody tells of: look again and again."""
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
def crews():
    """Make crews that are closed in the end, with a gate that lets everything that hangs go on."""
    made, gate = [], threading.Event()

    def make(work, **options):
        made.append(Crew(work, **options))
        return made[-1]

    make.gate = gate
    yield make
    gate.set()
    for crew in made:
        crew.workers.close()


def nothing(assignment):
    pass


def test_nothing_begins_before_its_time(crews):
    began = {}
    crew = crews(lambda one: began.update({one: now()}))
    waiting = [assigned(number, after=number * 7_000) for number in (5, 1, 9, 0, 3)]
    crew.submit(*waiting)
    crew.until_reported(5)
    assert [one for one in waiting if began[one] < one.begins or one.started < one.begins] == []


def test_the_earliest_begins_first_whatever_came_first(crews):
    order = []
    crew = crews(order.append, limit=1)
    blocked = assigned("blocker")
    entered = threading.Event()
    crew._work = lambda one: (entered.set(), crews.gate.wait(SOON)) if one is blocked else order.append(one)
    crew.submit(blocked)
    assert entered.wait(SOON)
    late, early = assigned("late", after=200_000), assigned("early", after=1_000)
    crew.submit(late, early)
    crews.gate.set()
    crew.until_reported(3)
    assert order == [early, late]


def test_owners_take_turns_when_there_are_not_enough_threads(crews):
    order, entered = [], threading.Event()
    crew = crews(lambda one: (entered.set(), crews.gate.wait(SOON), order.append(one)), limit=1)
    blocker = assigned("blocker")
    crew.submit(blocker)
    assert entered.wait(SOON)
    many = [assigned(number, owner=ADA) for number in range(50)]
    few = [assigned(f"few {number}", owner=BOB) for number in range(2)]
    crew.submit(*many)
    crew.submit(*few)
    crews.gate.set()
    crew.until_reported(53)
    assert order == [blocker, many[0], few[0], many[1], few[1], *many[2:]]


def test_a_backlog_of_one_owner_delays_another_by_a_few_starts_and_not_by_its_length(crews):
    begun, some = [], threading.Event()

    def work(assignment):
        begun.append(assignment)
        if len(begun) >= 100:
            some.set()
        threading.Event().wait(0.005)

    crew = crews(work, limit=4)
    crew.submit(*(assigned(number, owner=ADA) for number in range(1_000)))
    assert some.wait(SOON)
    single = assigned("single", owner=BOB)
    crew.submit(single)
    before = len(begun)
    crew.until(lambda: any(one is single for one, _ in crew.reported))
    # Each thread may just have taken one that is not listed yet, and the owner who was there first has the first turn.
    assert begun.index(single) - before <= 5


def test_what_hangs_delays_nobody(crews):
    def work(assignment):
        if assignment in hanging:
            hung.append(assignment)
            crew.news()
            crews.gate.wait()

    hung = []
    hanging = {assigned(f"hangs {number}") for number in range(100)}
    quick = [assigned(f"quick {number}") for number in range(100)]
    crew = crews(work)
    crew.submit(*(one for pair in zip(hanging, quick, strict=True) for one in pair))
    crew.until_reported(100)
    crew.until(lambda: len(hung) == 100)
    assert {one for one, _ in crew.reported} == set(quick)


def test_a_burst_of_quick_ones_needs_few_threads(crews):
    crew = crews(nothing)
    crew.submit(*(assigned(number) for number in range(5_000)))
    crew.until_reported(5_000)
    assert len(crew.threads) < 256  # as few as the interpreter allows; on a machine of its own, one or two
    assert max(Counter(id(one) for one, _ in crew.reported).values()) == 1


def test_no_thread_is_made_before_there_is_work(crews):
    crew = crews(nothing)
    assert crew.workers._timer is None
    crew.submit(assigned(after=3_600 * SECOND))
    assert crew.workers._timer.is_alive()
    assert crew.workers._threads == 0


def test_there_are_never_more_threads_than_allowed(crews):
    def work(assignment):
        with lock:
            running.append(assignment)
            most.append(len(running))
            crew.news()
        crews.gate.wait()
        with lock:
            running.remove(assignment)

    running, most, lock = [], [], threading.Lock()
    crew = crews(work, limit=3)
    crew.submit(*(assigned(number) for number in range(10)))
    crew.until(lambda: len(most) == 3)
    crews.gate.set()
    crew.until_reported(10)
    assert max(most) == 3


def test_one_that_outlives_its_deadline_is_cut_off_counted_and_replaced(crews):
    slow = assigned("slow", timeout=20_000)
    crew = crews(lambda one: crews.gate.wait() if one is slow else None, limit=1)
    crew.submit(slow)
    crew.until(lambda: crew.cut_off)
    assert crew.cut_off == [slow]
    assert slow.is_closed
    assert crew.workers.abandoned == 1
    crew.submit(assigned("next"))  # the one thread that is allowed hangs, and no longer counts
    crew.until_reported(1)
    assert len(crew.threads) == 2


def test_a_thread_that_was_given_up_comes_back_and_reports_nothing(crews):
    slow = assigned("slow", timeout=20_000)
    crew = crews(lambda one: crews.gate.wait() if one is slow else None, limit=1)
    crew.submit(slow)
    crew.until(lambda: crew.cut_off)
    crews.gate.set()
    others = [assigned(number) for number in range(20)]
    crew.submit(*others)
    crew.until_reported(20)
    assert {one for one, _ in crew.reported} == set(others)
    crew.eventually(lambda: crew.workers.abandoned == 0)
    assert crew.workers._threads <= 2


def test_one_that_ends_in_time_is_not_cut_off(crews):
    crew = crews(nothing)
    quick = [assigned(number, timeout=60 * SECOND) for number in range(10)]
    crew.submit(*quick)
    crew.until_reported(10)
    crew.clock.advance(61 * SECOND)  # after all those deadlines
    crew.submit(assigned("last"))
    crew.until_reported(11)
    assert crew.cut_off == []


def test_deadlines_of_what_has_ended_do_not_pile_up(crews):
    crew = crews(nothing)
    for turn in range(10):
        crew.submit(*(assigned(f"{turn}.{number}", timeout=3_600 * SECOND) for number in range(200)))
        crew.until_reported(200 * (turn + 1))
    assert len(crew.workers._deadlines) <= 2 * crew.workers._threads + worker_pool.DEADLINE_SLACK + 1


def test_what_was_handed_back_before_it_began_does_not_begin(crews):
    began = []
    crew = crews(began.append)
    handed_back, other = assigned("back"), assigned("other", after=30_000)
    handed_back.is_closed = True
    crew.submit(handed_back, other)
    crew.until_reported(1)
    assert began == [other]


def test_a_system_without_more_threads_does_with_what_it_has(crews, monkeypatch):
    crew = crews(nothing)
    crew.submit(assigned("first"))
    crew.until_reported(1)
    refused = threading.Event()

    def refuse(*_):
        refused.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(crew.workers, "_start_thread", refuse)
    crew._work = lambda one: refused.wait(SOON)
    crew.submit(assigned("hangs"), assigned("waits"))
    crew.until_reported(3)
    assert crew.workers._timer.is_alive()


def test_saturation_costs_the_timer_thread_nothing_that_grows(crews):
    calls = []
    crew = crews(lambda one: crews.gate.wait(), limit=2)
    real = crew.workers._wake_workers

    def call(wanted):
        calls.append(wanted)
        crew.news()
        return real(wanted)

    crew.workers._wake_workers = call
    crew.submit(*(assigned(number) for number in range(5)))
    crew.until(lambda: len(calls) >= 12)
    assert max(calls) <= 2


def test_closing_lets_idle_threads_go_and_begins_nothing_more(crews):
    entered = threading.Event()

    def work(assignment):
        entered.set()
        crews.gate.wait()

    crew = crews(work, limit=1)
    running, waiting = assigned("running"), assigned("waiting")
    crew.submit(running)
    assert entered.wait(SOON)
    crew.submit(waiting)
    crew.workers.close()
    crew.workers._timer.join(SOON)
    assert not crew.workers._timer.is_alive()
    crews.gate.set()
    crew.until_reported(1)
    crew.submit(assigned("too late"))
    crew.eventually(lambda: crew.workers._threads == 0)
    assert [one for one, _ in crew.reported] == [running]


def test_an_idle_thread_goes_after_a_while(crews, monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.01)
    crew = crews(nothing)
    crew.submit(assigned())
    crew.until_reported(1)
    crew.eventually(lambda: crew.workers._threads == 0)
    crew.submit(assigned("again"))
    crew.until_reported(2)


def test_whoever_goes_says_so(crews, monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.01)
    crew = crews(nothing)
    crew.submit(assigned())
    crew.eventually(lambda: crew.threads and crew.gone == crew.threads)


def test_work_that_keeps_its_own_time_is_not_cut_off(crews):
    crew = crews(lambda one: threading.Event().wait(0.1), cuts_off=False)
    crew.submit(assigned(timeout=1_000))
    crew.until_reported(1)
    assert (crew.cut_off, crew.workers.abandoned) == ([], 0)
