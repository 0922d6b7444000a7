"""What holds for every trigger, searched by hypothesis, with two independent judges: cronsim and a brute-force walk."""

import os
import time
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.triggers import (
    CalendarTrigger,
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    OnceTrigger,
    Trigger,
    fires,
    parse_trigger,
)
from tests.core.oracle import WEEKDAYS, calendar_rule, check_timeline, clock_changes, cron_rule, fires_between, utc
from tests.soak import examples

MICRO = timedelta(microseconds=1)
ANY_NOW = utc("2001-02-03T04:05:06Z")

# Zones and years in which their clocks do something: a gap, a fold, at midnight, by half an hour, by a day.
CHANGES = [
    ("America/New_York", 2026),
    ("Europe/Stockholm", 2026),
    ("Europe/Dublin", 2026),
    ("Australia/Lord_Howe", 2026),
    ("America/Sao_Paulo", 2018),
    ("Africa/Casablanca", 2025),
    ("Africa/Cairo", 2024),
    ("Pacific/Apia", 2011),
    ("Pacific/Kwajalein", 1993),
    ("Pacific/Chatham", 2026),
    ("Asia/Kathmandu", 1985),
    ("Asia/Pyongyang", 2018),
    ("Asia/Beirut", 2025),
    ("Atlantic/Azores", 2026),
    ("America/Havana", 2025),
    ("America/St_Johns", 2010),
    ("America/Nuuk", 2023),
    ("Antarctica/Casey", 2011),
    ("Antarctica/Troll", 2024),
    ("Antarctica/Vostok", 2023),
    ("America/Caracas", 2016),
    ("America/New_York", 2060),
    ("Australia/Lord_Howe", 2060),
]
CALM = ["UTC", "Asia/Tokyo", "Asia/Kolkata", "Etc/GMT+12", "Pacific/Kiritimati"]


# --- strategies ------------------------------------------------------------------------------------------------------


def cron_item(low, high):
    def span(pair):
        return f"{min(pair)}-{max(pair)}"

    numbers = st.integers(low, high)
    pairs = st.tuples(numbers, numbers).map(span)
    steps = st.integers(1, high + 2)
    return st.one_of(
        numbers.map(str),
        numbers.map(str),
        pairs,
        st.builds("{}/{}".format, numbers, steps),
        st.builds("{}/{}".format, pairs, steps),
        st.builds("*/{}".format, steps),
    )


def cron_field(low, high, *specials):
    item = cron_item(low, high)
    if specials:
        item |= st.one_of(*specials)
    return st.just("*") | item | st.lists(item, min_size=1, max_size=3).map(",".join)


weekday_numbers = st.integers(0, 7).map(str)
seconds = st.sampled_from(["0", "30", "*/20", "59", "15,45", "10-12", "7/25"])
minutes = cron_field(0, 59)
hours = cron_field(0, 23) | st.sampled_from(["0", "1", "2", "3", "23", "0,1", "1-3", "*/2"])
days_of_month = cron_field(
    1,
    31,
    st.sampled_from(["L", "LW", "L-1", "L-7", "L-30"]),
    st.integers(1, 31).map("{}W".format),
)
months = cron_field(1, 12) | st.just("*")
days_of_week = cron_field(
    0,
    7,
    weekday_numbers.map("{}L".format),
    st.builds("{}#{}".format, weekday_numbers, st.integers(1, 5)),
    st.sampled_from([name[:3].upper() for name in WEEKDAYS] + WEEKDAYS),
)
five_fields = st.builds("{} {} {} {} {}".format, minutes, hours, days_of_month, months, days_of_week)
six_fields = st.builds("{} {}".format, seconds, five_fields)
# Mostly every day, so that something happens around the clock change.
daily = st.builds("{} {} * * *".format, minutes, hours)
six_daily = st.builds("{} {}".format, seconds, daily)
expressions = daily | six_daily | five_fields | six_fields

dst_overrides = st.none() | st.fixed_dictionaries(
    {}, optional={"gap": st.sampled_from(["after", "skip"]), "fold": st.sampled_from(["first", "second", "both"])}
)


def field_values(low, high):
    return st.none() | st.integers(low, high) | st.lists(st.integers(low, high), min_size=1, max_size=4)


