"""Zones as stretches of constant offset, held against the zone files of every installed zone."""

from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo, _zoneinfo

import pytest

from noonmark.core.errors import InvalidTrigger
from noonmark.core.instants import from_micros
from noonmark.core.triggers.zones import _probe_step, load_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = resources.files("tzdata.zoneinfo")
NAMES = resources.files("tzdata").joinpath("zones").read_text().split()
# Many names are links to one file: walking it once is enough.
FILES = list({ZONES.joinpath(*name.split("/")).read_bytes(): name for name in NAMES}.values())
# All the history and the near future; then, where one rule repeats itself for ever, a few years far away.
WINDOWS = [(1900, 2045), (2084, 2090), (2395, 2402), (9990, 9998)]
PARTS = 8


def seconds(offset):
    return int(offset.total_seconds())


def second_of(year):
    return seconds(datetime(year, 1, 1, tzinfo=UTC) - EPOCH)


def offset_at(zone, second):
    return seconds((EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset())


def listed_changes(name, first_year, last_year):
    """Every (second, offset from then on) in some years, from the zone file and the rule at its end."""
    zone = _zoneinfo.ZoneInfo.no_cache(name)
    marks = [(at, seconds(info.utcoff)) for at, info in zip(zone._trans_utc, zone._ttinfos, strict=True)]
    rule = zone._tz_after
    if isinstance(rule, _zoneinfo._TZStr):
        last_listed = marks[-1][0] if marks else second_of(1)
        standard, summer = seconds(rule.std.utcoff), seconds(rule.dst.utcoff)
        for year in range(first_year - 1, last_year + 1):
            begins, ends = rule.transitions(year)
            by_rule = sorted([(begins - standard, summer), (ends - summer, standard)])
            marks.extend(mark for mark in by_rule if mark[0] > last_listed)
    return real_changes(offset_at(zone, second_of(first_year)), marks, first_year, last_year)


def walked_changes(name, first_year, last_year):
    """The same, by walking from stretch to stretch."""
    zone = load_zone(name)
    here = zone.segment_at(second_of(first_year))
    first_offset = here.offset
    marks = []
    while here.end < second_of(last_year):
        following = zone.segment_at(here.end)
        assert following.start == here.end, name
        assert following.end > following.start, name
        marks.append((following.start, following.offset))
        here = following
    return real_changes(first_offset, marks, first_year, last_year)


def real_changes(offset, marks, first_year, last_year):
    """Only the marks inside the window at which the offset becomes another."""
    found = [(second_of(first_year), offset)]
    for at, after in marks:
        if second_of(first_year) < at < second_of(last_year) and after != found[-1][1]:
            found.append((at, after))
    return found


@pytest.mark.no_cover  # it takes long, and what it comes by is shown by tables
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.soak) for part in range(2, PARTS))])
def test_every_change_of_every_zone_is_seen_to_the_second(part):
    assert len(FILES) > 300
    for name in FILES[part::PARTS]:
        for window in WINDOWS:
            assert walked_changes(name, *window) == listed_changes(name, *window), name


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize("part", range(PARTS))
def test_offsets_are_those_of_zoneinfo(part):
    """Asked out of order: whatever is remembered between questions must not show."""
    assert len(NAMES) > 500
    step = 86_400 * 365 * 17 + 12_345
    for name in NAMES[part::PARTS]:
        zone, theirs = load_zone(name), ZoneInfo(name)
        for number in range(11):
            second = second_of(1900) + (number * 4 % 11) * step
            segment = zone.segment_at(second)
            assert segment.start <= second < segment.end
            assert segment.offset == offset_at(theirs, second)
            assert zone.segment_at(segment.start) == segment
            assert zone.segment_at(segment.end - 1) == segment


