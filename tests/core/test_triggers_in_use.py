"""What callers meet when they use triggers from Python: readable values and errors that lead to the fix."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from noonmark import (
    CalendarTrigger,
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidTrigger,
    OnceTrigger,
    Trigger,
    fires,
    parse_trigger,
)

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (OnceTrigger(NOW), "OnceTrigger(due_at_utc='2026-11-15T00:00:00Z')"),
        (IntervalTrigger(1.5, NOW), "IntervalTrigger(every_seconds=1.5, start_at_utc='2026-11-15T00:00:00Z')"),
        (CronTrigger("@daily"), "CronTrigger(expression='@daily', timezone='UTC')"),
        (
            CalendarTrigger(hour=9),
            "CalendarTrigger(timezone='UTC', hour={'kind': 'values', 'values': [9]})",
        ),
        (EventTrigger("paid", {"sum": 5}), "EventTrigger(event_type='paid', filters={'sum': 5})"),
    ],
)
def test_a_trigger_reads_as_its_document(trigger, text):
    assert repr(trigger) == text


def test_the_base_is_abstract():
    with pytest.raises(TypeError, match="Trigger is abstract"):
        Trigger()


@pytest.mark.parametrize("count", [-1, 2.5, "2", None, True])
def test_fires_takes_a_count(count):
    with pytest.raises(InvalidTrigger, match="integer") as caught:
        fires(CronTrigger("@daily"), NOW, count)
    assert caught.value.field == "count"


def test_fires_takes_a_trigger_and_an_instant():
    assert fires(CronTrigger("@daily"), NOW, 0) == []
    with pytest.raises(InvalidTrigger, match="must be a trigger, such as CronTrigger"):
        fires("0 9 * * *", NOW, 1)
    with pytest.raises(InvalidTrigger, match="tzinfo=UTC"):
        fires(CronTrigger("@daily"), datetime(2027, 1, 1), 1)  # noqa: DTZ001 - naive on purpose


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("europe/stockholm", "did you mean Europe/Stockholm?"),
        ("Europe/Stokholm", "did you mean Europe/Stockholm?"),
        ("UTC+1", "a name such as Europe/Stockholm"),
        ("CEST", "an abbreviation can mean several zones; name the one that you mean, such as Europe/Paris"),
        ("pst", "name the one that you mean, such as America/Los_Angeles"),
        ("PEST", "a name such as Europe/Stockholm"),
        ("Qwertyuiop/Zxcv", "a name such as Europe/Stockholm"),
        ("x" * 65, "a name such as Europe/Stockholm"),
    ],
)
def test_an_unknown_zone_gets_a_hint(name, hint):
    with pytest.raises(InvalidTrigger) as caught:
        CronTrigger("@daily", timezone=name)
    assert hint in caught.value.message


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("@every 5m", "use an interval trigger"),
        ("0 0 WL * *", "1-31, L, L-n, LW and nW"),
        ("0 0 * * L", "0-7 or SUN to SAT, nL and n#k"),
    ],
)
def test_a_refused_expression_says_what_would_do(expression, hint):
    with pytest.raises(InvalidTrigger) as caught:
        CronTrigger(expression)
    assert hint in caught.value.message


@pytest.mark.parametrize(
    "trigger",
    [
        OnceTrigger(NOW),
        OnceTrigger(delay_seconds=5),
        IntervalTrigger(60, NOW),
        IntervalTrigger(60),
        CronTrigger(["30 2 * * *", "*/5 * * * MON"], timezone="Europe/Berlin", dst={"fold": "both"}),
        CalendarTrigger(hour=2, minute=0, timezone="Europe/Berlin", end_at=datetime(2030, 1, 1, tzinfo=UTC)),
        EventTrigger("paid", {"sum": {"gt": 5}, "city": ["a", {"prefix": "b"}]}, start_at=NOW, jitter_seconds=3),
    ],
    ids=lambda trigger: trigger.type,
)
def test_a_trigger_travels_between_processes(trigger):
    for twin in (pickle.loads(pickle.dumps(trigger)), copy.deepcopy(trigger)):  # noqa: S301 - our own
        assert twin == trigger
        assert hash(twin) == hash(trigger)
        assert twin.to_document() == trigger.to_document()
        assert twin.next_after(NOW) == trigger.next_after(NOW)


def test_a_travelled_event_trigger_still_matches():
    trigger = pickle.loads(pickle.dumps(EventTrigger("paid", {"sum": {"gt": 5}})))  # noqa: S301 - our own
    assert trigger.matches("paid", {"sum": 6})
    assert not trigger.matches("paid", {"sum": 5})


def test_a_key_of_its_own_is_kept_when_bound():
    own = CronTrigger("H H * * *", key="mine")
    assert own.bind(now=NOW, key="the schedule's") == own
    assert CronTrigger("H H * * *").bind(now=NOW, key="mine") == own
    assert CronTrigger("@daily").bind(now=NOW, key="mine") == CronTrigger("@daily")


def test_a_hashed_step_beyond_its_range_still_names_a_value():
    for number in range(50):
        fire = CronTrigger("H(0-5)/20 * * * *", key=f"k{number}").next_after(NOW)
        assert 0 <= fire.minute <= 5


def test_an_event_trigger_listens_within_its_bounds():
    trigger = EventTrigger("paid", start_at=NOW, end_at=datetime(2026, 12, 1, tzinfo=UTC))
    for at, listens in [(NOW, True), (datetime(2026, 12, 1, tzinfo=UTC), True), (None, True)]:
        assert trigger.matches("paid", {}, at=at) is listens
    assert not trigger.matches("paid", {}, at=datetime(2026, 11, 14, tzinfo=UTC))
    assert not trigger.matches("paid", {}, at=datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC))


DOCUMENTS = [
    {"type": "cron", "expression": "@daily"},
    {"type": "calendar"},
    {"type": "event", "event_type": "a"},
    {"type": "once", "due_at_utc": "2030-01-01T00:00:00Z"},
    {"type": "interval", "every_seconds": 5, "start_at_utc": "2030-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["type"])
def test_now_is_an_instant_for_every_trigger(document):
    for naive in (datetime(2026, 1, 1), None, "now"):  # noqa: DTZ001 - naive on purpose
        with pytest.raises(InvalidTrigger, match="time zone") as caught:
            parse_trigger(document, now=naive)
        assert caught.value.field == "now"


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        (
            {"type": "cron", "expression": "61 25 32 13 8"},
            ["minute", "hour", "day of month", "month", "day of week"],
        ),
        ({"type": "cron", "crons": ["61 25 * * *", "* * * *"]}, ["minute", "hour", "has 4 fields"]),
        (
            {"type": "calendar", "hour": {"kind": "values", "values": [24, 25, "x", 3]}},
            ['not 24, 25, "x"'],
        ),
        ({"type": "calendar", "year": {"kind": "values", "values": list(range(-10, 0))}}, ["-10, -9, -8, -7, -6 .."]),
        ({"type": "event", "event_type": ["a b", "ok", "c d"]}, ['not "a b"', 'not "c d"']),
        (
            {
                "type": "cron",
                "expression": "61 * * * *",
                "start_at_utc": "2030-01-02T00:00:00Z",
                "end_at_utc": "2030-01-01T00:00:00Z",
            },
            ["minute", "must not be before the start"],
        ),
    ],
)
def test_every_fault_of_a_trigger_is_reported(document, problems):
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger(document, now=NOW)
    told = [problem.message for problem in caught.value.problems]
    assert len(told) == len(problems)
    assert all(part in message for part, message in zip(problems, told, strict=True)), told


@pytest.mark.no_cover  # it takes long, and what it comes by is shown by tables
@pytest.mark.parametrize(
    "trigger",
    [
        CronTrigger("30 2 * * *", timezone="America/New_York"),
        CronTrigger("*/20 1-3 29 2 *", timezone="Australia/Lord_Howe"),
        CronTrigger(["30 2 * * *", "*/30 * * * SUN", "0 12 LW * *"], timezone="America/New_York"),
        CalendarTrigger(minute=30, hour=2, year=range(1990, 9990, 3), timezone="Europe/Berlin"),
    ],
    ids=repr,
)
def test_a_count_over_all_of_time_is_the_sum_of_its_parts(trigger):
    # Years that lie in the old history of a zone, in its tables, and many times 400 years beyond them.
    years = [1, 1883, 1970, 2026, 2090, 2091, 2489, 2490, 2891, 4000, 6543, 9999]
    edges = [datetime(year, 3, 9, 7, 0, tzinfo=UTC) for year in years]
    parts = [trigger.count_between(low, high) for low, high in pairwise(edges)]
    assert trigger.count_between(edges[0], edges[-1]) == sum(parts)
    decades = [datetime(year, 1, 1, tzinfo=UTC) for year in range(4300, 4900, 10)]
    assert trigger.count_between(decades[0], decades[-1]) == sum(
        trigger.count_between(low, high) for low, high in pairwise(decades)
    )


@pytest.mark.parametrize(
    ("lengths", "seconds"),
    [
        ({"seconds": 90}, 90),
        ({"minutes": 5}, 300),
        ({"hours": 2}, 7_200),
        ({"days": 1}, 86_400),
        ({"seconds": 1, "minutes": 1, "hours": 1, "days": 1}, 90_061),
        ({"minutes": 0.5}, 30),
        ({"every_seconds": timedelta(minutes=5)}, 300),
    ],
)
def test_an_interval_may_be_given_in_units(lengths, seconds):
    assert IntervalTrigger(**lengths) == IntervalTrigger(seconds)


@pytest.mark.parametrize(
    "lengths",
    [{}, {"minutes": -5}, {"hours": "1"}, {"days": True}, {"every_seconds": 5, "minutes": 1}, {"days": 1e300}],
)
def test_an_invalid_interval_is_refused(lengths):
    with pytest.raises(InvalidTrigger):
        IntervalTrigger(**lengths)