calendar_fields = st.fixed_dictionaries(
    {},
    optional={
        "second": st.sampled_from([0, 30, [0, 20, 40], 59]),
        "minute": field_values(0, 59),
        "hour": field_values(0, 23) | st.sampled_from([[0], [1, 2], [2, 3], [23, 0]]),
        "day_of_month": st.none() | st.lists(st.integers(1, 31), min_size=10, max_size=25),
        "month": st.none() | st.lists(st.integers(1, 12), min_size=8, max_size=12),
        "day_of_week": st.none() | st.lists(st.integers(0, 7), min_size=4, max_size=8),
        "year": st.none() | st.lists(st.sampled_from(sorted({year for _, year in CHANGES})), min_size=8),
    },
)


@st.composite
def places(draw):
    """A zone and an instant: mostly close to one of its clock changes, to the microsecond."""
    if draw(st.integers(0, 5)) == 0:
        zone = draw(st.sampled_from(CALM + [name for name, _ in CHANGES]))
        instant = draw(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)))  # noqa: DTZ001 - hypothesis wants them naive
        return zone, instant.replace(tzinfo=UTC)
    zone, year = draw(st.sampled_from(CHANGES))
    change = draw(st.sampled_from(clock_changes(zone, year)))
    away = draw(st.integers(-240, 240) | st.integers(-240, 240) | st.integers(-2_400, 2_400)) * timedelta(minutes=1)
    fine = draw(st.sampled_from([timedelta(0), MICRO, -MICRO, timedelta(seconds=1), timedelta(seconds=-1)]))
    return zone, change + away + fine


def stretch(rules):
    """How long a stretch of time the brute-force walk can afford for some rules."""
    a_day = sum(len(rule.seconds) * len(rule.minutes) * len(rule.hours) for rule in rules)
    return (
        timedelta(days=8)
        if a_day < 50
        else timedelta(days=2)
        if a_day < 300
        else timedelta(hours=6 if a_day < 3_000 else 1)
    )


def made(make, *arguments, **keywords):
    try:
        return make(*arguments, **keywords)
    except TriggerNeverFires:
        assume(False)  # noqa: FBT003 - hypothesis wants it so
        raise


# --- against the brute-force walk ------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(expressions, min_size=1, max_size=2), places(), dst_overrides)
def test_cron_is_what_a_walk_over_the_wall_clock_finds(crons, place, dst):
    zone, middle = place
    rules = [cron_rule(each) for each in crons]
    length = stretch(rules)
    after, until = middle - length / 2, middle + length / 2
    trigger = made(CronTrigger, crons, timezone=zone, dst=dst)
    check_timeline_lightly(trigger, after, until, fires_between(rules, zone, after, until, dst))


@settings(max_examples=examples(100), deadline=None)
@given(calendar_fields, places(), dst_overrides)
def test_calendar_is_what_a_walk_over_the_wall_clock_finds(fields, place, dst):
    zone, middle = place
    rule = calendar_rule(**fields)
    length = stretch([rule])
    after, until = middle - length / 2, middle + length / 2
    trigger = made(CalendarTrigger, **fields, timezone=zone, dst=dst)
    check_timeline_lightly(trigger, after, until, fires_between(rule, zone, after, until, dst))