KNOWN = [
    ("America/New_York", "2026-03-08T07:00:00+00:00", -5 * 3600, -4 * 3600),
    ("America/New_York", "2026-11-01T06:00:00+00:00", -4 * 3600, -5 * 3600),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00+00:00", 37_800, 39_600),
    ("Pacific/Apia", "2011-12-30T10:00:00+00:00", -10 * 3600, 14 * 3600),
    ("America/St_Johns", "2010-03-14T03:31:00+00:00", -12_600, -9_000),
    ("Africa/Monrovia", "1972-01-07T00:44:30+00:00", -2_670, 0),
    ("Europe/Stockholm", "2089-03-27T01:00:00+00:00", 3600, 7200),
]


@pytest.mark.parametrize(("name", "instant", "before", "after"), KNOWN)
def test_known_changes(name, instant, before, after):
    second = seconds(datetime.fromisoformat(instant) - EPOCH)
    zone = load_zone(name)
    assert zone.segment_at(second).offset == after
    assert zone.segment_at(second).start == second
    assert zone.segment_at(second - 1).end == second
    assert zone.segment_at(second - 1).offset == before


@pytest.mark.parametrize(
    "name", ["UTC", "Asia/Tokyo", "America/New_York", "Europe/Stockholm", "Africa/Casablanca", "Asia/Gaza"]
)
def test_the_whole_time_line_has_an_answer(name):
    zone = load_zone(name)
    for year in (1, 2, 1000, 1883, 2037, 2038, 2100, 2400, 5000, 9998, 9999):
        instant = datetime(year, 7, 1, tzinfo=UTC)
        second = seconds(instant - EPOCH)
        segment = zone.segment_at(second)
        assert segment.start <= second < segment.end
        assert segment.offset == offset_at(ZoneInfo(name), second)
    for second in (-62_135_596_800, 253_402_300_799):
        assert zone.segment_at(second).start <= second < zone.segment_at(second).end


def test_a_zone_is_loaded_once():
    assert load_zone("Europe/Stockholm") is load_zone("Europe/Stockholm")


@pytest.mark.parametrize("name", ["Nowhere", "America", "../UTC", "/etc/localtime", "", "UTC\x00", "\ud800", 5, None])
def test_unknown_zones_are_refused(name):
    with pytest.raises((InvalidTrigger, ValueError)):
        load_zone(name)


@pytest.mark.parametrize(
    ("name", "local", "instant"),
    [
        ("Europe/Paris", "2027-07-01T09:00", "2027-07-01T07:00"),
        ("Europe/Paris", "2027-03-28T02:30", "2027-03-28T01:00"),  # skipped: the first instant after the gap
        ("Europe/Paris", "2027-03-28T03:00", "2027-03-28T01:00"),
        ("Europe/Paris", "2027-10-31T02:30", "2027-10-31T00:30"),  # shown twice: the first of the two
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00"),  # a whole day was skipped
        ("Europe/Dublin", "1916-05-21T02:40", "1916-05-21T02:25:21"),
        ("Asia/Tokyo", "0001-01-01T12:00", "0001-01-01T02:41:01"),
        ("UTC", "9999-12-31T23:59", "9999-12-31T23:59"),
    ],
)
def test_a_naive_datetime_is_an_instant_of_a_zone(name, local, instant):
    expected = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    assert from_micros(load_zone(name).instant(datetime.fromisoformat(local))) == expected


def test_a_fold_names_the_second_pass():
    second = datetime(2027, 10, 31, 2, 30, fold=1)  # noqa: DTZ001 - naive on purpose
    assert from_micros(load_zone("Europe/Paris").instant(second)) == datetime(2027, 10, 31, 1, 30, tzinfo=UTC)


def test_a_zone_shows_the_wall_clock():
    assert load_zone("Asia/Kathmandu").local(0).isoformat() == "1970-01-01T05:30:00+05:30"


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize(("first_year", "last_year"), [(1850, 1970), (1970, 2090), (2090, 2130)])
def test_no_zone_keeps_an_offset_for_less_than_a_probe(first_year, last_year):
    # What the sampling relies on: two changes between two samples would go unseen.
    stretches = [
        (later - earlier, name)
        for name in NAMES
        for (earlier, _), (later, _) in pairwise(listed_changes(name, first_year, last_year))
    ]
    assert min(stretches)[0] > _probe_step(second_of(first_year)), min(stretches)
