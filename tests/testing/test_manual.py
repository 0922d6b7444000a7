"""Driving a scheduler by hand: nights, retries, timeouts and outages in no time at all."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import AsyncScheduler, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger, Scheduler
from noonmark.core.event import parse_event
from noonmark.operations.events import emit
from noonmark.ports.events import Settled
from noonmark.testing import FakeClock, ManualDriver

START = datetime(2030, 5, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class Kit:
    def __init__(self, start=START, **settings):
        self.clock = FakeClock(start)
        self.scheduler = Scheduler(clock=self.clock, **settings)
        self.driver = ManualDriver(self.scheduler)
        self.times = []

    def note(self):
        self.times.append(self.clock.now())
        return len(self.times)

    def phases(self, job):
        return [str(one.phase) for one in reversed(self.scheduler.occurrences(job))]


@pytest.fixture
def kit():
    return Kit()


class TestRunDue:
    def test_nothing_runs_before_its_time(self, kit):
        kit.scheduler.schedule(kit.note, trigger=IntervalTrigger(60))
        assert kit.driver.run_due() == []
        kit.clock.advance(59.999999)
        assert kit.driver.run_due() == []
        kit.clock.advance(0.000001)
        assert [run.result for run in kit.driver.run_due()] == [1]
        assert kit.times == [START + MINUTE]
        assert kit.driver.run_due() == []

    def test_events_run_what_waits_for_them_one_after_another(self, kit):
        def note(context):
            return (context.event["event_id"], context.payload["n"])

        kit.scheduler.schedule(note, trigger=EventTrigger("counted"))
        store = kit.scheduler._store
        for number in range(3):
            document = {"event_type": "counted", "event_id": f"e{number}", "payload": {"n": number}}
            emit(store, "default", parse_event(document, now=kit.clock.now()), fresh_id="-")
        assert [run.result for run in kit.driver.run_due()] == [["e0", 0], ["e1", 1], ["e2", 2]]
        assert kit.driver.run_until(START + DAY) == []

    def test_it_gives_the_runs_in_order(self, kit):
        for name, after in (("late", 3), ("early", 1), ("middle", 2)):
            when = OnceTrigger(START + timedelta(seconds=after))
            kit.scheduler.schedule(lambda name=name: name, trigger=when)
        kit.clock.advance(10)
        runs = kit.driver.run_due()
        assert [run.result for run in runs] == ["early", "middle", "late"]
        assert {str(run.outcome) for run in runs} == {"completed"}
        assert {run.started_at for run in runs} == {START + timedelta(seconds=10)}

    def test_what_falls_due_because_of_it_runs_too(self, kit):
        def first():
            kit.scheduler.schedule(lambda: "second")
            return "first"

        kit.scheduler.schedule(first)
        assert [run.result for run in kit.driver.run_due()] == ["first", "second"]

    def test_a_function_that_takes_long_makes_others_late(self, kit):
        kit.scheduler.schedule(lambda: kit.clock.advance(30), trigger=OnceTrigger(START + MINUTE))
        job = kit.scheduler.schedule(kit.note, trigger=OnceTrigger(START + MINUTE + timedelta(seconds=10)))
        kit.clock.advance(60)
        assert len(kit.driver.run_due()) == 2
        assert kit.times == [START + MINUTE + timedelta(seconds=30)]
        assert kit.phases(job) == ["completed"]

    def test_an_outage_is_judged_by_the_misfire_policy(self, kit):
        skips = kit.scheduler.schedule(kit.note, trigger=CronTrigger("30 * * * *"))
        catches_up = kit.scheduler.schedule(kit.note, trigger=CronTrigger("30 * * * *"), misfire="catch_up_all")
        kit.clock.advance(3 * 3600)
        assert len(kit.driver.run_due()) == 3
        assert kit.phases(skips)[:1] == ["misfired"]
        assert kit.phases(catches_up)[:3] == ["completed"] * 3

    def test_run_now_works_beside_it(self, kit):
        job = kit.scheduler.schedule(kit.note, trigger=IntervalTrigger(60))
        assert kit.scheduler.run_now(job) == 1
        kit.scheduler.run_now(job, wait=False)
        assert [run.result for run in kit.driver.run_due()] == [2]

    def test_pause_and_resume(self, kit):
        job = kit.scheduler.schedule(kit.note, trigger=IntervalTrigger(60))
        kit.scheduler.pause(job)
        assert kit.driver.run_until(START + 3 * MINUTE) == []
        kit.scheduler.resume(job)
        assert len(kit.driver.run_until(START + 5 * MINUTE)) == 2
        assert kit.phases(job)[:1] == ["skipped"]


class TestRunUntil:
    def test_it_stops_wherever_something_is_due(self, kit):
        kit.scheduler.schedule(kit.note, trigger=IntervalTrigger(60))
        runs = kit.driver.run_until(START + 5 * MINUTE)
        assert kit.times == [START + n * MINUTE for n in range(1, 6)]
        assert [run.result for run in runs] == [1, 2, 3, 4, 5]
        assert kit.clock.now() == START + 5 * MINUTE

    def test_time_passes_even_when_nothing_is_due(self, kit):
        assert kit.driver.run_until(START + DAY) == []
        assert kit.clock.now() == START + DAY

    def test_an_instant_that_is_past_runs_only_what_is_due(self, kit):
        kit.scheduler.schedule(kit.note)
        assert len(kit.driver.run_until(START - DAY)) == 1
        assert kit.clock.now() == START

    def test_several_schedules_take_turns(self, kit):
        for name, every in (("a", 60), ("b", 90)):
            kit.scheduler.schedule(lambda name=name: name, trigger=IntervalTrigger(every))
        runs = kit.driver.run_until(START + timedelta(seconds=200))
        assert [run.result for run in runs] == ["a", "b", "a", *[run.result for run in runs[3:]]]
        assert sorted(run.result for run in runs) == ["a", "a", "a", "b", "b"]

    def test_the_night_on_which_an_hour_is_missing(self):
        kit = Kit(datetime(2027, 3, 27, 12, tzinfo=UTC))
        kit.scheduler.schedule(kit.note, trigger=CronTrigger("30 2 * * *", timezone="Europe/Stockholm"))
        kit.driver.run_until(datetime(2027, 3, 29, 12, tzinfo=UTC))
        assert kit.times == [datetime(2027, 3, 28, 1, 0, tzinfo=UTC), datetime(2027, 3, 29, 0, 30, tzinfo=UTC)]

    def test_the_night_on_which_an_hour_comes_twice(self):
        kit = Kit(datetime(2026, 10, 24, 12, tzinfo=UTC))
        kit.scheduler.schedule(kit.note, trigger=CronTrigger("30 2 * * *", timezone="Europe/Stockholm"))
        kit.driver.run_until(datetime(2026, 10, 26, 12, tzinfo=UTC))
        assert kit.times == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]

    def test_a_year_of_days(self):
        kit = Kit(datetime(2030, 1, 1, tzinfo=UTC))
        kit.scheduler.schedule(kit.note, trigger=CronTrigger("0 9 * * *", timezone="America/New_York"))
        kit.driver.run_until(datetime(2031, 1, 1, tzinfo=UTC))
        assert len(kit.times) == 365

    def test_what_nobody_can_run_ends_when_patience_does(self, tmp_path):
        store = f"sqlite:///{tmp_path / 'jobs.db'}"
        elsewhere = Kit(store=store)
        job = elsewhere.scheduler.schedule(
            elsewhere.note, trigger=OnceTrigger(START + MINUTE), function_name="not here"
        )
        here = Kit(store=store)
        assert here.driver.run_until(START + MINUTE) == []
        assert here.phases(job) == ["pending"]
        assert here.driver.run_until(START + HOUR) == []
        [occurrence] = here.scheduler.occurrences(job)
        assert (str(occurrence.phase), str(occurrence.reason)) == ("misfired", "target_missing")


class TestFailures:
    def test_retries_wait_longer_and_longer(self, kit):
        def fail():
            kit.note()
            raise ValueError("no")

        job = kit.scheduler.schedule(fail, retries=3)
        runs = kit.driver.run_until(START + DAY)
        assert [(run.attempt, str(run.outcome)) for run in runs] == [(n, "failed") for n in (1, 2, 3, 4)]
        pauses = [later - earlier for earlier, later in zip(kit.times, kit.times[1:], strict=False)]
        assert pauses == sorted(pauses)
        assert timedelta(0) < pauses[0] < pauses[1] < pauses[2]
        assert kit.phases(job) == ["failed"]

    def test_a_retry_that_succeeds_ends_it(self, kit):
        def work():
            if kit.note() == 1:
                raise ValueError("not yet")

        job = kit.scheduler.schedule(work, retries=3)
        runs = kit.driver.run_until(START + HOUR)
        assert [str(run.outcome) for run in runs] == ["failed", "completed"]
        assert kit.phases(job) == ["completed"]

    def test_a_function_that_outlives_its_timeout_has_timed_out(self, kit):
        job = kit.scheduler.schedule(lambda: kit.clock.advance(10), timeout=10)
        [run] = kit.driver.run_due()
        assert str(run.outcome) == "timed_out"
        assert kit.phases(job) == ["timed_out"]

    def test_a_function_that_is_just_in_time_has_not(self, kit):
        kit.scheduler.schedule(lambda: kit.clock.advance(9.999999), timeout=10)
        [run] = kit.driver.run_due()
        assert str(run.outcome) == "completed"
        assert run.ended_at - run.started_at == timedelta(seconds=9.999999)

    def test_a_function_may_take_longer_than_a_lease(self, kit):
        job = kit.scheduler.schedule(lambda: kit.clock.advance(3600))
        [run] = kit.driver.run_due()
        assert str(run.outcome) == "completed"
        assert kit.phases(job) == ["completed"]

    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
    def test_any_exception_of_a_function_is_a_failed_run(self, kit, kind):
        def fail():
            raise kind("on purpose")

        kit.scheduler.schedule(fail)
        [run] = kit.driver.run_due()
        assert str(run.outcome) == "failed"
        assert kind.__name__ in run.error

    def test_an_async_function_runs_to_its_end(self, kit):
        async def later(context):
            return context.attempt

        kit.scheduler.schedule(later)
        assert [run.result for run in kit.driver.run_due()] == [1]


class TestMaking:
    def test_it_needs_a_clock_that_stands_still(self):
        with pytest.raises(TypeError, match="FakeClock"):
            ManualDriver(Scheduler())

    def test_the_sink_of_the_scheduler_gets_all_driver_events(self):
        class Sink:
            def __init__(self):
                self.told = []

            def report(self, happenings):
                self.told += happenings

        sink = Sink()
        kit = Kit(sink=sink)
        kit.scheduler.schedule(kit.note)
        [run] = kit.driver.run_due()
        assert [one.run for one in sink.told if isinstance(one, Settled)] == [run]

    def test_a_file_serves_as_well_as_memory(self, tmp_path):
        kit = Kit(store=f"sqlite:///{tmp_path / 'jobs.db'}")
        kit.scheduler.schedule(kit.note, trigger=IntervalTrigger(60), function_name="note")
        kit.driver.run_until(START + 3 * MINUTE)
        assert kit.times == [START + n * MINUTE for n in range(1, 4)]


def test_an_async_scheduler_is_driven_likewise():
    scheduler = AsyncScheduler(clock=FakeClock(START))
    job = asyncio.run(scheduler.schedule(lambda: 7, trigger=IntervalTrigger(60)))
    [run] = ManualDriver(scheduler).run_until(START + timedelta(seconds=60))
    assert (run.result, asyncio.run(scheduler.get_job(job)).run_count) == (7, 1)


@pytest.mark.parametrize(
    "misfire",
    [
        {"type": "catch_up_all", "limit": 10},
        "fire_immediately",
        {"type": "catch_up_within", "window_seconds": 600},
        {"type": "spread", "window_seconds": 40},
    ],
)
def test_every_fire_of_an_outage_that_is_kept_runs_in_order(misfire):
    kit, ran = Kit(START + timedelta(seconds=10)), []
    job = kit.scheduler.schedule(
        lambda context: ran.append(context.nominal_at), trigger=CronTrigger("* * * * *"), misfire=misfire
    )
    kit.clock.advance(5 * 60)
    kit.driver.run_due()
    kit.driver.run_until(START + 5 * MINUTE + timedelta(seconds=59))
    assert ran == [START + minute * MINUTE for minute in range(1, 6)]
    assert kit.phases(job) == [*["completed"] * 5, "pending"]
