"""Manual runs: the result, the error, and what prevents one."""

import threading

import pytest

from noonmark import Conflict, InvalidSchedule, NotFound, OverlapConflict, Scheduler
from noonmark.embedded import run_now
from tests.embedded.waiting import NEVER, SOON, ended, eventually, phases, together


@pytest.fixture
def scheduler():
    made = Scheduler()
    yield made
    made.stop(wait=False)


@pytest.fixture(params=[False, True], ids=["not started", "started"])
def either(request, scheduler):
    """A scheduler that is not started, and one that is."""
    if request.param:
        scheduler.start()
    return scheduler


class Slow:
    """A function that is in flight until it is let go."""

    def __init__(self):
        self.entered, self.gate = threading.Semaphore(0), threading.Event()

    def __call__(self):
        self.entered.release()
        self.gate.wait(SOON)
        return "done"

    def begin(self, scheduler, **options):
        """A schedule of it with one run in flight, in a thread of its own."""
        job = scheduler.schedule(self, trigger=NEVER, **options)
        self.thread = threading.Thread(target=scheduler.run_now, args=(job,))
        self.thread.start()
        assert self.entered.acquire(timeout=SOON)
        return job

    def end(self):
        self.gate.set()
        self.thread.join(SOON)
        assert not self.thread.is_alive()


@pytest.fixture
def slow():
    made = Slow()
    yield made
    made.gate.set()


class TestTheAnswer:
    def test_it_returns_the_result(self, either):
        job = either.schedule(lambda: {"rows": 3}, trigger=NEVER)
        assert either.run_now(job) == {"rows": 3}

    def test_it_raises_the_functions_own_error(self, either):
        error = ValueError("mine")

        def fail():
            raise error

        job = either.schedule(fail, trigger=NEVER)
        with pytest.raises(ValueError, match="mine") as raised:
            either.run_now(job)
        assert raised.value is error
        assert phases(either, job)[0] == "failed"

    def test_async_functions_too(self, either):
        async def later(one):
            return one

        assert either.run_now(either.schedule(later, args=[5], trigger=NEVER)) == 5

    def test_a_payload_reaches_the_function(self, either):
        job = either.schedule(lambda context: context.payload["who"], trigger=NEVER)
        assert either.run_now(job, {"who": "ada"}) == "ada"

    @pytest.mark.parametrize("payload", [object(), {1: 2}, float("nan"), "\ud800", "x" * 300_000])
    def test_a_payload_must_be_json(self, scheduler, payload):
        job = scheduler.schedule(lambda: 1, trigger=NEVER)
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.run_now(job, payload)
        assert refused.value.field == "payload"
        assert scheduler.runs(job) == []

    def test_retries_are_part_of_it(self, either):
        calls = []

        def work():
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("not yet")
            return len(calls)

        assert either.run_now(either.schedule(work, trigger=NEVER, retries=1)) == 2

    @pytest.mark.parametrize("result", [{1, 2}, ("a", 1), {1: 2}, object()])
    def test_it_is_the_very_thing_that_the_function_returned(self, either, result):
        job = either.schedule(lambda: result, trigger=NEVER)
        assert either.run_now(job) is result

    def test_a_timeout_is_shown_as_one(self, either, slow):
        job = either.schedule(slow, trigger=NEVER, timeout=0.05)
        with pytest.raises(TimeoutError, match="the run took longer than its timeout"):
            either.run_now(job)

    def test_it_does_not_move_the_next_fire(self, either):
        job = either.schedule(lambda: 1, trigger=NEVER)
        [planned] = either.occurrences(job)
        either.run_now(job)
        newest = either.occurrences(job)[0]
        assert (newest.id, newest.nominal_at, str(newest.phase)) == (planned.id, planned.nominal_at, "pending")
        assert either.occurrences(job)[1].origin.startswith("manual:")

    def test_a_completed_schedule_can_run_again(self, scheduler):
        job = scheduler.schedule(lambda: 7)
        with scheduler:
            ended(scheduler, job)
        assert scheduler.run_now(job) == 7

    def test_a_deleted_one_cannot(self, scheduler):
        job = scheduler.schedule(lambda: 7, trigger=NEVER)
        scheduler.delete(job)
        with pytest.raises(NotFound):
            scheduler.run_now(job)


class TestNotWaiting:
    def test_it_gives_the_id_of_the_occurrence(self, scheduler):
        ran = threading.Event()
        job = scheduler.schedule(ran.set, trigger=NEVER)
        with scheduler:
            made = scheduler.run_now(job, wait=False)
            assert ran.wait(SOON)
            ended(scheduler, job)
        assert made in {one.id for one in scheduler.occurrences(job)}

    def test_without_start_it_waits_for_one(self, scheduler):
        ran = threading.Event()
        job = scheduler.schedule(ran.set, trigger=NEVER)
        scheduler.run_now(job, wait=False)
        assert phases(scheduler, job)[0] == "pending"
        assert not ran.is_set()
        with scheduler:
            assert ran.wait(SOON)


