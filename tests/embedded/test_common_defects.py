"""Common defects of schedulers, one by one, and the behaviour here."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from time import thread_time  # noqa: TID251 - what a search costs is said in time of its own

import pytest

from noonmark import (
    CronTrigger,
    IntervalTrigger,
    InvalidTrigger,
    JobPipeline,
    JobStatus,
    OnceTrigger,
    Scheduler,
    describe,
)
from noonmark.clocks import SystemClock
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.conftest import START, ByHand
from tests.embedded.waiting import FINAL, NEVER, SOON, Gate, ended, eventually, keep, phases

MONDAY = datetime(2030, 3, 18, tzinfo=UTC)
DAY = timedelta(days=1)


def nothing():
    pass


def add(first, second=0):
    return first + second


class TestRunning:
    def test_without_a_trigger_it_runs_at_once(self, keeper):
        ran = threading.Event()
        keeper.start()
        job_id = keep(keeper, ran.set)
        assert ran.wait(SOON)
        assert ended(keeper, job_id) == ["completed"]

    def test_a_pipeline_ends(self, keeper):
        with keeper:
            assert asyncio.run(JobPipeline(keeper).add_stage(nothing).add_stage(nothing).run()) == [[None], [None]]

    @pytest.mark.parametrize(
        "error", [KeyError("k"), LookupError(), ArithmeticError(), MemoryError(), BaseException("b"), SystemExit(1)]
    )
    def test_any_exception_is_recorded_and_the_job_runs_again(self, by_hand, error):
        calls = []

        def fail():
            calls.append(1)
            raise error

        job_id = keep(by_hand.scheduler, fail, trigger=IntervalTrigger(60))
        by_hand.pass_time(60)
        job = by_hand.job(job_id)
        assert (job.status, job.run_count, len(calls)) == (JobStatus.PENDING, 1, 1)
        assert type(error).__name__ in job.last_error
        by_hand.pass_time(60)
        assert len(calls) == 2

    def test_a_stopped_scheduler_can_be_started(self, keeper):
        for _ in range(3):
            ran = threading.Event()
            keeper.start()
            keep(keeper, ran.set)
            assert ran.wait(SOON)
            keeper.stop()

    def test_running_by_hand_does_not_race_with_the_trigger(self, keeper):
        """A run in flight and one by hand overlap only if they may."""
        running, most, lock = 0, 0, threading.Lock()

        def work():
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1

        # Not so often that the queue grows faster than a busy machine can work it off.
        job_id = keep(keeper, work, trigger=IntervalTrigger(0.2), overlap="queue")

        def fired():
            return [one for one in keeper.occurrences(job_id) if one.origin == "trigger" and str(one.phase) in FINAL]

        with keeper:
            while len(fired()) < 5:
                keeper.run_now(job_id)
        assert most == 1

    def test_results_do_not_grow_without_end(self):
        clock = FakeClock(START)
        scheduler = Scheduler(clock=clock, keep_occurrences=5)
        job_id = scheduler.schedule(lambda: "x" * 1_000, trigger=IntervalTrigger(1))
        driver = ManualDriver(scheduler)
        driver.run_until(START + timedelta(seconds=50))
        asyncio.run(driver._driver.lead_once())
        while asyncio.run(driver._driver.prune_once()).more:
            pass
        assert len(scheduler.runs(job_id)) == 5
        assert scheduler.get_job(job_id).run_count == 50

    def test_a_result_that_is_too_large_is_not_kept_but_said(self, by_hand):
        job_id = keep(by_hand.scheduler, lambda: "x" * 1_000_000)
        by_hand.driver.run_due()
        [run] = by_hand.scheduler.runs(job_id)
        assert (str(run.outcome), run.result) == ("completed", None)
        assert run.error.startswith("the result was not stored: its JSON has 1,000,002 bytes")


class TestOrder:
    def test_a_dependent_job_runs_after_the_one_it_depends_on(self, keeper):
        ran, gate = [], Gate()
        first = keep(keeper, gate)
        second = keeper.schedule_with_deps(lambda: ran.append("second"), [first], function_name="second")
        with keeper:
            gate.wait()
            assert (ran, phases(keeper, second)) == ([], [])
            gate.opened.set()
            ended(keeper, second)
        assert ran == ["second"]

    def test_a_dependent_job_does_not_run_after_a_failure(self, by_hand):
        ran = []
        first = keep(by_hand.scheduler, lambda: 1 / 0)
        second = by_hand.scheduler.schedule_with_deps(lambda: ran.append(1), [first], function_name="second")
        by_hand.driver.run_due()
        assert (ran, phases(by_hand.scheduler, second)) == ([], ["skipped"])

    def test_cancelling_the_head_of_the_queue_does_not_stall_the_queue(self, by_hand):
        ran = []
        head, *_ = [
            keep(
                by_hand.scheduler,
                lambda number=number: ran.append(number),
                trigger=OnceTrigger(START + timedelta(seconds=1 + number)),
            )
            for number in range(4)
        ]
        assert by_hand.scheduler.cancel(head)
        by_hand.driver.run_until(START + timedelta(seconds=10))
        assert ran == [1, 2, 3]

    def test_cancelling_while_it_runs_is_final(self, keeper):
        gate = Gate()
        keeper.start()
        job_id = keep(keeper, gate, trigger=IntervalTrigger(0.02))
        gate.wait()
        assert keeper.cancel(job_id)
        gate.wait_for_end()
        eventually(lambda: set(phases(keeper, job_id)) <= FINAL)
        assert (gate.runs, keeper.get_job(job_id).status) == (1, JobStatus.CANCELLED)


class TestCron:
    @pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun", "Sunday"])
    def test_sunday_is_0_and_7(self, sunday):
        trigger = CronTrigger.from_expression(f"0 9 * * {sunday}")
        assert trigger.next_after(MONDAY) == datetime(2030, 3, 24, 9, tzinfo=UTC)
        assert "Sunday" in describe(trigger).text

    def test_monday_is_1(self):
        assert CronTrigger("0 9 * * 1").next_after(MONDAY) == MONDAY + timedelta(hours=9)

    def test_a_day_of_the_month_or_a_day_of_the_week(self):
        trigger = CronTrigger("0 0 20 * FRI")
        days = [trigger.next_after(MONDAY + number * DAY).day for number in range(5)]
        assert days == [20, 20, 22, 22, 29]

    @pytest.mark.parametrize(
        "bad",
        ["99 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "* * * *", "a * * * *", "5-1 * * * *", ""],
    )
    def test_a_bad_expression_is_refused_at_once(self, bad):
        with pytest.raises(InvalidTrigger) as refused:
            CronTrigger.from_expression(bad)
        assert isinstance(refused.value, ValueError)

    def test_a_step_over_a_range(self):
        trigger = CronTrigger("1-5/2 * * * *")
        minutes = [one.minute for one in _next(trigger, 4)]
        assert minutes == [1, 3, 5, 1]

    def test_a_step_from_a_value_on(self):
        assert [one.minute for one in _next(CronTrigger("5/10 * * * *"), 7)] == [5, 15, 25, 35, 45, 55, 5]

    def test_the_29th_of_february_is_found_from_any_year_and_quickly(self):
        trigger = CronTrigger("0 0 29 2 *")
        begun = thread_time()
        for year in (2097, 2030, 2031):
            found = trigger.next_after(datetime(year, 3, 1, tzinfo=UTC))
        assert thread_time() - begun < 0.5  # of its own work, however busy the machine is
        assert found == datetime(2032, 2, 29, tzinfo=UTC)
        assert trigger.next_after(datetime(2097, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)

    def test_times_are_of_a_zone_and_never_naive(self):
        trigger = CronTrigger("0 9 * * *", "America/New_York")
        assert trigger.next_after(MONDAY) == datetime(2030, 3, 18, 13, tzinfo=UTC)
        with pytest.raises(InvalidTrigger):
            trigger.next_after(datetime(2030, 3, 18))  # noqa: DTZ001 - on purpose


class TestIntervals:
    def test_they_do_not_drift_with_what_a_run_takes(self, by_hand):
        begun = []

        def slow():
            begun.append(by_hand.clock.now())
            by_hand.clock.advance(7.3)

        keep(by_hand.scheduler, slow, trigger=IntervalTrigger(10))
        by_hand.driver.run_until(START + timedelta(seconds=61))
        assert begun == [START + timedelta(seconds=10 * number) for number in range(1, 7)]

    def test_they_never_fire_at_once_or_early(self, keeper):
        begun, clock = [], SystemClock()

        def work(context):
            begun.append(clock.now() - declared[context.schedule_id])

        keeper.register_function("work", work)
        declared = {}
        for _ in range(20):
            before = clock.now()
            declared[keeper.schedule(work, trigger=IntervalTrigger(0.1), max_runs=1)] = before
        keeper.start()
        eventually(lambda: len(begun) == 20)
        assert min(begun) >= timedelta(seconds=0.1)

    @pytest.mark.parametrize("every", [0, -5, 0.0, float("inf")])
    def test_one_of_no_length_is_refused(self, every):
        with pytest.raises(InvalidTrigger):
            IntervalTrigger(every)

    def test_a_daily_job_runs_once_a_day(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=CronTrigger("0 9 * * *"))
        for _ in range(3 * 24 * 6):  # looked at every ten minutes, as a loop that polls would
            by_hand.pass_time(600)
        assert [one.nominal_at.hour for one in by_hand.scheduler.occurrences(job_id)] == [9] * 4
        assert by_hand.job(job_id).run_count == 3


class TestPersistence:
    def test_everything_outlives_the_program(self, tmp_path):
        by_hand = ByHand(f"sqlite:///{tmp_path / 'jobs.db'}")
        trigger = IntervalTrigger(60)
        job_id = by_hand.scheduler.schedule(
            add, name="sum", trigger=trigger, args=[1], kwargs={"second": 2}, max_runs=3, labels={"team": "a"}
        )
        by_hand.pass_time(60)
        before = by_hand.job(job_id)
        by_hand.scheduler.close()
        by_hand.open()
        assert by_hand.job(job_id) == before
        assert (before.run_count, before.last_result, before.trigger.every_seconds) == (1, 3, 60)
        by_hand.pass_time(60)
        by_hand.scheduler.close()
        by_hand.open()
        by_hand.driver.run_until(START + timedelta(hours=1))
        job = by_hand.job(job_id)
        assert (job.status, job.run_count, job.last_result) == (JobStatus.COMPLETED, 3, 3)
        by_hand.scheduler.close()

    def test_functions_may_be_registered_after_the_file_was_opened(self, open_on_file):
        first = open_on_file()
        job_id = first.schedule(lambda: None, function_name="work")
        first.close()
        again, ran = open_on_file(), threading.Event()
        again.start()
        again.register_function("work", ran.set)
        assert ran.wait(SOON)
        assert ended(again, job_id) == ["completed"]


def _next(trigger, count):
    collected, instant = [], MONDAY
    for _ in range(count):
        instant = trigger.next_after(instant)
        collected.append(instant)
    return collected


def test_the_names_that_people_know_are_here(by_hand):
    """Scheduler, its dependencies, its persistence and its pipeline are one class each here."""
    scheduler = by_hand.scheduler
    job_id = scheduler.schedule(func=nothing, name="job", trigger=NEVER, args=(), kwargs=None, max_runs=2)
    assert scheduler.get_job(job_id=job_id) in scheduler.list_jobs(status=JobStatus.PENDING)
    scheduler.add_dependency(job_id=job_id, depends_on=[keep(scheduler, nothing, trigger=NEVER)])
    scheduler.register_function(name="nothing", func=nothing)
    assert scheduler.cancel(job_id=job_id) is True
