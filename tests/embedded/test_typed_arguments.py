"""Lengths of time as `timedelta`, zones as `ZoneInfo`, and names that type checkers know."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from noonmark import (
    AsyncScheduler,
    CalendarTrigger,
    CronTrigger,
    Delivery,
    IntervalTrigger,
    InvalidTrigger,
    OnceTrigger,
    Scheduler,
)
from noonmark.core.policies import misfire, options, overlap
from noonmark.core.targets import Executor
from tests.embedded.waiting import NEVER, keep

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        (IntervalTrigger(MINUTE, START), IntervalTrigger(60, START)),
        (IntervalTrigger(60, START, jitter_seconds=MINUTE / 2), IntervalTrigger(60, START, jitter_seconds=30)),
        (OnceTrigger(delay_seconds=timedelta(milliseconds=1)), OnceTrigger(delay_seconds=0.001)),
        (CronTrigger("0 9 * * *", PARIS), CronTrigger("0 9 * * *", "Europe/Paris")),
        (CronTrigger.from_expression("0 9 * * *", PARIS), CronTrigger("0 9 * * *", "Europe/Paris")),
        (CalendarTrigger(hour=9, timezone=PARIS), CalendarTrigger(hour=9, timezone="Europe/Paris")),
    ],
)
def test_triggers_take_them(typed, plain):
    assert typed == plain
    assert typed.to_document() == plain.to_document()


@pytest.mark.parametrize(
    "make",
    [
        lambda: IntervalTrigger(timedelta(0)),
        lambda: IntervalTrigger(-MINUTE),
        lambda: CronTrigger("0 9 * * *", ZoneInfo.no_cache("UTC").utcoffset),
        lambda: CronTrigger("0 9 * * *", MINUTE),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(InvalidTrigger):
        make()


def test_a_scheduler_takes_them():
    scheduler = Scheduler(lease=MINUTE, keep_days=timedelta(hours=36))
    assert (scheduler._runtime.timing.lease, scheduler._runtime.timing.keep_for) == (60_000_000, 129_600_000_000)
    daily = scheduler.daily("09:00", PARIS, name="daily")(lambda: None)
    often = scheduler.every(MINUTE, name="often")(lambda: None)
    request = scheduler.schedule_http("http://127.0.0.1/", trigger=NEVER, completion_timeout_seconds=MINUTE)
    assert scheduler.get_job(daily.job_id).trigger.timezone == "Europe/Paris"
    assert scheduler.get_job(often.job_id).trigger.every_seconds == 60
    assert scheduler._find(request).schedule.declaration.target.to_document()["completion_timeout_seconds"] == 60
    job = keep(scheduler, lambda: None, trigger=NEVER, timeout=MINUTE, jitter=MINUTE)
    assert scheduler._find(job).schedule.declaration.timeout == 60_000_000
    scheduler.stop(timeout=MINUTE)


@pytest.mark.parametrize(
    ("literal", "accepted"),
    [
        (options.OverlapName, overlap._NAMES),
        (options.MisfireName, misfire._NAMES),
        (options.DeliveryName, Delivery),
        (options.ExecutorName, Executor),
    ],
)
def test_type_checkers_know_the_names_that_are_accepted(literal, accepted):
    assert set(get_args(literal)) == {str(name) for name in accepted}


def test_type_checkers_know_the_settings_of_the_documents():
    for document, settings in ((options.OverlapDocument, overlap), (options.MisfireDocument, misfire)):
        known = {setting for takes in settings._SETTINGS.values() for setting in takes}
        assert set(document.__annotations__) == {"type", *known}


def test_both_schedulers_have_the_same_settings():
    settings = [inspect.signature(kind).parameters for kind in (Scheduler, AsyncScheduler)]
    assert list(settings[0].values()) == list(settings[1].values())
