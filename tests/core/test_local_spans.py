"""Hours, days, weeks and months of time zones, with clock changes in them."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from noonmark.core.instants import SECOND, to_micros, to_text
from noonmark.core.local_spans import LocalUnit, span_edges, span_name, span_of
from noonmark.core.triggers.zones import load_zone

HOUR = 3_600 * SECOND
STOCKHOLM, LORD_HOWE, BEIRUT = (load_zone(name) for name in ("Europe/Stockholm", "Australia/Lord_Howe", "Asia/Beirut"))


def at(*parts):
    return to_micros(datetime(*parts, tzinfo=UTC))


@pytest.mark.parametrize(
    ("zone", "unit", "instant", "start", "hours"),
    [
        (STOCKHOLM, "day", at(2026, 3, 28, 12), "2026-03-27T23:00:00Z", 24),
        (STOCKHOLM, "day", at(2026, 3, 29, 12), "2026-03-28T23:00:00Z", 23),
        (STOCKHOLM, "day", at(2026, 10, 25, 0, 30), "2026-10-24T22:00:00Z", 25),
        (BEIRUT, "day", at(2026, 3, 29, 12), "2026-03-28T22:00:00Z", 23),  # there is no midnight
        (STOCKHOLM, "week", at(2026, 3, 29, 12), "2026-03-22T23:00:00Z", 7 * 24 - 1),
        (STOCKHOLM, "month", at(2026, 3, 31, 22), "2026-03-31T22:00:00Z", 30 * 24),
        (STOCKHOLM, "month", at(2026, 10, 31), "2026-09-30T22:00:00Z", 31 * 24 + 1),
        (STOCKHOLM, "hour", at(2026, 10, 25, 0, 59), "2026-10-25T00:00:00Z", 1),
        (STOCKHOLM, "hour", at(2026, 10, 25, 1, 1), "2026-10-25T01:00:00Z", 1),
        (load_zone("Asia/Kolkata"), "hour", at(2026, 1, 1, 0, 10), "2025-12-31T23:30:00Z", 1),
        (LORD_HOWE, "hour", at(2026, 4, 4, 14, 40), "2026-04-04T14:00:00Z", 1),
        (LORD_HOWE, "hour", at(2026, 4, 4, 15, 10), "2026-04-04T15:00:00Z", 0.5),
    ],
)
def test_span(zone, unit, instant, start, hours):
    first, last = span_of(zone, LocalUnit(unit), instant)
    assert first <= instant < last
    assert (to_text(first), (last - first) / HOUR) == (start, hours)


def test_spans_follow_each_other():
    since, until = at(2026, 3, 28, 12), at(2026, 3, 30, 12)
    edges = span_edges(STOCKHOLM, LocalUnit.DAY, since, until, 10)
    assert [(b - a) / HOUR for a, b in pairwise(edges)] == [24, 23, 24]
    assert [span_name(STOCKHOLM, LocalUnit.DAY, edge) for edge in edges[:-1]] == [
        "2026-03-28",
        "2026-03-29",
        "2026-03-30",
    ]
    assert span_name(STOCKHOLM, LocalUnit.HOUR, since) == "2026-03-28T13:00"
    assert span_edges(STOCKHOLM, LocalUnit.DAY, since, until, 3) == edges
    assert span_edges(STOCKHOLM, LocalUnit.DAY, since, until, 2) is None
    for zone in (STOCKHOLM, LORD_HOWE):
        hours = span_edges(zone, LocalUnit.HOUR, at(2026, 4, 1), at(2026, 4, 8), 1_000)
        assert hours == sorted(set(hours))
        assert len(hours) >= 24 * 7