def check_timeline_lightly(trigger, after, until, expected):
    """Like check_timeline, for long lists: forwards, backwards and as a count, and beside a few fires."""
    assert list(walk(trigger, after, until)) == expected
    assert list(walk_back(trigger, until, after)) == [fire for fire in expected[::-1] if fire < until]
    assert trigger.count_between(after, until) == len(expected)
    some = expected[:: max(1, len(expected) // 4)]
    for place in [step for fire in some for step in (fire - MICRO, fire, fire + MICRO)] + [after + (until - after) / 2]:
        if after <= place <= until:
            here = bisect_right(expected, place)
            assert trigger.count_between(after, place) == here
            assert trigger.count_between(place, until) == len(expected) - here
            assert trigger.next_after(place) == (expected[here] if here < len(expected) else trigger.next_after(until))
            below = bisect_left(expected, place)
            if below:
                assert trigger.previous_before(place) == expected[below - 1]


def walk(trigger, after, until):
    fire = trigger.next_after(after)
    while fire is not None and fire <= until:
        yield fire
        fire = trigger.next_after(fire)


def walk_back(trigger, before, after):
    fire = trigger.previous_before(before)
    while fire is not None and fire > after:
        yield fire
        fire = trigger.previous_before(fire)


ALL_YEAR = [
    ("America/New_York", "30 2 * * *", 2026),
    ("America/New_York", "*/20 1 * * *", 2026),
    ("Europe/Stockholm", "15 2 L * MON", 2026),
    ("Australia/Lord_Howe", "10,40 1-2 * * *", 2026),
    ("America/Sao_Paulo", "0 0 * * *", 2018),
    ("Pacific/Apia", "30 0,12 * * *", 2011),
    ("Africa/Casablanca", "30 */2 * * *", 2025),
    ("Asia/Kathmandu", "10 0 1,15,LW * 5#2", 1985),
    ("Antarctica/Troll", "0 1-3 */2 * 0-3", 2024),
]


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize(("zone", "expression", "year"), ALL_YEAR)
def test_a_whole_year_day_by_day(zone, expression, year):
    after, until = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    expected = fires_between(cron_rule(expression), zone, after, until)
    check_timeline_lightly(CronTrigger(expression, timezone=zone), after, until, expected)


# --- against cronsim -------------------------------------------------------------------------------------------------
#
# Left out, because the rules differ there on purpose or cronsim is wrong:
# - @ names, full names, `?`, `H`, `W` and `L-n`, which it does not read;
# - `a-a/n`, which it reads as `a/n`;
# - six fields in a zone with clock changes: it skips a fixed time in a gap and repeats it in a fold;
# - gaps of more than three hours: it fires after them, we skip;
# - asked from inside the second pass of a fold it may answer with an instant that has passed, so each walk starts on a
#   quiet day and goes through the change;
# - wildcard rules where clocks change at midnight or by half an hour: it steps by whole hours and misses some.


@cache
def quiet_start(zone, year):
    changes = clock_changes(zone, year)
    return (changes[0] if changes else datetime(year, 3, 1, tzinfo=UTC)).replace(hour=12) - timedelta(days=3)


def cronsim_item(low, high):
    def span(pair):
        return f"{min(pair)}-{max(pair)}" if len(set(pair)) == 2 else str(pair[0])

    numbers = st.integers(low, high)
    ranges = st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1]).map(span)
    return st.one_of(
        numbers.map(str),
        ranges,
        st.builds("{}/{}".format, numbers, st.integers(1, high)),
        st.builds("{}/{}".format, ranges, st.integers(1, high)),
        st.builds("*/{}".format, st.integers(1, high)),
    )


def cronsim_field(low, high, *specials):
    item = cronsim_item(low, high)
    if specials:
        item |= st.one_of(*specials)
    return st.just("*") | item | st.lists(item, min_size=1, max_size=3).map(",".join)


shared_five_fields = st.builds(
    "{} {} {} {} {}".format,
    cronsim_field(0, 59),
    cronsim_field(0, 23),
    cronsim_field(1, 31, st.sampled_from(["L", "LW"])),
    st.just("*") | cronsim_field(1, 12),
    cronsim_field(
        0,
        7,
        weekday_numbers.map("{}L".format),
        st.builds("{}#{}".format, weekday_numbers, st.integers(1, 5)),
        st.sampled_from(["MON", "TUE-FRI", "SAT,SUN"]),
    ),
)


@settings(max_examples=examples(200), deadline=None)
@given(shared_five_fields, st.sampled_from(["UTC", "America/New_York", "Europe/Stockholm", "Asia/Kolkata"]))
def test_cronsim_agrees(expression, zone):
    start = quiet_start(zone, 2026)
    trigger = made(CronTrigger, expression, timezone=zone)
    theirs = [each.astimezone(UTC) for each in islice(CronSim(expression, start.astimezone(ZoneInfo(zone))), 60)]
    assert fires(trigger, start, 60) == theirs


