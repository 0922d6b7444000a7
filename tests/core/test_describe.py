"""Plain words and traps: the sentences are part of what users read, so they are pinned."""

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark import CalendarTrigger, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger, describe, fires
from noonmark.core.errors import InvalidTrigger

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("30 2 * * *", "At 02:30, UTC"),
        ("*/5 * * * *", "Every 5 minutes, UTC"),
        ("0 9 * * 1-5", "At 09:00, Monday through Friday, UTC"),
        ("0 9 * * MONDAY-friday", "At 09:00, Monday through Friday, UTC"),
        ("0 9 * * 5-7", "At 09:00, Friday through Sunday, UTC"),
        ("0 0 * * 0-7", "At 00:00, UTC"),
        ("0 0 ? * MON", "At 00:00, only on Monday, UTC"),
        ("@daily", "At 00:00, UTC"),
        ("@YEARLY", "At 00:00, on day 1 of the month, only in January, UTC"),
        ("*/10 * * * * *", "Every 10 seconds, UTC"),
        ("15 30 2 * * *", "At 02:30:15, UTC"),
        ("0 9 * january-mar MON,WED", "At 09:00, only on Monday and Wednesday, January through March, UTC"),
        # A step beyond the range is its first value, whatever the step says.
        ("*/60 * * * *", "Every hour, UTC"),
        ("*/25 * * * *", "At 0, 25, and 50 minutes past the hour, UTC"),
        ("0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00 and 20:00, UTC"),
        ("0 */24 * * *", "At 00:00, UTC"),
        ("0 0 L * *", "At 00:00, on the last day of the month, UTC"),
        ("0 0 15W * *", "At 00:00, on the weekday nearest day 15 of the month, UTC"),
        ("0 0 LW * *", "At 00:00, on the last weekday of the month, UTC"),
        ("0 0 * * 5#2", "At 00:00, on the second Friday of the month, UTC"),
        ("0 0 * * FRIL", "At 00:00, on the last Friday of the month, UTC"),
        ("0 0 1,15,L * *", "At 00:00, on day 1, day 15 and the last day of the month, UTC"),
        (
            "0 0 1-7,15W,LW * *",
            "At 00:00, on day 1-7, the weekday nearest day 15 and the last weekday of the month, UTC",
        ),
        ("0 0 L-3,L * *", "At 00:00, on the last day and the day 3 days before the last of the month, UTC"),
        (
            "0 0 * * 1,5L,TUE#2",
            "At 00:00, on Monday, the last Friday of the month and the second Tuesday of the month, UTC",
        ),
        # Where either day field is enough, one that names every day makes the other say nothing.
        ("0 0 1-31 * 1", "At 00:00, UTC"),
        ("0 0 1 * 0-6", "At 00:00, UTC"),
        ("0 9 * * 1/3", "At 09:00, only on Sunday, Monday, and Thursday, UTC"),
        ("20/15 * * * *", "At 20, 35, and 50 minutes past the hour, UTC"),
        ("5/15 * * * *", "Every 15 minutes, starting at 5 minutes past the hour, UTC"),
        ("0 1-5,10 * * *", "At 01:00, 02:00, 03:00, 04:00, 05:00 and 10:00, UTC"),
        ("0 0 */2 * 1,3", "At 00:00, on every 2 days from day 1 of the month if it is also Monday or Wednesday, UTC"),
        ("0 0 1,17 * MON", "At 00:00, on day 1 and day 17 of the month or on Monday, UTC"),
        ("0 0 13 * 5", "At 00:00, on day 13 of the month or on Friday, UTC"),
        ("0 0 */2 * 1", "At 00:00, on every 2 days from day 1 of the month if it is also Monday, UTC"),
    ],
)
def test_cron_in_words(expression, text):
    assert describe(CronTrigger(expression), now=NOW).text == text


def test_a_hash_is_described_by_what_it_came_to():
    one = CronTrigger("H 3 * * *", key="nightly-report")
    minute = one.next_after(NOW).minute
    assert describe(one, now=NOW).text == f"At 03:{minute:02}, UTC"


