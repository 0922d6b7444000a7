"""Recurrences: wall-clock rules on the real time line of a zone, with a stated rule for daylight saving.

A *fixed* time (neither its minute nor its hour begins with `*`) is neither lost nor doubled: in a gap it fires at
the first instant after it, in a repeated hour in the first pass. A *wildcard* follows real time: it fires
whenever the wall clock matches. A trigger may override either half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.documents import Reader, named
from noonmark.core.errors import InvalidTrigger, Problem, refusal
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY_SECONDS, MAX_INSTANT, MIN_INSTANT, SECOND, Micros
from noonmark.core.json_values import in_python, shown
from noonmark.core.triggers.trigger import Trigger
from noonmark.core.triggers.wallclock import Union, unite
from noonmark.core.triggers.zones import CYCLE, SETTLED, Pass, Segment, Zone, load_zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from noonmark.core.triggers.wallclock import TimesOnDays, WallRule


class Gap(StrEnum):
    """What becomes of a time that the clock jumps over."""

    AFTER = "after"
    SKIP = "skip"


class Fold(StrEnum):
    """In which pass of a repeated hour a time fires."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@frozen
class DstRule:
    """One whole rule."""

    gap: Gap
    fold: Fold


FIXED = DstRule(Gap.AFTER, Fold.FIRST)
WILDCARD = DstRule(Gap.SKIP, Fold.BOTH)


@frozen
class DstOverride:
    """The daylight saving rules of a trigger; `None` leaves that half to the default of its type."""

    gap: Gap | None = None
    fold: Fold | None = None

    def over(self, rule: DstRule) -> DstRule:
        """The rule with these values on top."""
        return DstRule(self.gap or rule.gap, self.fold or rule.fold) if self.gap or self.fold else rule

    def to_document(self) -> dict[str, str]:
        """Only the given values."""
        return {name: str(half) for name, half in (("gap", self.gap), ("fold", self.fold)) if half is not None}


NO_OVERRIDE = DstOverride()


def read_dst(reader: Reader) -> DstOverride:
    """Read `{"gap": .., "fold": ..}`; both may be absent."""
    override = DstOverride(reader.choice("gap", named(Gap), None), reader.choice("fold", named(Fold), None))
    reader.close()
    return override


MAX_GAP_SECONDS = 3 * 3600
"""A longer jump is not daylight saving but a move of the date line or a corrected clock; no fire is owed for it."""

FIRST_SECOND = MIN_INSTANT // SECOND
LAST_SECOND = MAX_INSTANT // SECOND
MADE_UP = 0
NEVER = Segment(0, 0, 0, Pass.ONLY, 0)