@settings(max_examples=examples(60), deadline=None)
@given(
    st.builds("{} {} * * *".format, cronsim_item(0, 59), cronsim_item(0, 23)).filter(lambda each: "*/" not in each),
    st.sampled_from(
        [("Australia/Lord_Howe", 2026), ("America/Sao_Paulo", 2018), ("America/Havana", 2025), ("Asia/Kathmandu", 1985)]
    ),
)
def test_cronsim_agrees_on_fixed_times_in_odd_zones(expression, place):
    zone, year = place
    start = quiet_start(zone, year)
    theirs = [each.astimezone(UTC) for each in islice(CronSim(expression, start.astimezone(ZoneInfo(zone))), 60)]
    # It notices only when two missed times merge with each other, not with a regular fire at the same instant.
    assert fires(CronTrigger(expression, timezone=zone), start, len(set(theirs))) == sorted(set(theirs))


@settings(max_examples=examples(100), deadline=None)
@given(six_fields.filter(lambda each: not any(letter in each for letter in ("W", "L-"))), places())
def test_cronsim_agrees_on_six_fields_in_utc(expression, place):
    assume(not any(name in expression for name in WEEKDAYS))
    assume(not any(same_ends(part) for part in expression.replace(",", " ").split()))
    trigger = made(CronTrigger, expression)
    assert fires(trigger, place[1], 30) == list(islice(CronSim(expression, place[1]), 30))


def same_ends(part):
    span, slash, _ = part.partition("/")
    return bool(slash) and "-" in span and len(set(span.split("-"))) == 1


# --- what holds for every trigger ------------------------------------------------------------------------------------

instants = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda each: each.replace(tzinfo=UTC))  # noqa: DTZ001
every = st.one_of(
    st.integers(1, 1_000_000),
    st.sampled_from([0.001, 0.1, 0.25, 0.333, 1.5, 29.97, 86_400, 604_800, 1e6]),
    st.integers(1_000, 10_000_000).map(lambda micros: micros / 1_000_000),
)
zones = st.sampled_from(CALM + [name for name, _ in CHANGES])
jitters = st.sampled_from([0, 0, 5, 0.5, 300])


@st.composite
def bounds(draw):
    """Nothing, a start, an end or both, wide apart."""
    start = draw(st.none() | instants)
    end = draw(st.none() | instants)
    assume(start is None or end is None or end - start > timedelta(days=900))
    return {"start_at": start, "end_at": end, "jitter_seconds": draw(jitters)}


@st.composite
def time_triggers(draw):
    kind = draw(st.sampled_from(["cron", "cron", "calendar", "calendar", "interval", "once"]))
    if kind == "cron":
        crons = draw(expressions | st.lists(expressions, min_size=1, max_size=3))
        return made(CronTrigger, crons, timezone=draw(zones), dst=draw(dst_overrides), **draw(bounds()))
    if kind == "calendar":
        fields = {name: value for name, value in draw(calendar_fields).items() if name != "year"}
        return made(CalendarTrigger, **fields, timezone=draw(zones), dst=draw(dst_overrides), **draw(bounds()))
    if kind == "interval":
        keywords = draw(bounds())
        keywords["start_at"] = keywords["start_at"] or draw(instants)
        assume(keywords["end_at"] is None or keywords["end_at"] > keywords["start_at"])
        return made(IntervalTrigger, every_seconds=draw(every), **keywords)
    return made(OnceTrigger, draw(instants))


@settings(max_examples=examples(200), deadline=None)
@given(time_triggers(), instants)
def test_next_is_strictly_after_and_previous_strictly_before(trigger, place):
    following, previous = trigger.next_after(place), trigger.previous_before(place)
    assert following is None or (following > place and following.tzinfo is UTC)
    assert previous is None or (previous < place and previous.tzinfo is UTC)
    if following is not None:
        assert trigger.next_after(following - MICRO) == following
        back = trigger.previous_before(following)
        assert back == (place if trigger.count_between(place - MICRO, place) else previous)
    if previous is not None:
        assert trigger.previous_before(previous + MICRO) == previous


@settings(max_examples=examples(150), deadline=None)
@given(time_triggers(), instants, st.lists(st.integers(0, 999_999), min_size=4, max_size=4))
def test_the_answer_is_constant_between_fires(trigger, place, shares):
    following = trigger.next_after(place)
    assume(following is not None)
    previous = trigger.previous_before(following)
    begin = previous or place
    for share in [0, *shares]:
        inside = begin + (following - begin) // 1_000_000 * share
        assert trigger.next_after(inside) == following
        if previous is not None and inside > previous:
            assert trigger.previous_before(inside) == previous
    assert trigger.next_after(following - MICRO) == following
    assert trigger.count_between(begin, following) == 1
    assert trigger.count_between(begin, following - MICRO) == 0