def test_several_expressions_are_joined_and_repeats_said_once():
    trigger = CronTrigger(["0 9 * * *", "0 9 * * *", "0 17 * * 1-5"], timezone="Europe/Stockholm")
    assert describe(trigger, now=NOW).text == "At 09:00; or at 17:00, Monday through Friday, Europe/Stockholm time"


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (OnceTrigger(datetime(2027, 4, 21, 15, tzinfo=UTC)), "Once, at 2027-04-21 15:00:00 UTC"),
        (OnceTrigger(delay_seconds=1800), "Once, 30 minutes after it is created"),
        (OnceTrigger(delay_seconds=0), "Once, 0 seconds after it is created"),
        (IntervalTrigger(1), "Every second"),
        (IntervalTrigger(3600), "Every hour"),
        (IntervalTrigger(5400), "Every 1 hour 30 minutes"),
        (IntervalTrigger(90_061), "Every 1 day 1 hour 1 minute 1 second"),
        (IntervalTrigger(0.25), "Every 0.25 seconds"),
        (
            IntervalTrigger(60, datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC), jitter_seconds=1.5),
            (
                "Every minute, from 2027-01-01 00:00:00 UTC, until 2027-02-01 00:00:00 UTC, "
                "up to 1.5 seconds late (jitter)"
            ),
        ),
        (
            CalendarTrigger(minute=0, hour=9, day_of_week=[1, 2, 3, 4, 5], timezone="Europe/Stockholm"),
            "At 09:00, Monday through Friday, Europe/Stockholm time",
        ),
        (
            CalendarTrigger(minute=0, hour=0, day_of_month=13, day_of_week=5, year=[2027, 2028]),
            "At 00:00, on day 13 of the month if it is also Friday, in 2027 and 2028, UTC",
        ),
        (CalendarTrigger(second=None), "Every second, UTC"),
        (CalendarTrigger(minute=[0, 1, 2, 30]), "At 0 through 2 and 30 minutes past the hour, UTC"),
        (EventTrigger("deploy"), "When deploy is emitted"),
        (
            EventTrigger(["a", "b"], {"path": {"prefix": "/x", "not": {"suffix": ".tmp"}}, "k": ["d"], "n": None}),
            (
                'When a or b is emitted and path begins with "/x" and not (ends with ".tmp") and k is one of ["d"] '
                "and n is null"
            ),
        ),
        (
            EventTrigger("a", {"size": {"gte": 1, "lt": 5}, "old": {"exists": False}, "new": {"exists": True}}),
            "When a is emitted and size is at least 1 and is less than 5 and old is not there and new is there",
        ),
    ],
)
def test_the_other_triggers_in_words(trigger, text):
    assert describe(trigger, now=NOW).text == text


def test_a_long_filter_value_is_cut():
    text = describe(EventTrigger("a", {"k": "x" * 500})).text
    assert text.endswith("…")
    assert len(text) < 120


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("0 0 13 * 5", ["day of month (13) OR the day of week (5)"]),
        ("0 0 */2 * 1", ["day of month (*/2) AND the day of week (1)", "starts again each month"]),
        ("0 0 1 * */2", ["day of month (1) AND the day of week (*/2)", "starts again each week"]),
        ("*/7 * * * *", ["minute */7 does not mean every 7: the count starts again each hour"]),
        ("5/7 * * * *", ["starts again each hour"]),
        ("20/15 * * * *", ["starts again each hour"]),
        ("5/15 * * * *", []),
        ("0 10/8 * * *", ["starts again each day"]),
        ("0 0 * * MON/2", ["starts again each week"]),
        ("0 0 1 NOV/4 *", ["starts again each year"]),
        ("0 0 */1 * *", []),
        ("*/7,30 * * * *", ["starts again each hour"]),
        ("*/7 * * * * *", ["second */7", "starts again each minute"]),
        ("0 */5 * * *", ["starts again each day"]),
        ("0 0 */3 * *", ["starts again each month"]),
        ("0 0 1 */5 *", ["starts again each year"]),
        ("*/15 * * * *", []),
        ("*/15 */6 * */3 *", []),
        ("*/1 * * * *", []),
        ("10-50/7 * * * *", []),  # a bounded range says where it ends
        ("0 9 * * 1-5", []),
        ("0 0 ? * MON", []),
        ("0 0 1 * ?", []),
    ],
)
def test_traps_of_the_fields(expression, parts):
    warnings = describe(CronTrigger(expression), now=NOW).warnings
    assert all(any(part in warning for warning in warnings) for part in parts), warnings
    assert bool(warnings) == bool(parts)


