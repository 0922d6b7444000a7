"""Time zones as segments: stretches of real time over which the wall clock runs evenly.

Reading a zone's offset for every fire is slow, and it hides the two awkward hours of a year. Here a zone is cut
once into segments, each with one offset, and each says what it is: an ordinary stretch, the first or the second
pass of a repeated hour, or a stretch that begins where the clock jumped ahead (`gap`). Recurrences then work in
plain integers. All instants in this module are whole seconds since the epoch.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from noonmark.core.instants import DAY_SECONDS, EPOCH, MAX_INSTANT, MIN_INSTANT, SECOND, Micros, from_micros, to_micros
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from datetime import tzinfo

BLOCK_BITS = 25
"""Segments are found one block of 2**25 seconds (about 388 days) at a time."""

SETTLED = 3_786_912_000
"""From 2090 on every zone follows a yearly rule."""

CYCLE = 146_097 * DAY_SECONDS
"""The calendar repeats every 400 years, weekdays included, and so do yearly rules."""

FIRST_SECOND = MIN_INSTANT // SECOND + DAY_SECONDS
LAST_SECOND = MAX_INSTANT // SECOND - DAY_SECONDS
"""Beyond these, a local time may fall outside the years 1 to 9999; offsets there are taken from the edge."""

QUARTER = 900
MAX_NAME = 64
SAMPLED = range(1_767_225_600, 1_830_384_000, 15 * DAY_SECONDS)
"""Every 15 days of 2026 and 2027: zones with the same offsets then are the same zone under two names, or as good as."""


ABBREVIATIONS = {
    "ACDT": "Australia/Adelaide",
    "ACST": "Australia/Adelaide",
    "AEDT": "Australia/Sydney",
    "AEST": "Australia/Sydney",
    "AKDT": "America/Anchorage",
    "AKST": "America/Anchorage",
    "AWST": "Australia/Perth",
    "BRT": "America/Sao_Paulo",
    "BST": "Europe/London",
    "CDT": "America/Chicago",
    "CEST": "Europe/Paris",
    "CST": "America/Chicago",
    "EDT": "America/New_York",
    "EEST": "Europe/Athens",
    "HKT": "Asia/Hong_Kong",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "MDT": "America/Denver",
    "MESZ": "Europe/Berlin",
    "MEZ": "Europe/Berlin",
    "MSK": "Europe/Moscow",
    "NZDT": "Pacific/Auckland",
    "NZST": "Pacific/Auckland",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "SAST": "Africa/Johannesburg",
    "SGT": "Asia/Singapore",
    "WEST": "Europe/Lisbon",
}
"""Abbreviations of local time that are not IANA names, each with a zone that uses it."""
FIXED_NAMES = {"cet", "eet", "est", "hst", "met", "mst", "wet"}
"""IANA names that look like abbreviations: nobody who wrote another one means them."""


class Pass(IntEnum):
    """Which reading of the wall clock a segment is."""

    ONLY = 0
    FIRST = 1
    SECOND = 2


class Segment(NamedTuple):
    """Real time from `start` up to `end`, where wall time = real time + `offset`.

    `gap` is how many wall-clock seconds were jumped over at `start`, 0 almost always.
    """

    start: int
    end: int
    offset: int
    reading: Pass
    gap: int


class Zone:
    """A zone's segments, found on demand and kept."""

    __slots__ = ("_blocks", "_epoch", "_tz", "name")

    def __init__(self, name: str, tz: tzinfo) -> None:
        """Wrap a zone whose rules are known under a name."""
        self.name = name
        self._tz = tz
        self._epoch = EPOCH.replace(tzinfo=tz)
        self._blocks: dict[int, tuple[Segment, ...]] = {}

    def segment_at(self, second: int) -> Segment:
        """The segment that holds this instant."""
        if second >= SETTLED + CYCLE:
            cycles = (second - SETTLED) // CYCLE * CYCLE
            alike = self.segment_at(second - cycles)
            return alike._replace(start=alike.start + cycles, end=alike.end + cycles)
        block = self._blocks.get(second >> BLOCK_BITS)
        if block is None:
            block = self._blocks[second >> BLOCK_BITS] = self._find_block(second >> BLOCK_BITS)
        for segment in block:
            if second < segment.end:
                return segment
        raise AssertionError(second)  # pragma: no cover - a block's segments cover all of it

    def meaning(self) -> list[int]:
        """Its offsets, by which a zone and its aliases are equal."""
        return [self.segment_at(second).offset for second in SAMPLED]

    def local(self, second: int) -> datetime:
        """The wall clock at an instant, for people to read."""
        return (EPOCH + timedelta(0, second)).astimezone(self._tz)

    def instant(self, local: datetime) -> Micros:
        """The instant of a naive datetime; ValueError outside the years 1 to 9999.

        A time in a gap is the first instant after it. One in a repeated hour is in the first pass, unless its `fold`
        names the second.
        """
        named = to_micros(local.replace(tzinfo=self._tz))
        if not FIRST_SECOND <= named // SECOND <= LAST_SECOND or self.local_time(named) == local:
            return named
        # In a gap, the two passes are an instant before the change and one after it.
        before, after = sorted(to_micros(local.replace(tzinfo=self._tz, fold=fold)) // SECOND for fold in (0, 1))
        return (
            self._first_with(self._offset(after), before // QUARTER * QUARTER, -(-after // QUARTER) * QUARTER) * SECOND
        )

    def local_time(self, instant: Micros) -> datetime:
        """The naive datetime that the wall clock shows at an instant."""
        return from_micros(instant).astimezone(self._tz).replace(tzinfo=None)

    def _offset(self, second: int) -> timedelta | None:
        # fromutc reads the fields as UTC whatever zone they carry, and it is the quickest way to ask a zone
        return self._tz.fromutc(self._epoch + timedelta(0, second)).utcoffset()

    def _find_block(self, index: int) -> tuple[Segment, ...]:
        """Cut one block; changes a little outside it matter too, for a repeated hour may reach over its edge."""
        start, end = index << BLOCK_BITS, (index + 1) << BLOCK_BITS
        low = max(start - 2 * DAY_SECONDS, FIRST_SECOND) // QUARTER * QUARTER
        high = min(end + 2 * DAY_SECONDS, LAST_SECOND) // QUARTER * QUARTER
        cuts = [Segment(min(low, start), max(high, end), _seconds(self._offset(low)), Pass.ONLY, 0)]
        for change, before, after in self._changes(low, high):
            if after > before:
                cuts.append(Segment(change, high, after, Pass.ONLY, after - before))
            else:
                repeated = before - after
                cuts.append(Segment(change - repeated, high, before, Pass.FIRST, 0))
                cuts.append(Segment(change, high, after, Pass.SECOND, 0))
                cuts.append(Segment(change + repeated, high, after, Pass.ONLY, 0))
        ends = [cut.start for cut in cuts[1:]] + [max(high, end)]
        return tuple(
            cut._replace(start=max(cut.start, start), end=min(cut_end, end), gap=cut.gap if cut.start >= start else 0)
            for cut, cut_end in zip(cuts, ends, strict=True)
            if cut_end > start and cut.start < end
        )

    def _changes(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """Each (instant, offset before, offset after) in a stretch of time, by sampling and bisection."""
        changes: list[tuple[int, int, int]] = []
        if self._tz is UTC:
            return changes
        step = _probe_step(low)
        before = self._offset(low)
        for probe in range(low, high, step):
            upper = min(probe + step, high)
            after = self._offset(upper)
            if after != before:
                changes.append((self._first_with(after, probe, upper), _seconds(before), _seconds(after)))
                before = after
        return changes

    def _first_with(self, offset: timedelta | None, low: int, high: int) -> int:
        """The first second with an offset that begins after `low`; most clocks change on the quarter of an hour."""
        high = self._bisect(offset, low, high, QUARTER)
        if self._offset(high - 1) == offset:
            high = self._bisect(offset, high - QUARTER, high, 1)
        return high

    def _bisect(self, offset: timedelta | None, low: int, high: int, grain: int) -> int:
        while high - low > grain:
            middle = (low + high) // 2 // grain * grain
            if self._offset(middle) == offset:
                high = middle
            else:
                low = middle
        return high


def _probe_step(low: int) -> int:
    """How far apart offsets may be sampled without missing a change: no zone kept one for a shorter time.

    The shortest stretch on record lasted 3.9 days (Freetown 1939), since 1970 6.9 days (Recife 2000, Gaza 2040);
    the halves of a yearly rule last months.
    """
    if low < 0:
        return 3 * DAY_SECONDS
    return 6 * DAY_SECONDS if low < SETTLED else 28 * DAY_SECONDS


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * DAY_SECONDS + offset.seconds


def load_zone(name: object) -> Zone:
    """The zone of an IANA name; ValueError for anything else (no path, no alias of this machine)."""
    if not isinstance(name, str):
        raise ValueError(f"is not an IANA time zone: {shown(name)}; {_suggestion('')}")
    return _zone(name)


@lru_cache(maxsize=1024)
def _zone(name: str) -> Zone:
    if name == "UTC":
        return Zone(name, UTC)
    if name not in zone_names():
        raise ValueError(f"is not an IANA time zone: {shown(name)}; {_suggestion(name)}")
    return Zone(name, ZoneInfo(name))


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every IANA name of the installed zone data."""
    from importlib.resources import files  # noqa: PLC0415 - it costs as much as all of this module

    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


def release_year() -> int:
    """The year of the installed zone data."""
    return int(tzdata.IANA_VERSION[:4])


def _suggestion(name: str) -> str:
    if (zone := ABBREVIATIONS.get(name.upper())) is not None:
        return f"an abbreviation can mean several zones; name the one that you mean, such as {zone}"
    if len(name) > MAX_NAME or "+" in name:  # an offset such as UTC+1 is not a zone
        return "a name such as Europe/Stockholm is expected"
    from difflib import get_close_matches  # noqa: PLC0415 - only for those who need the hint

    lookup = name.casefold().replace(" ", "_")
    by_fold = {known.casefold(): known for known in sorted(zone_names())}
    by_city = {folded.rpartition("/")[2]: known for folded, known in by_fold.items()}
    if lookup in by_city:
        return f"did you mean {by_city[lookup]}?"
    near = get_close_matches(lookup, by_fold.keys() - FIXED_NAMES, n=1, cutoff=0.7)
    return f"did you mean {by_fold[near[0]]}?" if near else "a name such as Europe/Stockholm is expected"