class TestOverlap:
    def test_while_one_is_in_flight_another_is_refused(self, either, slow):
        job = slow.begin(either)
        with pytest.raises(OverlapConflict) as refused:
            either.run_now(job)
        assert refused.value.code == "overlap"
        slow.end()
        assert either.run_now(job) == "done"
        assert sorted(phases(either, job)) == ["completed", "completed", "pending", "skipped"]

    def test_the_call_may_override_that(self, either, slow):
        job = slow.begin(either)
        answers = []
        second = threading.Thread(target=lambda: answers.append(either.run_now(job, overlap="allow")))
        second.start()
        assert slow.entered.acquire(timeout=SOON)  # both are in flight
        slow.end()
        second.join(SOON)
        assert answers == ["done"]

    def test_it_may_also_queue_up(self, either, slow):
        job = slow.begin(either)
        answers = []
        second = threading.Thread(target=lambda: answers.append(either.run_now(job, overlap="queue")))
        second.start()
        eventually(lambda: any(str(one.reason) == "queued" or one.waiting_for for one in either.occurrences(job)))
        slow.end()
        second.join(SOON)
        assert answers == ["done"]

    def test_it_may_say_so_before_the_start(self, scheduler, slow):
        job = scheduler.schedule(slow, trigger=NEVER)
        for _ in range(2):
            scheduler.run_now(job, wait=False, overlap="allow")
        scheduler.start()
        for _ in range(2):
            assert slow.entered.acquire(timeout=SOON)
        slow.gate.set()
        assert ended(scheduler, job, 2) == ["completed", "completed"]

    @pytest.mark.parametrize("policy", ["sometimes", 5, {"type": "queue", "queue_limit": 0}])
    def test_an_unknown_policy_is_refused(self, scheduler, policy):
        job = scheduler.schedule(lambda: 1, trigger=NEVER)
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.run_now(job, overlap=policy)
        assert refused.value.field.startswith("overlap")
        assert len(scheduler.occurrences(job)) == 1


class TestBesideOthers:
    def test_many_at_once_without_start(self, scheduler):
        jobs = [scheduler.schedule(lambda number=number: number, trigger=NEVER) for number in range(6)]
        assert sorted(together(6, lambda number: scheduler.run_now(jobs[number]))) == list(range(6))

    def test_one_that_ends_does_not_stop_a_scheduler_that_was_started_meanwhile(self, scheduler, slow):
        slow.begin(scheduler)
        scheduler.start()
        slow.end()
        ran = threading.Event()
        scheduler.schedule(ran.set)
        assert ran.wait(SOON)

    def test_stopping_notifies_waiting_callers(self, scheduler, slow):
        job = scheduler.schedule(slow, trigger=NEVER)
        scheduler.start()
        collected = []

        def wait():
            try:
                scheduler.run_now(job)
            except Conflict as error:
                collected.append(error.message)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert slow.entered.acquire(timeout=SOON)
        scheduler.stop(wait=False)
        waiting.join(SOON)
        assert collected == ["the scheduler was stopped before the run had ended; it runs again after the next start"]

    def test_a_function_may_run_another_and_wait_for_it(self, either):
        inner = either.schedule(lambda: 5, trigger=NEVER)
        outer = either.schedule(lambda: either.run_now(inner) + 1, trigger=NEVER)
        assert either.run_now(outer) == 6

    def test_an_async_function_may_run_another_but_not_wait_for_it(self, scheduler):
        ran = threading.Event()
        inner = scheduler.schedule(ran.set, trigger=NEVER)

        async def outer():
            scheduler.run_now(inner, wait=False)
            scheduler.run_now(inner)

        scheduler.start()
        job = scheduler.schedule(outer, trigger=NEVER)
        with pytest.raises(Conflict, match="async function cannot wait"):
            scheduler.run_now(job)
        assert ran.wait(SOON)


def test_the_error_is_the_functions_own_however_late_the_news_of_its_end(tmp_path, monkeypatch):
    # The store is looked at all the time, so that it says first that the run has ended.
    monkeypatch.setattr(run_now, "POLL_SECONDS", 0.0002)

    class Mine(Exception):
        pass

    def fail():
        raise Mine

    # In a file: there the end is written in another thread than the one that tells of it.
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")
    job = scheduler.schedule(fail, trigger=NEVER, function_name="fail")
    with scheduler:
        for _ in range(200):
            with pytest.raises(Mine):
                scheduler.run_now(job)


def test_a_declaration_that_is_refused_leaves_the_function_of_others_alone(scheduler):
    job = scheduler.schedule(lambda: "old", trigger=NEVER, function_name="work")
    with pytest.raises(InvalidSchedule):
        scheduler.schedule(lambda: "new", trigger=NEVER, function_name="work", timeout=-5)
    with pytest.raises(InvalidSchedule):
        scheduler.update(job, lambda: "new", function_name="work", timeout=-5)
    assert scheduler.run_now(job) == "old"
    scheduler.update(job, lambda: "new", function_name="work")
    assert scheduler.run_now(job) == "new"


def test_many_who_start_it_at_once_start_it_once(scheduler):
    together(8, lambda _: scheduler.start())
    assert eventually(lambda: len(scheduler._runners.alive) == 1)
    assert scheduler.run_now(scheduler.schedule(lambda: 7, trigger=NEVER)) == 7
