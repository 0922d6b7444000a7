"""Clock changes of the coming year: the sentences are part of what users read, so they are pinned."""

from datetime import UTC, datetime

import pytest

from noonmark import CalendarTrigger, CronTrigger, IntervalTrigger
from noonmark.core.describe.clock_changes import clock_changes
from noonmark.core.instants import from_micros, to_micros
from noonmark.core.triggers import parse_trigger

NOW = datetime(2026, 11, 15, tzinfo=UTC)
SPRING, AUTUMN = datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC)
BACK = "the clock goes back from 03:00 to 02:00"


def stockholm(expression, **more):
    document = {"type": "cron", "expression": expression, "timezone": "Europe/Stockholm", **more}
    return parse_trigger(document, now=NOW)


def changes(trigger, since=NOW):
    return clock_changes(trigger, to_micros(since))


def test_both_changes_of_a_year_with_what_they_mean_for_a_time_between_two_and_three():
    ahead, back = changes(stockholm("30 2 * * *"))
    assert (from_micros(ahead.at), ahead.shift_seconds, ahead.is_affected) == (SPRING, 3600, True)
    assert ahead.text == (
        "on 2027-03-28 there is no 02:30 in Europe/Stockholm (the clock jumps from 02:00 to 03:00): it fires at 03:00"
        " instead"
    )
    assert (from_micros(back.at), back.shift_seconds, back.is_affected) == (AUTUMN, -3600, True)
    assert back.text == f"on 2027-10-31 02:30 comes twice in Europe/Stockholm ({BACK}): it fires the first time"


def test_a_time_that_no_change_touches():
    texts = [one.text for one in changes(CalendarTrigger(hour=9, minute=0, timezone="Europe/Stockholm"))]
    assert texts == [
        "on 2027-03-28 the clock jumps from 02:00 to 03:00 in Europe/Stockholm: no fire is lost",
        f"on 2027-10-31 {BACK} in Europe/Stockholm: no fire is near",
    ]
    assert not any(one.is_affected for one in changes(stockholm("0 9 * * *")))


@pytest.mark.parametrize(
    ("expression", "more", "outcome"),
    [
        ("30 2 * * *", {"dst": {"fold": "both"}}, "it fires both times"),
        ("30 2 * * *", {"dst": {"fold": "second"}}, "it fires the second time"),
        ("15,45 2 * * *", {}, "they fire the first time"),
        ("*/5 * * * *", {}, "they fire both times"),
        ("30 2 * * *", {"start_at_utc": "2027-10-31T01:00:00Z"}, "it is out of bounds"),
    ],
)
def test_a_time_that_comes_twice(expression, more, outcome):
    assert changes(stockholm(expression, **more))[-1].text.endswith(f"({BACK}): {outcome}")


def test_many_times_are_not_all_listed():
    assert "02:00 and 02:05 and 02:10 .. come twice" in changes(stockholm("*/5 * * * *"))[-1].text


def test_changes_before_the_start_and_beyond_the_bounds_are_left_out():
    assert from_micros(changes(stockholm("@daily"), SPRING.replace(hour=2))[0].at) == AUTUMN
    assert changes(stockholm("@daily", end_at_utc="2027-01-01T00:00:00Z")) == []
    # In the second pass already.
    assert from_micros(changes(stockholm("@daily"), AUTUMN.replace(minute=30))[0].at).year == 2028


@pytest.mark.parametrize("trigger", [CronTrigger("30 2 * * *"), IntervalTrigger(every_seconds=60, start_at=NOW)])
def test_what_has_no_zone_has_no_changes(trigger):
    assert changes(trigger) == []