@settings(max_examples=examples(150), deadline=None)
@given(time_triggers(), instants)
def test_previous_and_count_agree_with_iteration(trigger, place):
    ahead = fires(trigger, place, 25)
    assert ahead == sorted(set(ahead))
    assume(ahead)
    assert list(walk_back(trigger, ahead[-1] + MICRO, place)) == ahead[::-1]
    for number, fire in enumerate(ahead, 1):
        assert trigger.count_between(place, fire) == number
        assert trigger.count_between(place, fire - MICRO) == number - 1
        assert trigger.count_between(fire, ahead[-1]) == len(ahead) - number


@settings(max_examples=examples(100), deadline=None)
@given(time_triggers(), instants, instants, instants)
def test_counts_add_up(trigger, one, two, three):
    first, second, third = sorted([one, two, three])
    whole = trigger.count_between(first, third)
    assert whole == trigger.count_between(first, second) + trigger.count_between(second, third)
    assert trigger.count_between(third, first) == 0
    assert trigger.count_between(second, second) == 0


@settings(max_examples=examples(150), deadline=None)
@given(time_triggers(), instants, instants)
def test_round_trip(trigger, now, place):
    again = parse_trigger(trigger.to_document(), now=now)
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert isinstance(again, type(trigger))
    assert isinstance(again, Trigger)
    assert again.to_document() == trigger.to_document()
    assert fires(again, place, 5) == fires(trigger, place, 5)


@settings(max_examples=examples(100), deadline=None)
@given(time_triggers(), instants, st.sampled_from(["America/New_York", "Asia/Tokyo", "Australia/Lord_Howe"]))
def test_the_zone_of_the_question_does_not_matter(trigger, place, zone):
    local = place.astimezone(ZoneInfo(zone))
    assert trigger.next_after(local) == trigger.next_after(place)
    assert trigger.previous_before(local) == trigger.previous_before(place)
    later = place + timedelta(days=3)
    other = place.astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    assert trigger.count_between(other, later.astimezone(ZoneInfo(zone))) == trigger.count_between(place, later)


@settings(max_examples=examples(60), deadline=None)
@given(time_triggers(), instants, st.integers(0, 40))
def test_fires_is_repeated_next_after(trigger, place, count):
    expected = list(islice(walk(trigger, place, datetime.max.replace(tzinfo=UTC)), count))
    assert fires(trigger, place, count) == expected


@pytest.fixture
def process_zone(monkeypatch):
    def set_to(name):
        monkeypatch.setitem(os.environ, "TZ", name)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


PROCESS_ZONES = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "EST5EDT4,M3.2.0,M11.1.0",
    "Nonsense",
]


@pytest.mark.parametrize("process", PROCESS_ZONES)
def test_the_zone_of_the_process_does_not_matter(process, process_zone):
    process_zone(process)
    trigger = CronTrigger("30 2 * * *", timezone="America/New_York")
    expected = [utc("2026-03-08T07:00Z"), utc("2026-03-09T06:30Z"), utc("2026-03-10T06:30Z")]
    check_timeline(trigger, utc("2026-03-08T00:00Z"), utc("2026-03-10T12:00Z"), expected)
    expected = [utc("2026-11-01T07:30Z"), utc("2026-11-02T07:30Z")]
    check_timeline(trigger, utc("2026-11-01T00:00Z"), utc("2026-11-02T12:00Z"), expected)
    assert parse_trigger(trigger.to_document(), now=ANY_NOW) == trigger
    documents = [
        {"type": "interval", "every_seconds": 60, "start_at_utc": "2026-03-08T06:59:30Z"},
        {"type": "once", "due_at_utc": "2026-03-08T02:30:00-05:00"},
        {"type": "calendar", "hour": {"kind": "values", "values": [7]}, "minute": {"kind": "values", "values": [30]}},
    ]
    answers = [parse_trigger(each, now=ANY_NOW).next_after(utc("2026-03-08T07:00Z")) for each in documents]
    assert answers == [utc("2026-03-08T07:00:30Z"), utc("2026-03-08T07:30Z"), utc("2026-03-08T07:30Z")]