@pytest.mark.parametrize(
    ("trigger", "warnings"),
    [
        (
            CronTrigger("30 2 * * *", timezone="America/New_York"),
            [
                (
                    "on 2027-03-14 there is no 02:30 in America/New_York (the clock jumps from 02:00 to 03:00): "
                    "it fires at 03:00 instead"
                )
            ],
        ),
        (
            CronTrigger("30 2 * * *", timezone="America/New_York", dst={"gap": "skip"}),
            [
                (
                    "on 2027-03-14 there is no 02:30 in America/New_York (the clock jumps from 02:00 to 03:00): "
                    "nothing fires for it"
                )
            ],
        ),
        (
            CalendarTrigger(second=15, minute=30, hour=2, timezone="Europe/Stockholm"),
            [
                (
                    "on 2027-03-28 there is no 02:30:15 in Europe/Stockholm (the clock jumps from 02:00 to 03:00): "
                    "it fires at 03:00 instead"
                )
            ],
        ),
        (
            CronTrigger(["45 1 * * *", "15 2 * * *"], timezone="Australia/Lord_Howe"),
            [
                (
                    "on 2027-10-03 there is no 02:15 in Australia/Lord_Howe (the clock jumps from 02:00 to 02:30): "
                    "it fires at 02:30 instead"
                )
            ],
        ),
        # Several missed times are one fire, and one that happens anyway is no second one.
        (
            CronTrigger("0,30 2 * * *", timezone="Europe/Berlin"),
            [
                (
                    "on 2027-03-28 there is no 02:00 or 02:30 in Europe/Berlin (the clock jumps from 02:00 to 03:00): "
                    "they fire once, at 03:00"
                )
            ],
        ),
        (
            CronTrigger("0,30 2 * * *", timezone="Europe/Berlin", dst={"gap": "skip"}),
            [
                (
                    "on 2027-03-28 there is no 02:00 or 02:30 in Europe/Berlin (the clock jumps from 02:00 to 03:00): "
                    "nothing fires for them"
                )
            ],
        ),
        (
            CronTrigger(["30 2 * * *", "0 3 * * *"], timezone="Europe/Berlin"),
            [
                (
                    "on 2027-03-28 there is no 02:30 in Europe/Berlin (the clock jumps from 02:00 to 03:00): "
                    "covered by the fire at 03:00"
                )
            ],
        ),
        # A rhythm that lives in the missing hour alone has a day without a fire, unless it asks to be made up for.
        (
            CronTrigger("*/10 2 * * *", timezone="Europe/Berlin"),
            [
                (
                    "on 2027-03-28 there is no 02:00 or 02:10 or 02:20 .. in Europe/Berlin "
                    "(the clock jumps from 02:00 to 03:00): nothing fires that day"
                )
            ],
        ),
        (CronTrigger("*/10 2 * * *", timezone="Europe/Berlin", dst={"gap": "after"}), []),
        (CronTrigger("*/10 2-4 * * *", timezone="Europe/Berlin"), []),
        # A wildcard follows real time; a time outside the gap is not hit; nor is a day that is not named.
        (CronTrigger("*/30 * * * *", timezone="America/New_York"), []),
        (CronTrigger("0 3 * * *", timezone="America/New_York"), []),
        (CronTrigger("30 2 * * MON", timezone="America/New_York"), []),
        (CalendarTrigger(minute=30, timezone="America/New_York"), []),
        (CronTrigger("30 2 * * *", timezone="Asia/Kathmandu"), []),
        # The gap lies outside the bounds.
        (
            CronTrigger("30 2 * * *", timezone="America/New_York", end_at=datetime(2027, 3, 1, tzinfo=UTC)),
            [],
        ),
    ],
)
def test_traps_of_the_clock(trigger, warnings):
    assert describe(trigger, now=NOW).warnings == warnings


def test_a_jump_longer_than_three_hours_is_never_made_up():
    trigger = CronTrigger("0 12 * * *", timezone="Pacific/Apia")
    (warning,) = describe(trigger, now=datetime(2011, 12, 1, tzinfo=UTC)).warnings
    assert warning == (
        "on 2011-12-30 there is no 12:00 in Pacific/Apia (the clock jumps from 00:00 to 2011-12-31 00:00): "
        "nothing fires for it"
    )


def test_without_now_the_year_of_the_zone_data_is_looked_at():
    (warning,) = describe(CronTrigger("30 2 * * *", timezone="America/New_York")).warnings
    assert warning.startswith("on days such as 20")
    assert "there is no 02:30" in warning


def test_an_override_of_the_clock_rule_is_said():
    trigger = CronTrigger("30 2 * * *", timezone="Europe/Berlin", dst={"gap": "skip", "fold": "both"})
    text = describe(trigger, now=NOW).text
    assert text == "At 02:30, Europe/Berlin time, skipped in a gap, in both passes of a repeated hour"