class Recurrence:
    """Fires of one or more wall-clock rules in one zone."""

    __slots__ = ("_rules", "_segment", "_special", "_whole", "_zone")

    def __init__(self, zone: Zone, rules: Sequence[tuple[TimesOnDays, DstRule]]) -> None:
        """`rules` is not empty."""
        self._zone = zone
        self._rules = rules
        self._whole: WallRule = rules[0][0] if len(rules) == 1 else Union(tuple(rule for rule, _ in rules))
        self._special: tuple[WallRule | None, ...] | None = None
        self._segment = NEVER

    def meaning(self) -> dict[str, object]:
        """What the rules name in their zone, however rules and zone are spelled."""
        rules = {(*rule.meaning(), str(dst.gap), str(dst.fold)) for rule, dst in self._rules}
        return {"rules": sorted(rules, key=repr), "zone": self._zone.meaning()}

    def next_after(self, second: int) -> int | None:
        """The first fire after an instant."""
        second = second + 1 if second >= FIRST_SECOND else FIRST_SECOND
        start, end, offset, reading, gap = self._segment
        while second <= LAST_SECOND:
            if not start <= second < end:
                self._segment = start, end, offset, reading, gap = self._zone.segment_at(second)
            if gap and second == start and self._owes(self._segment):
                return second
            rule = self._rule_for(reading) if reading else self._whole
            if rule is not None:
                wall = rule.at_or_after(second + offset)
                if wall is not None and wall < end + offset:
                    return wall - offset if wall - offset <= LAST_SECOND else None
            # No wall clock from here on shows less than end - 1 day, so nothing before `wall` can match.
            wall = self._whole.at_or_after(end - DAY_SECONDS)
            if wall is None:
                return None
            second = max(end, wall - DAY_SECONDS)
        return None

    def previous_before(self, second: int) -> int | None:
        """The last fire before an instant."""
        second = min(second - 1, LAST_SECOND)
        while second >= FIRST_SECOND:
            segment = self._zone.segment_at(second)
            start, _, offset, reading, gap = segment
            rule = self._rule_for(reading) if reading else self._whole
            if rule is not None:
                wall = rule.before(second + offset + 1)
                if wall is not None and wall >= start + offset:
                    return wall - offset
            if gap and self._owes(segment):
                return start
            # No wall clock before here showed more than start + 1 day.
            wall = self._whole.before(start + DAY_SECONDS)
            if wall is None:
                return None
            second = min(start - 1, wall + DAY_SECONDS)
        return None

    def count_between(self, after: int, until: int) -> int:
        """How many fires lie after one instant and not after the other."""
        first, last = max(after + 1, FIRST_SECOND), min(until, LAST_SECOND)
        settled = max(first, SETTLED)
        cycles = (last + 1 - settled) // CYCLE
        if cycles < 2 or not self._repeats:
            return self._count(first, last)
        # Once zones are settled, every 400 years are alike: count them once.
        rest = settled + cycles * CYCLE
        return (
            self._count(first, settled - 1)
            + cycles * self._count(settled, settled + CYCLE - 1)
            + self._count(rest, last)
        )

    def _count(self, first: int, last: int) -> int:
        total = 0
        while first <= last:
            segment = self._zone.segment_at(first)
            start, end, offset, reading, gap = segment
            while end <= last and self._zone.segment_at(end)[2:] == (offset, reading, 0):
                end = self._zone.segment_at(end).end  # the end of a block is not a change of the clock
            end = min(end, last + 1)
            rule = self._rule_for(reading) if reading else self._whole
            if rule is not None:
                total += rule.count(first + offset, end + offset)
            if gap and first == start and self._owes(segment):
                total += self._whole.count(start + offset, start + offset + 1) == 0
            first = end
        return total

    @property
    def _repeats(self) -> bool:
        return all(rule.days.repeats for rule, _ in self._rules)

    def _rule_for(self, part: int) -> WallRule | None:
        """The rules that apply in the first or second pass of a repeated hour, or (0) make up for a gap.

        Most triggers are asked for a few fires and never meet such an hour, so this waits until one does.
        """
        if self._special is None:
            self._special = (
                unite([rule for rule, dst in self._rules if dst.gap is Gap.AFTER]),
                unite([rule for rule, dst in self._rules if dst.fold is not Fold.SECOND]),
                unite([rule for rule, dst in self._rules if dst.fold is not Fold.FIRST]),
            )
        return self._special[part]

    def _owes(self, segment: Segment) -> bool:
        """Whether the jump at the start of this segment swallowed a time that fires at its end instead."""
        rule = self._rule_for(MADE_UP)
        if rule is None or segment.gap > MAX_GAP_SECONDS:
            return False
        resumed = segment.start + segment.offset
        missed = rule.at_or_after(resumed - segment.gap)
        return missed is not None and missed < resumed


@dataclass(frozen=True, slots=True, init=False, repr=False)
class WallTrigger(Trigger):
    """Fires at wall-clock times of one zone, which are whole seconds."""

    timezone: str
    dst: DstOverride
    _recurrence: Recurrence = field(compare=False)

    @property
    def _must_fire(self) -> bool:
        return True

    def meaning(self) -> dict[str, object]:
        """What it fires at, without its bounds: equal for two that are spelled differently."""
        return self._recurrence.meaning()

    def _next(self, after: Micros) -> Micros | None:
        fire = self._recurrence.next_after(after // SECOND)
        return None if fire is None else fire * SECOND

    def _previous(self, before: Micros) -> Micros | None:
        fire = self._recurrence.previous_before(-(-before // SECOND))
        return None if fire is None else fire * SECOND

    def _count(self, after: Micros, until: Micros) -> int:
        return self._recurrence.count_between(after // SECOND, until // SECOND)


def zone_argument(zone: str | ZoneInfo) -> Zone:
    """A zone given by a caller, by its name or as a `ZoneInfo` that has one."""
    name = getattr(zone, "key", None) if isinstance(zone, tzinfo) else zone
    if not isinstance(name, str):
        given = repr(zone) if isinstance(zone, tzinfo) else shown(zone)
        message = f"must be the IANA name of a time zone, such as UTC, or a ZoneInfo with such a name, not {given}"
        raise InvalidTrigger(in_python(message), field="timezone")
    try:
        return load_zone(name)
    except ValueError as error:
        raise InvalidTrigger(str(error), field="timezone") from None


def dst_argument(value: Mapping[str, str] | DstOverride | None) -> DstOverride:
    """A daylight-saving override given by a caller, as a value or as its document."""
    if value is None:
        return NO_OVERRIDE
    if isinstance(value, DstOverride):
        return value
    problems: list[Problem] = []
    override = read_dst(Reader(value, path="dst", code=InvalidTrigger.code, problems=problems))
    if problems:
        raise refusal(problems)
    return override