def test_a_year_of_every_second_is_counted_quickly():
    trigger = CronTrigger("* * * * * *", timezone="America/New_York")
    begin = utc("2026-01-01T00:00Z")
    assert trigger.count_between(begin, begin + timedelta(days=365)) == 365 * 86_400
    assert trigger.count_between(begin, begin + timedelta(days=36_525)) == 36_525 * 86_400
    calendar = CalendarTrigger(second=None, timezone="Europe/Stockholm")
    assert calendar.count_between(begin, begin + timedelta(days=365)) == 365 * 86_400
    many = CronTrigger(["* * * * * *", "*/2 * * * * *", "30 * * * * *"], timezone="Europe/Stockholm")
    assert many.count_between(begin, begin + timedelta(days=365)) == 365 * 86_400


EDGE_TRIGGERS = [
    CronTrigger("* * * * *"),
    CronTrigger("30 2 * * *", timezone="America/New_York"),
    CronTrigger("30 2 * * *", timezone="Pacific/Kiritimati"),
    CronTrigger(["0 0 29 2 */7", "0 0 1 1 *"], timezone="Etc/GMT+12"),
    CalendarTrigger(hour=0, minute=0, timezone="Asia/Tokyo"),
    CalendarTrigger(year=9999, month=12, day_of_month=31, hour=23, minute=59, second=59),
    CalendarTrigger(year=1, month=1, day_of_month=1, hour=0, minute=0),
    IntervalTrigger(every_seconds=0.001, start_at=utc("2026-01-01T00:00Z")),
    IntervalTrigger(every_seconds=3_000_000_000, start_at=utc("9990-01-01T00:00Z")),
    OnceTrigger(utc("2026-01-01T00:00Z")),
]


@pytest.mark.parametrize("trigger", EDGE_TRIGGERS)
def test_the_ends_of_time_are_no_error(trigger):
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert trigger.next_after(last) is None
    assert trigger.previous_before(first) is None
    assert trigger.count_between(last, first) == 0
    for place in (first, first + timedelta(days=1), last - timedelta(days=1), last):
        following, previous = trigger.next_after(place), trigger.previous_before(place)
        assert following is None or place < following <= last
        assert previous is None or first <= previous < place
    assert (
        trigger.count_between(first, last) >= len(fires(trigger, first, 3)) >= (1 if trigger.next_after(first) else 0)
    )
    late = last - timedelta(minutes=1)
    assert fires(trigger, late, 100) == list(islice(walk(trigger, late, last), 100))


