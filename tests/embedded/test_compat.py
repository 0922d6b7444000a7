"""What is written for another in-process scheduler: positional arguments, other names of classes and settings."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonmark import (
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    InvalidTrigger,
    JobStatus,
    OnceTrigger,
    Scheduler,
    compat,
)
from noonmark.core.instants import to_micros
from tests.embedded.waiting import NEVER, ended

NOON = datetime(2030, 3, 17, 12, tzinfo=UTC)
LOCAL = datetime(2030, 7, 1, 9, 0)  # noqa: DTZ001 - naive on purpose


def add(first, second=0):
    return first + second


def test_schedule_takes_its_first_arguments_by_position():
    scheduler = Scheduler(max_workers=4)
    job = scheduler.get_job(scheduler.schedule(add, "sum", NEVER, (1,), {"second": 2}, 5))
    assert (job.name, job.trigger, scheduler.run_now(job)) == ("sum", NEVER, 3)
    assert scheduler._find(job).schedule.declaration.max_runs == 5
    assert scheduler._limits[0] == 4


@pytest.mark.parametrize("settings", [{"max_workers": 0}, {"max_workers": 4, "max_threads": 5}])
def test_max_workers_is_another_name_for_max_threads(settings):
    with pytest.raises(InvalidSchedule) as refused:
        Scheduler(**settings)
    assert refused.value.field == "max_workers"


def test_naive_datetimes_are_local_times_of_the_zone_that_the_scheduler_has():
    paris = Scheduler(timezone=ZoneInfo("Europe/Paris"))
    job = paris.once(LOCAL, name="once")(lambda: None).job_id
    assert paris.get_job(job).trigger.at == datetime(2030, 7, 1, 7, tzinfo=UTC)
    assert paris.preview("once", after=LOCAL - timedelta(days=1)) == [datetime(2030, 7, 1, 7, tzinfo=UTC)]
    assert paris.explain("once", at=LOCAL).at == datetime(2030, 7, 1, 7, tzinfo=UTC)


def test_triggers_may_have_naive_datetimes_too():
    paris, at = Scheduler(timezone="Europe/Paris"), datetime(2030, 7, 1, 7, tzinfo=UTC)
    once = paris.schedule(add, "once", OnceTrigger(LOCAL), (1,))
    often = paris.schedule(add, "often", IntervalTrigger(60, LOCAL, LOCAL + timedelta(days=1)), (1,))
    assert paris.get_job(once).trigger == OnceTrigger(at)
    assert paris.get_job(often).trigger == IntervalTrigger(60, at, at + timedelta(days=1))
    assert paris.schedule(add, "often", IntervalTrigger(60, LOCAL, LOCAL + timedelta(days=1)), (1,)) == often
    assert paris._find(often).schedule.revision == 1
    [many] = paris.create_many([{"func": add, "args": (1,), "trigger": compat.OnceTrigger(LOCAL)}])
    assert paris.get_job(many).trigger == OnceTrigger(at)
    assert paris.update(once, trigger=OnceTrigger(LOCAL + timedelta(days=1))).next_run == at + timedelta(days=1)
    event = paris.schedule_event("day", trigger=CronTrigger("0 9 * * *", "Europe/Paris", start_at=LOCAL))
    assert paris.get_job(event).next_run == at
    assert paris.preview(OnceTrigger(LOCAL)) == [at]
    assert paris.match_events(EventTrigger("day", start_at=LOCAL)).checked == 0
    paris.pause(once, until=LOCAL)
    assert paris._find(once).schedule.pause.until == to_micros(at)


def test_a_local_time_that_the_clock_skips_or_shows_twice():
    paris = Scheduler(timezone="Europe/Paris")
    skipped, twice = datetime(2030, 3, 31, 2, 30), datetime(2030, 10, 27, 2, 30)  # noqa: DTZ001 - naive on purpose
    assert paris.preview(OnceTrigger(skipped)) == [datetime(2030, 3, 31, 1, tzinfo=UTC)]
    assert paris.preview(OnceTrigger(twice)) == [datetime(2030, 10, 27, 0, 30, tzinfo=UTC)]


@pytest.mark.parametrize(
    "declare",
    [
        lambda scheduler: scheduler.schedule(add, "sum", OnceTrigger(LOCAL), (1,)),
        lambda scheduler: scheduler.schedule(add, "sum", IntervalTrigger(60, start_at=LOCAL), (1,)),
        lambda scheduler: scheduler.schedule_event("day", trigger=CronTrigger("0 9 * * *", end_at=LOCAL)),
        lambda scheduler: scheduler.preview(OnceTrigger(LOCAL)),
        lambda scheduler: scheduler.once(LOCAL),
    ],
)
def test_without_a_zone_the_error_says_what_to_do(declare):
    scheduler = Scheduler()
    with pytest.raises(InvalidTrigger, match=r"with a time zone, such as tzinfo=UTC.*Scheduler\(timezone=\.\.\)"):
        declare(scheduler)
    assert scheduler.list_jobs() == []


def test_without_a_zone_they_are_refused():
    scheduler = Scheduler()
    scheduler.schedule(add, "sum", NEVER, (1,))
    with pytest.raises(InvalidTrigger):
        scheduler.once(LOCAL)
    with pytest.raises(InvalidSchedule):
        scheduler.preview("sum", after=LOCAL)
    with pytest.raises(InvalidTrigger):
        Scheduler(timezone="Mars/Olympus")


def test_the_other_names_of_the_triggers():
    once, often = compat.OnceTrigger(run_at=NOON), compat.IntervalTrigger(minutes=5)
    assert once.get_next_run(NOON - timedelta(hours=1)) == NOON
    assert once.get_next_run(from_time=NOON) is None
    assert often.get_next_run(NOON) == NOON + timedelta(minutes=5)
    assert compat.CronTrigger.from_expression("0 13 * * *").get_next_run(NOON) == NOON + timedelta(hours=1)
    assert compat.CronTrigger("* * * * *").get_next_run() is not None


def test_the_other_names_of_the_schedulers(tmp_path):
    state = tmp_path / "state.db"
    scheduler = compat.PersistentScheduler(state)
    scheduler.register_function("add", add)
    with scheduler:
        job = scheduler.schedule(add, "sum", compat.IntervalTrigger(0.05), (1,), function_name="add")
        assert ended(scheduler, job)
    scheduler.close()
    again = compat.PersistentScheduler(state)
    assert again.get_job("sum").status is JobStatus.PENDING
    again.close()
    dependent = compat.DependencyScheduler()
    first = dependent.schedule(add, "first", compat.OnceTrigger(NOON), (1,))
    second = dependent.schedule_with_deps(add, depends_on=[first], args=(2,))
    third = dependent.schedule(add, "third", NEVER, (1,))
    dependent.add_dependency(third, [first, second])
    assert len(dependent._find(third).schedule.declaration.depends_on) == 2
