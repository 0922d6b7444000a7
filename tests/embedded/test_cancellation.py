"""Cancel: waiting occurrences never run, runs are asked to stop, and nothing else is touched."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import Conflict, IntervalTrigger, NotFound, OnceTrigger, Scheduler
from tests.embedded.waiting import (
    FINAL,
    NEVER,
    SOON,
    Gate,
    ended,
    eventually,
    keep,
    look_far_ahead,
    phases,
    status,
    together,
)

SELDOM = 600.0
"""A lease, in seconds, so long that nobody learns of a cancellation when it is renewed."""


@pytest.fixture
def keeper(url):
    scheduler = Scheduler(url, lease=SELDOM)
    yield scheduler
    scheduler.stop(wait=False)
    scheduler.close()


def nothing():
    pass


def told(scheduler, job_id):
    return [(str(one.phase), str(one.reason)) for one in scheduler.occurrences(job_id)]


class TestWhetherThereWasAny:
    def test_an_unknown_job_cannot_be_cancelled(self, keeper):
        assert keeper.cancel("job_unknown") is False

    @pytest.mark.parametrize("func", [nothing, lambda: 1 / 0])
    def test_one_that_has_ended_cannot_be_cancelled(self, by_hand, func):
        job_id = keep(by_hand.scheduler, func)
        by_hand.driver.run_due()
        before = by_hand.job(job_id)
        assert by_hand.scheduler.cancel(job_id) is False
        assert by_hand.job(job_id) == before

    def test_the_second_of_two_calls_finds_nothing(self, keeper):
        job_id = keep(keeper, nothing, trigger=NEVER)
        assert [keeper.cancel(job_id), keeper.cancel(job_id)] == [True, False]

    def test_of_many_calls_at_once_one_has_done_it(self, keeper):
        job_id = keep(keeper, nothing, trigger=NEVER)
        assert sorted(together(6, lambda _: keeper.cancel(job_id))) == [False] * 5 + [True]

    def test_a_paused_one_can_be_cancelled(self, keeper):
        job_id = keep(keeper, nothing, trigger=NEVER)
        keeper.pause(job_id)
        assert keeper.cancel(job_id) is True
        assert status(keeper, job_id) == "cancelled"


class TestWhatWaits:
    def test_it_never_runs(self, by_hand):
        ran = []
        job_id = keep(by_hand.scheduler, lambda: ran.append(1), trigger=IntervalTrigger(60))
        assert by_hand.scheduler.cancel(job_id)
        by_hand.pass_time(3_600)
        assert (ran, told(by_hand.scheduler, job_id)) == ([], [("cancelled", "deleted")])

    def test_one_at_the_head_of_the_queue_does_not_hold_up_the_others(self, keeper):
        ran = threading.Semaphore(0)
        with keeper:
            soon = datetime.now(UTC) + timedelta(seconds=2)  # noqa: TID251 - it must be ahead of a real clock
            head = keep(keeper, nothing, trigger=OnceTrigger(soon))
            later = [keep(keeper, ran.release, trigger=OnceTrigger(soon + timedelta(milliseconds=n))) for n in range(5)]
            assert keeper.cancel(head)
            for _ in later:
                assert ran.acquire(timeout=SOON)
        assert told(keeper, head) == [("cancelled", "deleted")]

    def test_one_that_is_claimed_already_does_not_start(self, open_on_file):
        scheduler, ran = open_on_file(), []
        look_far_ahead(scheduler)
        with scheduler:
            soon = datetime.now(UTC) + timedelta(seconds=3)  # noqa: TID251 - it must be ahead of a real clock
            job_id = keep(scheduler, lambda: ran.append(1), trigger=OnceTrigger(soon))
            other = keep(scheduler, nothing, trigger=OnceTrigger(soon + timedelta(seconds=0.2)))
            eventually(lambda: "claimed" in phases(scheduler, job_id))
            assert scheduler.cancel(job_id)
            ended(scheduler, other)
        assert (ran, told(scheduler, job_id)) == ([], [("cancelled", "deleted")])

    def test_a_retry_that_waits_for_its_time_never_comes(self, by_hand):
        calls = []

        def fail():
            calls.append(1)
            raise ValueError

        job_id = keep(by_hand.scheduler, fail, retries=5)
        by_hand.driver.run_due()
        assert by_hand.scheduler.cancel(job_id)
        by_hand.pass_time(3_600)
        assert (len(calls), phases(by_hand.scheduler, job_id)) == (1, ["cancelled"])

    def test_what_was_asked_for_of_one_that_has_ended_is_taken_back(self, by_hand):
        ran = []
        job_id = keep(by_hand.scheduler, lambda: ran.append(1))
        by_hand.driver.run_due()
        by_hand.clock.advance(1)
        by_hand.scheduler.run_now(job_id, wait=False)
        assert by_hand.scheduler.cancel(job_id) is True
        by_hand.pass_time(60)
        assert (ran, phases(by_hand.scheduler, job_id)) == ([1], ["completed", "cancelled"])


class TestWhatRuns:
    @pytest.mark.parametrize("options", [{}, {"trigger": IntervalTrigger(0.05)}], ids=["once", "recurring"])
    def test_it_is_asked_to_stop_at_once_and_does_not_come_again(self, keeper, options):
        gate = Gate()
        keeper.start()
        job_id = keep(keeper, gate, retries=3, **options)
        gate.wait()
        assert keeper.cancel(job_id) is True
        assert gate.left.acquire(timeout=SOON)
        eventually(lambda: set(phases(keeper, job_id)) <= FINAL)
        assert (gate.runs, gate.stops, status(keeper, job_id)) == (1, 1, "cancelled")
        assert keeper.get_job(job_id).next_run is None
        [run] = keeper.runs(job_id)
        assert str(run.outcome) == "cancelled"

    def test_an_async_one_is_cancelled_where_it_awaits(self, keeper):
        begun, noticed = threading.Event(), threading.Event()

        async def work():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                noticed.set()
                raise

        keeper.start()
        job_id = keep(keeper, work, retries=3)
        assert begun.wait(SOON)
        assert keeper.cancel(job_id)
        assert noticed.wait(SOON)
        assert ended(keeper, job_id) == ["cancelled"]

    def test_one_that_raises_because_it_was_asked_is_not_tried_again(self, keeper):
        begun = threading.Event()

        def work(context):
            begun.set()
            assert context.cancelled.wait(SOON)
            raise RuntimeError("stopped half way")

        keeper.start()
        job_id = keep(keeper, work, retries=3)
        assert begun.wait(SOON)
        assert keeper.cancel(job_id)
        assert ended(keeper, job_id) == ["cancelled"]
        job = keeper.get_job(job_id)
        assert "stopped half way" in job.last_error
        assert len(keeper.runs(job_id)) == 1

    def test_one_that_does_not_look_ends_as_it_ends(self, keeper):
        begun, let_go = threading.Event(), threading.Event()

        def work():
            begun.set()
            let_go.wait(SOON)
            return "all of it"

        keeper.start()
        job_id = keep(keeper, work)
        assert begun.wait(SOON)
        assert keeper.cancel(job_id)
        let_go.set()
        assert ended(keeper, job_id) == ["completed"]
        job = keeper.get_job(job_id)
        assert (str(job.status), job.last_result, job.run_count) == ("cancelled", "all of it", 1)

    def test_a_job_may_cancel_itself(self, keeper):
        answers = []

        def work(context):
            answers.append(keeper.cancel(context.schedule_id))
            answers.append(context.cancelled.wait(SOON))

        keeper.start()
        job_id = keep(keeper, work, trigger=IntervalTrigger(0.05))
        eventually(lambda: len(answers) == 2)
        assert answers == [True, True]
        eventually(lambda: status(keeper, job_id) == "cancelled" and not keeper.list_jobs("running"))
        assert len(keeper.runs(job_id)) == 1

    def test_an_async_job_may_cancel_itself(self, keeper):
        noticed = threading.Event()

        async def work(context):
            keeper.cancel(context.schedule_id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                noticed.set()
                raise

        keeper.start()
        job_id = keep(keeper, work)
        assert noticed.wait(SOON)
        assert ended(keeper, job_id) == ["cancelled"]

    def test_one_that_another_scheduler_runs_is_asked_too(self, open_on_file):
        runner, caller, gate = open_on_file(lease=SELDOM), open_on_file(), Gate()
        with runner:
            job_id = keep(runner, gate, retries=3)
            gate.wait()
            assert caller.cancel(job_id) is True
            assert gate.left.acquire(timeout=SOON)
            assert ended(caller, job_id) == ["cancelled"]
        assert (gate.runs, gate.stops) == (1, 1)

    def test_others_that_run_are_left_alone(self, keeper):
        gate, spared = Gate(), Gate()
        with keeper:
            job_id, other = keep(keeper, gate), keep(keeper, spared)
            gate.wait()
            spared.wait()
            assert keeper.cancel(job_id)
            gate.wait_for_end()
            spared.opened.set()
            assert ended(keeper, other) == ["completed"]
        assert spared.stops == 0


class TestBesideRunNow:
    @pytest.mark.parametrize("is_started", [False, True], ids=["not started", "started"])
    def test_a_caller_that_waits_for_the_run_gets_an_error(self, keeper, is_started):
        gate, answers = Gate(), []
        job_id = keep(keeper, gate, trigger=NEVER)
        if is_started:
            keeper.start()

        def run():
            try:
                answers.append(keeper.run_now(job_id))
            except Conflict as error:
                answers.append(error.message)

        waiting = threading.Thread(target=run)
        waiting.start()
        gate.wait()
        assert keeper.cancel(job_id)
        assert gate.left.acquire(timeout=SOON)
        waiting.join(SOON)
        [answer] = answers
        assert answer.startswith("the run ended as cancelled")

    def test_a_job_that_was_cancelled_cannot_be_run(self, keeper):
        job_id = keep(keeper, nothing, trigger=NEVER)
        keeper.cancel(job_id)
        with pytest.raises(NotFound):
            keeper.run_now(job_id)

    def test_at_the_same_moment_each_run_either_ends_or_is_refused(self, keeper):
        keeper.start()
        for _ in range(5):
            job_id = keep(keeper, lambda: "ran", trigger=NEVER, overlap="allow")

            def act(number, job_id=job_id):
                try:
                    return keeper.cancel(job_id) if number == 0 else keeper.run_now(job_id)
                except (Conflict, NotFound):
                    return "refused"

            answers = together(4, act)
            assert answers.count(True) == 1
            assert set(answers) <= {True, "ran", "refused"}
            eventually(lambda job_id=job_id: "pending" not in phases(keeper, job_id))
            assert status(keeper, job_id) == "cancelled"


@pytest.mark.parametrize("stop_running", [True, False])
def test_delete_stops_runs_if_asked(stop_running):
    begun, go_on = threading.Event(), threading.Event()

    def wait(context):
        begun.set()
        eventually(lambda: context.cancelled.is_set() or go_on.is_set())
        return context.cancelled.is_set()

    with Scheduler() as scheduler:
        job = scheduler.schedule(wait)
        assert begun.wait(60)
        assert scheduler.delete(job, stop_running=stop_running) == int(stop_running)
        go_on.set() if not stop_running else None
        expected = "cancelled" if stop_running else "completed"
        eventually(lambda: [str(one.phase) for one in scheduler.occurrences(job)] == [expected])


FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


def test_a_pause_without_a_further_window_is_logged(caplog):
    scheduler = Scheduler()
    window = {"duration_seconds": 1, "end_action": "pause"}
    scheduler.schedule(
        {"target_kind": "command", "argv": ["true"]}, name="nap", trigger=OnceTrigger(FUTURE), window=window
    )
    assert "schedule nap: window.end_action: no further window follows" in caplog.text


def test_terminate_abandons_a_thread_that_does_not_stop():
    begun, go_on = [], threading.Event()

    def hang(number):
        begun.append(number)
        go_on.wait(60)

    with Scheduler() as scheduler:
        job = scheduler.schedule(hang, args=(1,), trigger=NEVER, overlap="terminate")
        scheduler.run_now(job, wait=False)
        eventually(lambda: len(begun) == 1)
        scheduler.run_now(job, wait=False)
        eventually(lambda: len(begun) == 2)
        ends = [(str(one.phase), one.reason) for one in scheduler.occurrences(job)]
        assert ("cancelled", "replaced") in ends
        assert [phase for phase, _ in ends].count("dispatching") == 1
        go_on.set()