# --- interval --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200), deadline=None)
@given(instants, every, instants, st.none() | st.integers(0, 50))
def test_an_interval_is_its_anchor_and_multiples(start, step, place, length):
    micros = timedelta(microseconds=round(step * 1_000_000))
    end = None if length is None else start + micros * length
    trigger = IntervalTrigger(every_seconds=step, start_at=start, end_at=end)

    def expected_at(number):
        return start + micros * number if number >= 0 and (length is None or number <= length) else None

    since = (place - start) // micros
    assert trigger.next_after(place) == expected_at(max(since + 1, 0))
    before = -((start - place) // micros) - 1
    assert trigger.previous_before(place) == (expected_at(before if length is None else min(before, length)))
    assert trigger.count_between(start - MICRO, start) == 1
    assert trigger.count_between(start, start + micros * 10) == (10 if length is None else min(length, 10))


@pytest.mark.parametrize("step", [0.001, 0.1, 0.3, 0.7, 1.1, 0.029, 1 / 3])
def test_fractions_do_not_drift(step):
    start = utc("2026-01-01T00:00Z")
    micros = int(step * 1_000_000 + 1e-6)
    trigger = IntervalTrigger(every_seconds=step, start_at=start)
    far = start + timedelta(microseconds=micros) * 10_000_000
    assert trigger.next_after(far - MICRO) == far
    assert trigger.next_after(far) == far + timedelta(microseconds=micros)
    assert trigger.count_between(start, far) == 10_000_000
    assert trigger.previous_before(far) == far - timedelta(microseconds=micros)


def test_an_interval_is_elapsed_time_under_any_clock_change():
    trigger = IntervalTrigger(
        every_seconds=3600, start_at=datetime(2026, 3, 8, 0, 30, tzinfo=ZoneInfo("America/New_York"))
    )
    assert fires(trigger, utc("2026-03-08T05:00Z"), 4) == [utc(f"2026-03-08T0{hour}:30Z") for hour in (5, 6, 7, 8)]


def test_an_interval_without_a_start_waits_for_its_anchor():
    now = utc("2026-06-15T12:00:00.25Z")
    unbound = IntervalTrigger(every_seconds=10)
    assert unbound.next_after(now) is None
    assert unbound.previous_before(now) is None
    assert unbound.count_between(now, now + timedelta(days=1)) == 0
    assert fires(unbound, now, 5) == []
    bound = unbound.bind(now=now, key="x")
    assert fires(bound, now - timedelta(days=1), 2) == [now + timedelta(seconds=10), now + timedelta(seconds=20)]
    assert bound.previous_before(now + timedelta(seconds=10)) is None
    assert bound.bind(now=now + timedelta(days=1), key="y") == bound
    assert unbound.to_document() == {"type": "interval", "every_seconds": 10}
    assert parse_trigger(unbound.to_document(), now=now) == bound
    assert parse_trigger(bound.to_document(), now=ANY_NOW) == bound


# --- once and bounds -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(instants, instants)
def test_once_fires_once(at, place):
    trigger = OnceTrigger(at)
    assert trigger.next_after(place) == (at if at > place else None)
    assert trigger.previous_before(place) == (at if at < place else None)
    assert trigger.next_after(at) is None
    assert trigger.previous_before(at) is None
    assert trigger.count_between(at - MICRO, at) == 1
    assert trigger.count_between(at, at + timedelta(days=1)) == 0


def test_a_delay_is_counted_from_its_creation():
    now = utc("2026-06-15T12:00Z")
    unbound = OnceTrigger(delay_seconds=1.5)
    assert unbound.next_after(now) is None
    bound = unbound.bind(now=now, key="")
    assert bound.next_after(now) == utc("2026-06-15T12:00:01.5Z")
    assert bound.bind(now=now + timedelta(days=1), key="") == bound
    assert unbound.to_document() == {"type": "once", "delay_seconds": 1.5}
    assert parse_trigger(unbound.to_document(), now=now) == bound
    assert (unbound.at, bound.at) == (None, utc("2026-06-15T12:00:01.5Z"))
    assert parse_trigger(bound.to_document(), now=ANY_NOW) == bound


def test_binding_may_not_leave_the_calendar():
    end_of_time = utc("9999-12-31T23:59:59Z")
    with pytest.raises(InvalidTrigger, match="9999"):
        OnceTrigger(delay_seconds=2).bind(now=end_of_time)
    with pytest.raises(InvalidTrigger):
        IntervalTrigger(every_seconds=2).bind(now=end_of_time)


def test_bounds_hold_for_what_binding_fills():
    now = utc("2026-06-15T12:00Z")
    for document in ({"type": "once", "delay_seconds": 60}, {"type": "interval", "every_seconds": 60}):
        for end, allowed in (
            ("2026-06-15T12:01:00Z", True),
            ("2026-06-15T12:00:59Z", False),
            ("2026-06-15T11:00:00Z", False),
        ):
            bounded = {**document, "end_at_utc": end}
            if allowed:
                assert fires(parse_trigger(bounded, now=now), now, 5) == [utc(end)]
            else:
                with pytest.raises(InvalidTrigger):
                    parse_trigger(bounded, now=now)


@settings(max_examples=examples(150), deadline=None)
@given(expressions, places(), st.integers(0, 6), st.integers(0, 6), st.sampled_from([-MICRO, timedelta(0), MICRO]))
def test_bounds_are_inclusive(expression, place, from_number, more, shift):
    zone, middle = place
    free = made(CronTrigger, expression, timezone=zone)
    around = fires(free, middle, 14)
    assume(len(around) == 14)
    start, end = around[from_number] + shift, around[from_number + more] + shift
    allowed = [fire for fire in around if start <= fire <= end]
    assume(allowed)
    bounded = CronTrigger(expression, timezone=zone, start_at=start, end_at=end)
    early, late = start - timedelta(days=1000), end + timedelta(days=1000)
    assert fires(bounded, early, 20) == allowed
    assert list(walk_back(bounded, late, early)) == allowed[::-1]
    assert bounded.count_between(early, late) == len(allowed)
    assert bounded.next_after(allowed[-1]) is None
    assert bounded.previous_before(allowed[0]) is None
    assert bounded.next_after(end) is None
    assert bounded.previous_before(start) is None
    only_start = CronTrigger(expression, timezone=zone, start_at=start)
    assert fires(only_start, early, len(allowed)) == allowed
    only_end = CronTrigger(expression, timezone=zone, end_at=end)
    assert only_end.previous_before(late) == allowed[-1]


@pytest.mark.parametrize(
    "make",
    [
        lambda **keywords: CronTrigger("0 * * * *", **keywords),
        lambda **keywords: CalendarTrigger(minute=0, **keywords),
        lambda **keywords: IntervalTrigger(every_seconds=3600, **keywords),
    ],
)
def test_every_time_trigger_takes_bounds_and_jitter(make):
    start, end = utc("2026-01-01T03:00Z"), utc("2026-01-01T06:00Z")
    trigger = make(start_at=start, end_at=end, jitter_seconds=600)
    expected = [start + timedelta(hours=n) for n in range(4)]
    check_timeline(trigger, start - timedelta(hours=6), end + timedelta(hours=6), expected)
    assert parse_trigger(trigger.to_document(), now=ANY_NOW) == trigger
    assert make(start_at=start, end_at=end) != trigger


def test_jitter_does_not_move_nominal_times():
    plain, moved = CronTrigger("*/7 * * * *"), CronTrigger("*/7 * * * *", jitter_seconds=120)
    assert fires(plain, ANY_NOW, 50) == fires(moved, ANY_NOW, 50)


def test_an_event_trigger_names_no_instants():
    trigger = EventTrigger("file_uploaded", {"path": {"prefix": "/data/"}})
    assert trigger.next_after(ANY_NOW) is None
    assert trigger.previous_before(ANY_NOW) is None
    assert trigger.count_between(ANY_NOW, ANY_NOW + timedelta(days=1)) == 0
    assert fires(trigger, ANY_NOW, 3) == []
    assert parse_trigger(trigger.to_document(), now=ANY_NOW) == trigger


def test_an_event_trigger_wants_its_types_and_what_its_filters_let_through():
    trigger = EventTrigger(["created", "changed"], {"path": {"prefix": "/data/"}, "source": "disk"})
    assert trigger.matches("created", {"path": "/data/a"}, source="disk")
    assert trigger.matches("changed", {"path": "/data/a"}, source="disk")
    assert not trigger.matches("deleted", {"path": "/data/a"}, source="disk")
    assert not trigger.matches("created", {"path": "/other/a"}, source="disk")
    assert not trigger.matches("created", {"path": "/data/a"}, source="net")
    assert not trigger.matches("created", None)


@pytest.mark.parametrize("trigger", EDGE_TRIGGERS)
def test_naive_questions_are_refused(trigger):
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the point of the test
    aware = naive.replace(tzinfo=UTC)
    for ask in (
        lambda: trigger.next_after(naive),
        lambda: trigger.previous_before(naive),
        lambda: trigger.count_between(naive, aware),
        lambda: trigger.count_between(aware, naive),
        lambda: fires(trigger, naive, 1),
    ):
        with pytest.raises(ValueError, match="time zone"):
            ask()


def test_triggers_are_values():
    assert CronTrigger("0 0 * * *") == CronTrigger("0 0 * * *")
    assert CronTrigger("0 0 * * *") != CronTrigger("0 0 * * *", timezone="Asia/Tokyo")
    assert CronTrigger("0 0 * * *") != CronTrigger("0 1 * * *")
    assert len({CronTrigger("0 0 * * *"), CronTrigger("0 0 * * *"), OnceTrigger(ANY_NOW)}) == 2
    for trigger in EDGE_TRIGGERS:
        assert isinstance(trigger, Trigger)
        with pytest.raises((AttributeError, TypeError)):
            trigger.start = None