@pytest.mark.parametrize("wrong", ["0 9 * * *", None, {"type": "cron"}])
def test_only_triggers_are_described(wrong):
    with pytest.raises(InvalidTrigger, match="must be a trigger"):
        describe(wrong, now=NOW)


def test_now_must_be_an_instant():
    with pytest.raises(InvalidTrigger, match="time zone"):
        describe(CronTrigger("@daily"), now=datetime(2027, 1, 1))  # noqa: DTZ001 - naive on purpose


NUMBERS = {0: (0, 59), 1: (0, 59), 2: (0, 23), 3: (1, 31), 4: (1, 12), 5: (0, 7)}
SPECIAL = {3: ["L", "L-2", "LW", "15W", "H"], 5: ["5L", "MON#2", "H", "SUN"], 4: ["JAN", "H"]}


@st.composite
def written_fields(draw):
    fields = []
    for place, (low, high) in NUMBERS.items():
        number = st.integers(low, high)
        span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
        step = st.tuples(st.one_of(st.just("*"), span), st.integers(1, 70)).map(lambda pair: f"{pair[0]}/{pair[1]}")
        item = st.one_of(number.map(str), span, step, st.sampled_from(SPECIAL.get(place, ["H", "H/7"])))
        fields.append(draw(st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))))
    return " ".join(fields)


@given(written_fields())
def test_any_accepted_trigger_can_be_described(text):
    try:
        trigger = CronTrigger(text)
    except InvalidTrigger:
        return
    description = describe(trigger, now=NOW)
    assert description.text.endswith(", UTC")
    assert len(description.text) > len("At, UTC")
    assert all(isinstance(warning, str) and warning for warning in description.warnings)


def test_a_hash_without_a_key_is_a_trap():
    (warning,) = describe(CronTrigger("H 3 * * *"), now=NOW).warnings
    assert "no key" in warning
    assert describe(CronTrigger("H 3 * * *", key="k"), now=NOW).warnings == []


def test_no_spring_is_named_twice():
    eve = datetime(2027, 3, 26, 12, tzinfo=UTC)
    (warning,) = describe(CronTrigger("30 2 * * *", timezone="Europe/Stockholm"), now=eve).warnings
    assert "2027-03-28" in warning


def test_filter_values_cannot_steer_a_terminal():
    text = describe(EventTrigger("paid", {"city": "\x9b31m\u202eÅre"})).text
    assert text == 'When paid is emitted and city is "\\u009b31m\\u202eÅre"'


def test_the_end_of_time_can_be_described():
    trigger = CronTrigger("30 2 * * *", timezone="Europe/Berlin")
    assert describe(trigger, now=datetime(9999, 6, 1, tzinfo=UTC)).warnings == []
    assert "in 2027-2030 and 2040" in describe(CalendarTrigger(minute=0, year=[*range(2027, 2031), 2040])).text


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
def test_what_reads_alike_fires_alike():
    minutes, hours = ["0", "*/15", "5/15", "20/15", "*/7"], ["9", "*/8", "10/8", "9-17", "1-5,10"]
    days, weekdays = ["*", "1-31", "1", "*/2", "L", "15,L"], ["*", "1", "0-6", "1/3", "*/3", "MON#1"]
    collected = {}
    for minute, hour, day, weekday in product(minutes, hours, days, weekdays):
        trigger = CronTrigger(f"{minute} {hour} {day} * {weekday}")
        seen = tuple(fires(trigger, NOW, 40)), trigger.count_between(NOW, datetime(2028, 1, 1, tzinfo=UTC))
        assert collected.setdefault(describe(trigger, now=NOW).text, seen) == seen, trigger


@pytest.mark.parametrize(
    ("types", "meant"),
    [
        (["occurrence.faild"], ["occurrence.failed"]),
        (
            ["Occurrence.Late", "node.losst", "occurrence.compleated"],
            ["occurrence.late", "node.lost", "occurrence.completed"],
        ),
        (["occurence.timed_out"], ["occurrence.timed_out"]),
        (["occurrence.failed", "node.lost"], []),
        (["file_uploaded", "occurrence", "schedule.changed", "order.failed", "x" * 60], []),
    ],
)
def test_a_type_that_is_almost_a_fact_is_a_trap(types, meant):
    warnings = describe(EventTrigger(types)).warnings
    assert [warning.removesuffix(" is").rpartition(" ")[2] for warning in warnings] == meant
    assert all(" is not an event that Noonmark emits, but " in warning for warning in warnings)
