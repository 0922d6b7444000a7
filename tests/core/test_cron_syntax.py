"""Cron expressions: what is accepted and what it names, what is refused and with which words."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.triggers import CronTrigger, fires, parse_trigger
from tests.core.oracle import AT_NAMES, MONTHS, WEEKDAYS, check_timeline, cron_rule, fires_between, utc

START = utc("2026-01-01T00:00Z")
"""A Thursday."""
NOW = utc("2026-06-15T12:00Z")


def days(expression, year=2026, month=None):
    """The dates of a year (or of one of its months) on which an expression fires, as MM-DD or DD."""
    begin = datetime(year, month or 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    end = datetime(year, month, 1, tzinfo=UTC) + timedelta(days=32) if month else datetime(year + 1, 1, 1, tzinfo=UTC)
    collected, trigger = [], CronTrigger(expression)
    fire = trigger.next_after(begin)
    while fire and fire < end and fire.month in ([month] if month else range(1, 13)):
        collected.append(f"{fire:%d}" if month else f"{fire:%m-%d}")
        fire = trigger.next_after(fire)
    return " ".join(collected)


def same_fires(one, other, count=40):
    return fires(CronTrigger(one), START, count) == fires(CronTrigger(other), START, count)


# --- fields, lists, ranges, steps ------------------------------------------------------------------------------------

FIRST_FIRES = [
    ("30 9 * * *", "2026-01-01T09:30Z 2026-01-02T09:30Z"),
    ("15 30 9 * * *", "2026-01-01T09:30:15Z 2026-01-02T09:30:15Z"),
    ("* * * * *", "2026-01-01T00:01Z 2026-01-01T00:02Z"),
    ("* * * * * *", "2026-01-01T00:00:01Z 2026-01-01T00:00:02Z"),
    ("*/20 * * * * *", "2026-01-01T00:00:20Z 2026-01-01T00:00:40Z 2026-01-01T00:01Z"),
    ("0,30,45 * * * *", "2026-01-01T00:30Z 2026-01-01T00:45Z 2026-01-01T01:00Z"),
    ("45,0,30,0 * * * *", "2026-01-01T00:30Z 2026-01-01T00:45Z 2026-01-01T01:00Z"),
    ("0 9-11 * * *", "2026-01-01T09:00Z 2026-01-01T10:00Z 2026-01-01T11:00Z 2026-01-02T09:00Z"),
    ("0 5-5 * * *", "2026-01-01T05:00Z 2026-01-02T05:00Z"),
    ("0 8-18/5 * * *", "2026-01-01T08:00Z 2026-01-01T13:00Z 2026-01-01T18:00Z 2026-01-02T08:00Z"),
    ("0 8-8/5 * * *", "2026-01-01T08:00Z 2026-01-02T08:00Z"),
    ("*/25 * * * *", "2026-01-01T00:25Z 2026-01-01T00:50Z 2026-01-01T01:00Z"),
    ("50/5 * * * *", "2026-01-01T00:50Z 2026-01-01T00:55Z 2026-01-01T01:50Z"),
    ("0 20/2 * * *", "2026-01-01T20:00Z 2026-01-01T22:00Z 2026-01-02T20:00Z"),
    ("0 0 30/1 * *", "2026-01-30T00:00Z 2026-01-31T00:00Z 2026-03-30T00:00Z"),
    ("0 0 1 10/1 *", "2026-10-01T00:00Z 2026-11-01T00:00Z 2026-12-01T00:00Z 2027-10-01T00:00Z"),
    (
        "0 1-3,10,20-22/2 * * *",
        "2026-01-01T01:00Z 2026-01-01T02:00Z 2026-01-01T03:00Z 2026-01-01T10:00Z 2026-01-01T20:00Z",
    ),
    ("*/60 * * * *", "2026-01-01T01:00Z 2026-01-01T02:00Z"),
    ("*/59 * * * *", "2026-01-01T00:59Z 2026-01-01T01:00Z 2026-01-01T01:59Z"),
    ("*/60 0 0 * * *", "2026-01-02T00:00Z 2026-01-03T00:00Z"),
    ("0 */24 * * *", "2026-01-02T00:00Z 2026-01-03T00:00Z"),
    ("0 0 */32 * *", "2026-02-01T00:00Z 2026-03-01T00:00Z"),
    ("0 0 1 */13 *", "2027-01-01T00:00Z 2028-01-01T00:00Z"),
    ("0 0 1 */5 *", "2026-06-01T00:00Z 2026-11-01T00:00Z 2027-01-01T00:00Z"),
    ("0 0 0 1 */6 *", "2026-07-01T00:00Z 2027-01-01T00:00Z"),
    ("05 09 * * *", "2026-01-01T09:05Z 2026-01-02T09:05Z"),
    ("0 0 29 2 *", "2028-02-29T00:00Z 2032-02-29T00:00Z"),
    ("0 0 31 * *", "2026-01-31T00:00Z 2026-03-31T00:00Z 2026-05-31T00:00Z"),
    ("59 59 23 31 12 *", "2026-12-31T23:59:59Z 2027-12-31T23:59:59Z"),
]


@pytest.mark.parametrize(("expression", "expected"), FIRST_FIRES)
def test_first_fires(expression, expected):
    wanted = [utc(fire) for fire in expected.split()]
    trigger = CronTrigger(expression)
    assert fires(trigger, START, len(wanted)) == wanted
    assert CronTrigger.from_expression(expression) == trigger
    assert all(fire.tzinfo is UTC for fire in fires(trigger, START, 2))


def test_the_step_larger_than_the_field_is_its_first_value():
    assert same_fires("*/60 * * * *", "0 * * * *")
    assert same_fires("*/100 * * * *", "0 * * * *")
    assert same_fires("7/60 * * * *", "7 * * * *")


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [(name, place) for place, name in enumerate(MONTHS, 1)])
def test_month_names(name, number):
    for spelling in (name, name.upper(), name.title(), name[:3], name[:3].upper(), name[:3].title()):
        assert CronTrigger(f"0 0 1 {spelling} *").next_after(START - timedelta(1)) == datetime(
            2026, number, 1, tzinfo=UTC
        )


@pytest.mark.parametrize(("name", "number"), [(name, place) for place, name in enumerate(WEEKDAYS)])
def test_weekday_names(name, number):
    first = utc("2026-03-01T00:00Z")  # a Sunday
    for spelling in (name, name.upper(), name.title(), name[:3], name[:3].upper(), name[:3].title(), number):
        trigger = CronTrigger(f"0 0 * * {spelling}")
        assert trigger.next_after(first - timedelta(1)) == first + timedelta(days=number)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 0 * * MON-FRI", "0 0 * * 1-5"),
        ("0 0 * * mon,Wednesday,FRI", "0 0 * * 1,3,5"),
        ("0 0 * * Monday-Friday/2", "0 0 * * 1,3,5"),
        ("0 0 * * SUN-TUE", "0 0 * * 0,1,2"),
        ("0 0 * * MON-5", "0 0 * * 1-5"),
        ("0 0 1 JAN-MAR *", "0 0 1 1-3 *"),
        ("0 0 1 january,JUN-december/3 *", "0 0 1 1,6,9,12 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 0,7", "0 0 * * SUN"),
        ("0 0 * * 6-7", "0 0 * * SAT,SUN"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 1-7", "0 0 * * *"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * * 0-6", "0 0 * * *"),
        ("0 0 * * 5/1", "0 0 * * FRI,SAT,SUN"),
        ("0 0 * * 3/2", "0 0 * * WED,FRI,SUN"),
        ("0 0 * * FRI/2", "0 0 * * FRI,SUN"),
        ("0 0 * * */2", "0 0 * * 0,2,4,6"),
        ("0 0 * * 7#1", "0 0 * * 0#1"),
        ("0 0 * * 7L", "0 0 * * 0L"),
        ("0 0 * * fri#2", "0 0 * * 5#2"),
        ("0 0 ? * MON", "0 0 * * MON"),
        ("0 0 15 * ?", "0 0 15 * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 0 ? * MON", "0 0 0 * * MON"),
        ("  0 0 * * *  ", "0 0 * * *"),
        ("0  0 \t*\t\t* *", "0 0 * * *"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 15w,lw * *", "0 0 15W,LW * *"),
    ],
)
def test_two_ways_to_say_the_same(one, other):
    assert same_fires(one, other)


# --- @ names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expression"), AT_NAMES.items())
def test_at_names_in_any_case(name, expression):
    for spelling in (name, name.upper(), name.title(), f" {name} "):
        assert same_fires(spelling, expression, 30)


# --- the days: L, W, #, OR -------------------------------------------------------------------------------------------

DAYS = [
    # (expression, year, month or None, the dates)
    ("0 0 L * *", 2026, None, "01-31 02-28 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31"),
    ("0 0 L 2 *", 2028, None, "02-29"),
    ("0 0 L-1 * *", 2026, None, "01-30 02-27 03-30 04-29 05-30 06-29 07-30 08-30 09-29 10-30 11-29 12-30"),
    ("0 0 L-27 * *", 2026, None, "01-04 02-01 03-04 04-03 05-04 06-03 07-04 08-04 09-03 10-04 11-03 12-04"),
    ("0 0 L-30 * *", 2026, None, "01-01 03-01 05-01 07-01 08-01 10-01 12-01"),
    ("0 0 L-28 2 *", 2028, None, "02-01"),
    ("0 0 LW * *", 2026, None, "01-30 02-27 03-31 04-30 05-29 06-30 07-31 08-31 09-30 10-30 11-30 12-31"),
    ("0 0 15W * *", 2026, None, "01-15 02-16 03-16 04-15 05-15 06-15 07-15 08-14 09-15 10-15 11-16 12-15"),
    ("0 0 1W * *", 2026, None, "01-01 02-02 03-02 04-01 05-01 06-01 07-01 08-03 09-01 10-01 11-02 12-01"),
    ("0 0 31W * *", 2026, None, "01-30 03-31 05-29 07-31 08-31 10-30 12-31"),
    ("0 0 30W 5 *", 2026, None, "05-29"),
    ("0 0 31W 5 *", 2026, None, "05-29"),
    ("0 0 28W 2 *", 2026, None, "02-27"),
    ("0 0 1,L * *", 2026, 4, "01 30"),
    ("0 0 L,LW,10W,5-6 * *", 2026, 5, "05 06 11 29 31"),
    ("0 0 * * 5L", 2026, None, "01-30 02-27 03-27 04-24 05-29 06-26 07-31 08-28 09-25 10-30 11-27 12-25"),
    ("0 0 * * 1#1", 2026, None, "01-05 02-02 03-02 04-06 05-04 06-01 07-06 08-03 09-07 10-05 11-02 12-07"),
    ("0 0 * * MON#5", 2026, None, "03-30 06-29 08-31 11-30"),
    ("0 0 * * 1#1,5L,3", 2026, 4, "01 06 08 15 22 24 29"),
    ("0 0 * * SAT#2,SUN#2", 2026, 8, "08 09"),
    # Both day fields restricted: either is enough.
    ("0 0 13 * FRI", 2026, 2, "06 13 20 27"),
    ("0 0 1,15 * MON", 2026, 6, "01 08 15 22 29"),
    ("0 0 1-7 * 1", 2026, 6, "01 02 03 04 05 06 07 08 15 22 29"),
    ("0 0 L * 1#1", 2026, 6, "01 30"),
    ("0 0 15W * 0", 2026, 8, "02 09 14 16 23 30"),
    ("0 0 30 2 MON", 2026, 2, "02 09 16 23"),
    ("0 0 31 4 1#1", 2026, None, "04-06"),
    ("0 0 1-31 * MON", 2026, 2, " ".join(f"{day:02}" for day in range(1, 29))),
    ("0 0 1-31/2 * MON", 2026, 6, "01 03 05 07 08 09 11 13 15 17 19 21 22 23 25 27 29"),
    # A field that starts with a star counts as unrestricted: then both must hold.
    ("0 0 */2 * MON", 2026, 6, "01 15 29"),
    ("0 0 */5 * MON-FRI", 2026, 6, "01 11 16 26"),
    ("0 0 1-7 * */2", 2026, 6, "02 04 06 07"),
    ("0 0 */2 * */3", 2026, 6, "03 07 13 17 21 27"),
    ("0 0 */32 * MON", 2026, None, "06-01"),
    ("0 0 1-7 * *", 2026, 6, "01 02 03 04 05 06 07"),
    ("0 0 * * MON", 2026, 6, "01 08 15 22 29"),
    ("0 0 ? * MON", 2026, 6, "01 08 15 22 29"),
    ("0 0 13 * ?", 2026, 6, "13"),
    ("0 0 */10 * 1#2,0L", 2026, None, "05-11 05-31"),
]


@pytest.mark.parametrize(("expression", "year", "month", "expected"), DAYS)
def test_days(expression, year, month, expected):
    assert days(expression, year, month) == expected


def test_rare_dates_are_found_however_far():
    # Only a leap year that begins on a Thursday has a 29th of February on a Sunday; 2100 is no leap year.
    sundays = CronTrigger("0 0 29 2 */7")
    assert fires(sundays, START, 3) == [utc("2032-02-29T00:00Z"), utc("2060-02-29T00:00Z"), utc("2088-02-29T00:00Z")]
    assert sundays.next_after(utc("2088-02-29T00:00Z")) == utc("2128-02-29T00:00Z")
    assert sundays.previous_before(utc("2128-02-29T00:00Z")) == utc("2088-02-29T00:00Z")
    assert CronTrigger("0 0 * 2 MON#5").next_after(START) == utc("2044-02-29T00:00Z")


def test_expressions_may_come_together():
    trigger = CronTrigger(["0 9 * * *", "30 9 * * *", "0 9-10 * * *"])
    assert [f"{fire:%H:%M}" for fire in fires(trigger, START, 4)] == ["09:00", "09:30", "10:00", "09:00"]
    assert trigger.count_between(START, START + timedelta(days=1)) == 3
    check_timeline(
        CronTrigger(["*/7 * * * *", "*/5 * * * *", "30 15 3 * * *"]),
        START,
        START + timedelta(hours=6),
        fires_between(
            [cron_rule("*/7 * * * *"), cron_rule("*/5 * * * *"), cron_rule("30 15 3 * * *")],
            "UTC",
            START,
            START + timedelta(hours=6),
        ),
    )


def test_a_hundred_expressions_and_not_more():
    many = [f"{minute} {hour} * * *" for hour in range(2) for minute in range(50)]
    assert CronTrigger(many).count_between(START, START + timedelta(days=1)) == 100
    with pytest.raises(InvalidTrigger, match="100"):
        CronTrigger([*many, "0 5 * * *"])


@pytest.mark.parametrize("nothing", [[], (), "", "   ", "\t", [""], ["0 0 * * *", ""], ["0 0 * * *", "  "]])
def test_at_least_one_expression(nothing):
    with pytest.raises(InvalidTrigger):
        CronTrigger(nothing)


def test_one_bad_expression_spoils_the_list():
    with pytest.raises(InvalidTrigger, match="minute"):
        CronTrigger(["0 0 * * *", "60 0 * * *"])
    with pytest.raises(TriggerNeverFires):
        CronTrigger(["0 0 * * *", "0 0 30 2 *"])


# --- refusals --------------------------------------------------------------------------------------------------------

SECOND, MINUTE, HOUR = ("second", 0, 59), ("minute", 0, 59), ("hour", 0, 23)
DAY_OF_MONTH, MONTH, DAY_OF_WEEK = ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7)

BAD_FIELDS = [
    # out of range
    ("60 * * * *", MINUTE),
    ("-1 * * * *", MINUTE),
    ("0-60 * * * *", MINUTE),
    ("61/5 * * * *", MINUTE),
    ("0,99 * * * *", MINUTE),
    ("99999999999999999999 * * * *", MINUTE),
    ("* 24 * * *", HOUR),
    ("* 20-24 * * *", HOUR),
    ("60 * * * * *", SECOND),
    ("0 60 * * * *", MINUTE),
    ("0 0 24 * * *", HOUR),
    ("0 0 0 * *", DAY_OF_MONTH),
    ("0 0 32 * *", DAY_OF_MONTH),
    ("0 0 0-5 * *", DAY_OF_MONTH),
    ("0 0 0W * *", DAY_OF_MONTH),
    ("0 0 32W * *", DAY_OF_MONTH),
    ("0 0 1 0 *", MONTH),
    ("0 0 1 13 *", MONTH),
    ("0 0 * * 8", DAY_OF_WEEK),
    ("0 0 * * 5-8", DAY_OF_WEEK),
    ("0 0 * * 8L", DAY_OF_WEEK),
    ("0 0 * * 8#1", DAY_OF_WEEK),
    # descending
    ("30-10 * * * *", MINUTE),
    ("0 22-2 * * *", HOUR),
    ("0 22-2/2 * * *", HOUR),
    ("0 0 * DEC-FEB *", MONTH),
    ("0 0 * * FRI-MON", DAY_OF_WEEK),
    ("0 0 * * FRI-SUN", DAY_OF_WEEK),
    ("0 0 * * 5-0", DAY_OF_WEEK),
    # steps
    ("*/0 * * * *", MINUTE),
    ("*/00 * * * *", MINUTE),
    ("1-5/0 * * * *", MINUTE),
    ("5/0 * * * *", MINUTE),
    ("*/-1 * * * *", MINUTE),
    ("*/ * * * *", MINUTE),
    ("/5 * * * *", MINUTE),
    ("*/x * * * *", MINUTE),
    ("1/2/3 * * * *", MINUTE),
    ("*/1.5 * * * *", MINUTE),
    ("*/*  * * * *", MINUTE),
    # unknown names, and names in the wrong field
    ("0 0 * * FUN", DAY_OF_WEEK),
    ("0 0 * * JAN", DAY_OF_WEEK),
    ("0 0 * * TUES", DAY_OF_WEEK),
    ("0 0 * * MO", DAY_OF_WEEK),
    ("0 0 * * MONDAYS", DAY_OF_WEEK),
    ("0 0 * MON *", MONTH),
    ("0 0 * SEPT *", MONTH),
    ("0 0 * FOO *", MONTH),
    ("0 0 MON * *", DAY_OF_MONTH),
    ("0 MON * * *", HOUR),
    ("JAN * * * *", MINUTE),
    # punctuation
    ("1,,2 * * * *", MINUTE),
    (",1 * * * *", MINUTE),
    ("1, * * * *", MINUTE),
    ("1- * * * *", MINUTE),
    ("1-2-3 * * * *", MINUTE),
    ("** * * * *", MINUTE),
    ("5* * * * *", MINUTE),
    ("*5 * * * *", MINUTE),
    ("*-5 * * * *", MINUTE),
    ("5-* * * * *", MINUTE),
    ("+5 * * * *", MINUTE),
    ("1_0 * * * *", MINUTE),
    ("0x5 * * * *", MINUTE),
    ("1e1 * * * *", MINUTE),
    ("1.5 * * * *", MINUTE),
    ("1;2 * * * *", MINUTE),
    ("$(5) * * * *", MINUTE),
    # letters where they have no meaning
    ("? * * * *", MINUTE),
    ("0 ? * * *", HOUR),
    ("0 0 1 ? *", MONTH),
    ("? 0 0 * * *", SECOND),
    ("L * * * *", MINUTE),
    ("0 L * * *", HOUR),
    ("0 0 1 L *", MONTH),
    ("0 0 * * L", DAY_OF_WEEK),
    ("0 0 * * LW", DAY_OF_WEEK),
    ("0 0 * * 5W", DAY_OF_WEEK),
    ("0 0 * * L-2", DAY_OF_WEEK),
    ("0 5W * * *", HOUR),
    ("0 0 5#2 * *", DAY_OF_MONTH),
    ("0 0 5L * *", DAY_OF_MONTH),
    ("0 0 W * *", DAY_OF_MONTH),
    ("0 0 WL * *", DAY_OF_MONTH),
    ("0 0 L- * *", DAY_OF_MONTH),
    ("0 0 L-31 * *", DAY_OF_MONTH),
    ("0 0 L-x * *", DAY_OF_MONTH),
    ("0 0 L-3W-1 * *", DAY_OF_MONTH),
    ("0 0 1-5W * *", DAY_OF_MONTH),
    ("0 0 L/2 * *", DAY_OF_MONTH),
    ("0 0 15W/2 * *", DAY_OF_MONTH),
    ("0 0 * * #2", DAY_OF_WEEK),
    ("0 0 * * 5#", DAY_OF_WEEK),
    ("0 0 * * 5#x", DAY_OF_WEEK),
    ("0 0 * * 5#2#3", DAY_OF_WEEK),
    ("0 0 * * 1-5#2", DAY_OF_WEEK),
    ("0 0 * * 5#2/2", DAY_OF_WEEK),
    ("0 0 * * *#2", DAY_OF_WEEK),
    ("0 0 * * *L", DAY_OF_WEEK),
    ("0 0 * * 5LL", DAY_OF_WEEK),
    # H
    ("H(0-60) * * * *", MINUTE),
    ("H(30-10) * * * *", MINUTE),
    ("H(5) * * * *", MINUTE),
    ("H() * * * *", MINUTE),
    ("H(1-2 * * * *", MINUTE),
    ("H5 * * * *", MINUTE),
    ("HH * * * *", MINUTE),
    ("H-5 * * * *", MINUTE),
    ("H/0 * * * *", MINUTE),
    ("H/ * * * *", MINUTE),
    ("H(a-b) * * * *", MINUTE),
    ("0 0 H(0-5) * *", DAY_OF_MONTH),
]


def words(message):
    return re.sub(r"[_-]", " ", message.lower())


@pytest.mark.parametrize(("expression", "field"), BAD_FIELDS)
def test_refused_with_the_field_and_its_range(expression, field):
    name, low, high = field
    with pytest.raises(InvalidTrigger) as error:
        CronTrigger(expression)
    assert error.value.code == "invalid_trigger"
    assert name in words(error.value.message)
    assert re.search(rf"\b{low}\D+{high}\b", error.value.message), error.value.message


@pytest.mark.parametrize("place", ["0", "6", "x", "99", "-1"])
def test_the_place_of_a_weekday_is_one_to_five(place):
    with pytest.raises(InvalidTrigger) as error:
        CronTrigger(f"0 0 * * 5#{place}")
    assert "day of week" in words(error.value.message)
    assert re.search(r"\b1\D+5\b", error.value.message)


@pytest.mark.parametrize("expression", ["*", "* *", "* * *", "* * * *", "* * * * * * *", "0 0 1 1 * 2026 7", "x", "5"])
def test_refused_for_the_number_of_fields(expression):
    with pytest.raises(InvalidTrigger) as error:
        CronTrigger(expression)
    assert re.search(r"5\D+6|five\D+six", error.value.message)
    assert "field" in error.value.message


@pytest.mark.parametrize(
    "name", ["@reboot", "@REBOOT", "@every 5m", "@every", "@every_minute", "@", "@@daily", "@dayly"]
)
def test_refused_at_names_list_the_good_ones(name):
    with pytest.raises(InvalidTrigger) as error:
        CronTrigger(name)
    assert "@daily" in error.value.message
    assert "@yearly" in error.value.message


@pytest.mark.parametrize("expression", ["@daily 5", "@daily * * * *", "* * * * @daily", "0 0 @daily * *", "@ daily"])
def test_at_names_stand_alone(expression):
    with pytest.raises(InvalidTrigger):
        CronTrigger(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "\uff10 0 * * *",  # full-width zero
        "\u0660 0 * * *",  # Arabic-Indic zero
        "0\u00a00 * * *",  # no-break space
        "0 0 * * \u041c\u041e\u041d",  # MON in Cyrillic
        "0 0 * * M\u00d6N",
        "0 0 1\u20135 * *",  # en dash
        "0 0 \u2217 * *",
        "\ufeff0 0 * * *",
        "0 0 * * *\u200b",
        "0 0 * * \ud800",
        "\u00b2 0 * * *",  # superscript two, which isdigit() likes
        "0 0 * \u0131an *",  # dotless i
        "0 0 * * \u017fun",  # long s, whose upper case is S
    ],
)
def test_refused_for_characters_beyond_ascii(expression):
    with pytest.raises(InvalidTrigger, match="ASCII"):
        CronTrigger(expression)


@pytest.mark.parametrize("character", ["\n", "\r", "\x00", "\x0b", "\x0c", "\x1b", "\x1c", "\x1f", "\x7f", "\x08"])
def test_refused_for_control_characters(character):
    for expression in (
        f"0 0{character}* * *",
        f"0 0 * *{character} *",
        f"0 0 * * *{character}",
        f"{character}0 0 * * *",
    ):
        with pytest.raises(InvalidTrigger, match=r"ASCII|control"):
            CronTrigger(expression)


def test_refused_beyond_a_thousand_characters():
    longest = "0" + ",0" * 495 + " 0 * * *"
    longest += " " * (1_000 - len(longest))
    assert CronTrigger(longest).next_after(START) == utc("2026-01-02T00:00Z")
    packed = "00" + ",0" * 495 + " 0 * * *"
    assert len(packed) == 1_000
    assert CronTrigger(packed).next_after(START) == utc("2026-01-02T00:00Z")
    for expression in (longest + " ", "0" + packed, "9" * 1_001, "0 0 * * " + "MON," * 250_000):
        with pytest.raises(InvalidTrigger, match=r"1,?000"):
            CronTrigger(expression)


@pytest.mark.parametrize(
    "junk", [None, 5, 5.0, True, b"0 0 * * *", object(), {"expression": "0 0 * * *"}, [5], [None], [["0 0 * * *"]]]
)
def test_refused_unless_text(junk):
    with pytest.raises(InvalidTrigger):
        CronTrigger(junk)


# --- never ----------------------------------------------------------------------------------------------------------

NEVER = [
    "0 0 30 2 *",
    "0 0 30 FEB *",
    "0 0 31 2 *",
    "0 0 30,31 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 31 2,4,6,9,11 *",
    "0 0 30 2 ?",
    "0 0 0 30 2 *",
    "0 0 30W 2 *",
    "0 0 31W 4 *",
    "0 0 L-29 2 *",
    "0 0 L-30 4,6 *",
    # A star makes it both: the 30th of February, on some weekdays.
    "0 0 30 2 */2",
    "0 0 31 4 */1",
    # The first of a month is never a second Monday.
    "0 0 */32 * MON#2",
    "0 0 */31 2 1#5",
]


@pytest.mark.parametrize("expression", NEVER)
def test_refused_because_it_never_fires(expression):
    with pytest.raises(TriggerNeverFires) as error:
        CronTrigger(expression)
    assert error.value.code == "trigger_never_fires"
    with pytest.raises(TriggerNeverFires) as error:
        parse_trigger({"type": "cron", "expression": expression}, now=NOW)
    assert [problem.code for problem in error.value.problems] == ["trigger_never_fires"]


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 29 2 *",
        "0 0 30 1,2 *",
        "0 0 31 2,3 *",
        "0 0 30 2 MON",
        "0 0 30 2 1#1",
        "0 0 L-28 2 *",
        "0 0 */30 2 *",
        "0 0 29W 2 *",
    ],
)
def test_seldom_is_not_never(expression):
    assert CronTrigger(expression).next_after(START) is not None


# --- H ---------------------------------------------------------------------------------------------------------------

KEYS = [f"schedule-{n}" for n in range(300)]


def hashed(expression, key, count=1):
    return fires(CronTrigger(expression, key=key), START - timedelta(seconds=1), count)


H_FIELDS = [
    # (expression, the part that is hashed, lowest, highest)
    ("H 0 0 * * *", "%S", 0, 59),
    ("H 0 * * *", "%M", 0, 59),
    ("0 H * * *", "%H", 0, 23),
    ("0 0 H * *", "%d", 1, 28),
    ("0 0 1 H *", "%m", 1, 12),
    ("0 0 * * H", "%w", 0, 6),
    ("H(10-19) 0 * * *", "%M", 10, 19),
    ("0 H(9-17) * * *", "%H", 9, 17),
    ("0 0 H(5-7) * *", "%d", 5, 7),
    ("0 0 * * H(1-5)", "%w", 1, 5),
    ("0 0 1 H(4-6) *", "%m", 4, 6),
]


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize(("expression", "part", "low", "high"), H_FIELDS)
def test_h_hashes_the_key_into_the_field(expression, part, low, high):
    values = [int(f"{hashed(expression, key)[0]:{part}}") for key in KEYS]
    assert values == [int(f"{hashed(expression, key)[0]:{part}}") for key in KEYS]
    assert all(low <= value <= high for value in values)
    # 300 keys over at most 60 values: each is met, and none takes a large share.
    assert len(set(values)) >= 0.9 * (high - low + 1)
    assert max(values.count(value) for value in set(values)) < 300 * 3 / (high - low + 1) + 12


def test_h_is_one_value_and_stays():
    for key in KEYS[:20]:
        minutes = {fire.minute for fire in hashed("H * * * *", key, 50)}
        assert len(minutes) == 1
        dates = {fire.day for fire in hashed("0 0 H * *", key, 50)}
        assert len(dates) == 1


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize(
    ("expression", "low", "high", "step"),
    [
        ("H/15 * * * *", 0, 59, 15),
        ("H/7 * * * *", 0, 59, 7),
        ("H(0-29)/10 * * * *", 0, 29, 10),
        ("H(20-50)/8 * * * *", 20, 50, 8),
    ],
)
def test_h_with_a_step_starts_at_a_hashed_place(expression, low, high, step):
    starts = set()
    for key in KEYS:
        trigger = CronTrigger(expression, key=key)
        minutes = [fire.minute for fire in fires(trigger, START - timedelta(seconds=1), 60) if fire.hour == 0]
        assert low <= minutes[0] < low + step
        assert all(later - earlier == step for earlier, later in pairwise(minutes))
        assert high - step < minutes[-1] <= high
        starts.add(minutes[0])
    assert starts == set(range(low, low + step))


def test_h_with_a_step_in_day_of_month_stays_within_28():
    for key in KEYS[:50]:
        found = {fire.day for fire in hashed("0 0 H/7 * *", key, 60)}
        assert found
        assert max(found) <= 28


def test_fields_are_hashed_apart():
    places = {(fire.hour, fire.minute) for key in KEYS for fire in hashed("H H * * *", key)}
    assert len(places) > 200


def test_h_without_a_key_hashes_the_empty_text():
    assert hashed("H H * * *", "") == fires(CronTrigger("H H * * *"), START - timedelta(seconds=1), 1)


def test_h_takes_the_key_it_is_parsed_or_bound_with():
    document = {"type": "cron", "expression": "H H * * *"}
    for key in KEYS[:10]:
        expected = hashed("H H * * *", key, 3)
        before = START - timedelta(seconds=1)
        assert fires(parse_trigger(document, now=NOW, key=key), before, 3) == expected
        assert fires(CronTrigger("H H * * *").bind(now=NOW, key=key), before, 3) == expected


def test_h_in_a_list():
    for key in KEYS[:20]:
        minutes = {fire.minute for fire in hashed("H(0-9),H(30-39),59 * * * *", key, 20)}
        assert 59 in minutes
        assert len([minute for minute in minutes if minute < 10]) == 1
        assert len([minute for minute in minutes if 30 <= minute < 40]) == 1
