"""The shortest time between two fires, over the whole pattern of a trigger."""

from datetime import UTC, datetime

import pytest

from noonmark import CalendarTrigger, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger
from noonmark.core.instants import SECOND
from noonmark.core.triggers.shortest_gap import shortest_gap

MINUTES = 60 * SECOND
DAYS = 24 * 60
CRON = [
    ("* * * * *", 1),
    ("*/30 * * * *", 30),
    ("0 * * * *", 60),
    ("0,1 9 * * *", 1),
    ("0 9 * * 1-5", DAYS),
    ("0,30 0 1 1 *", 30),
    ("0 9,17 * * *", 8 * 60),
    ("59 23,0 * * *", 60),
    ("5,50 23 * * *", 45),
    ("0 0 29 2 *", 1_461 * DAYS),
    ("59 23 31 12 *", 365 * DAYS),
    ("0 0 31,1 * *", DAYS),
    ("0 0 1 * 1", DAYS),
    ("0 12 13 * 5", DAYS),
    ("10,40 0,23 * * *", 30),
    ("*/45 * * * *", 15),
]
SEVERAL = [
    (["0 9 * * *", "1 9 * * *"], 1),
    (["0 9 * * MON", "1 9 * * TUE"], DAYS + 1),
    (["0 9 * * MON", "1 9 13 * *"], 1),
    (["0 9 * * MON", "0 9 * * MON"], 7 * DAYS),
    (["59 23 * * SUN", "0 0 * * MON"], 1),
]
CLOCK_CHANGES = [
    ("0 9 * * *", "Europe/Stockholm", 23 * 60),
    ("30 1,3 * * *", "Europe/Stockholm", 60),
    ("30 2,4 * * *", "Europe/Stockholm", 90),
    ("30 1,2,3 * * *", "Europe/Stockholm", 30),
    ("30 1,3 29 3 *", "Europe/Stockholm", 60),
    ("0 * * * *", "Europe/Stockholm", 60),
    ("0 9 * * *", "Asia/Tokyo", DAYS),
]
CALENDARS = [
    ({"hour": 9, "minute": [0, 1]}, 1),
    ({"hour": 9, "minute": 0, "day_of_week": 1}, 7 * DAYS),
    ({"hour": 9, "minute": 0, "day_of_month": 1, "month": 1, "year": [2027, 2030]}, 1_096 * DAYS),
]


@pytest.mark.parametrize(("expression", "minutes"), CRON)
def test_of_a_cron_expression(expression, minutes):
    assert shortest_gap(CronTrigger(expression)) == minutes * MINUTES


@pytest.mark.parametrize(("expressions", "minutes"), SEVERAL)
def test_of_several_expressions_only_days_that_meet_count(expressions, minutes):
    assert shortest_gap(CronTrigger(expressions)) == minutes * MINUTES


@pytest.mark.parametrize(("expression", "zone", "minutes"), CLOCK_CHANGES)
def test_a_clock_change_can_bring_fires_closer(expression, zone, minutes):
    assert shortest_gap(CronTrigger(expression, zone)) == minutes * MINUTES


@pytest.mark.parametrize(("fields", "minutes"), CALENDARS)
def test_of_a_calendar(fields, minutes):
    assert shortest_gap(CalendarTrigger(**fields)) == minutes * MINUTES


def test_of_seconds_and_of_an_interval():
    assert shortest_gap(CronTrigger("*/7 * * * * *")) == 4 * SECOND
    assert shortest_gap(IntervalTrigger(90)) == 90 * SECOND


def test_what_fires_once_or_not_by_time_has_none():
    assert shortest_gap(OnceTrigger(datetime(2030, 1, 1, tzinfo=UTC))) is None
    assert shortest_gap(CalendarTrigger(hour=9, minute=0, day_of_month=1, month=1, year=2030)) is None
    assert shortest_gap(EventTrigger("uploaded")) is None
    assert shortest_gap(None) is None


def test_bounds_around_a_clock_change_leave_no_gap_there():
    only = {"start_at": datetime(2027, 6, 1, tzinfo=UTC), "end_at": datetime(2027, 6, 30, tzinfo=UTC)}
    assert shortest_gap(CronTrigger("0 9 * * *", "Europe/Stockholm", **only)) == DAYS * MINUTES
