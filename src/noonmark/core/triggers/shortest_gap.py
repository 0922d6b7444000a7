"""The shortest time between two fires of a trigger, over its whole pattern.

The answer does not depend on when it is asked. Within days it comes from the times of day of the expressions that share
a day, over 28 years, in which every date meets every weekday. Around clock changes it comes from the fires themselves,
over 28 years from the year of the installed zone data on. Jitter does not matter.
"""

from __future__ import annotations

from datetime import date
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.triggers.calendar import CalendarTrigger
from noonmark.core.triggers.cron import CronTrigger
from noonmark.core.triggers.interval import IntervalTrigger
from noonmark.core.triggers.wallclock import EPOCH_ORDINAL
from noonmark.core.triggers.zones import load_zone, release_year

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.triggers.trigger import Trigger
    from noonmark.core.triggers.wallclock import TimesOnDays

CYCLE_YEARS = 28
"""Within a century, the calendar repeats after that many years, weekdays included."""
FIRST_YEAR = 2000
MAX_YEARS = 400
_MONTHS = range(1, 13)


def shortest_gap(trigger: Trigger | None) -> Micros | None:
    """The shortest time between two fires; None if it fires at most once, or not by time."""
    if isinstance(trigger, IntervalTrigger):
        return trigger.every
    if not isinstance(trigger, CronTrigger | CalendarTrigger):
        return None
    wall = _wall_gap(trigger.rules, _years(trigger))
    gaps = [*_gaps_at_clock_changes(trigger), *([] if wall is None else [wall * SECOND])]
    return min(gaps, default=None)


def _years(trigger: CronTrigger | CalendarTrigger) -> Sequence[int]:
    """The years that show the whole pattern."""
    named = trigger.year if isinstance(trigger, CalendarTrigger) else None
    return range(FIRST_YEAR, FIRST_YEAR + CYCLE_YEARS) if named is None else named[:MAX_YEARS]


class _Times:
    """The times of a day on which some expressions fire."""

    def __init__(self, bits: int) -> None:
        text = bin(bits)[:1:-1]  # the first second of the day comes first
        between = text.split("1")
        self.first, self.last = len(between[0]), len(text) - 1
        self.gap = min((len(part) + 1 for part in between[1:-1]), default=None)


def _wall_gap(rules: Sequence[TimesOnDays], years: Sequence[int]) -> int | None:
    """The shortest gap in seconds, on a clock that never changes."""
    bits = [rule.bits() for rule in rules]
    times: dict[tuple[int, ...], _Times] = {}
    days: list[tuple[int, _Times]] = []
    for day, sharing in _days(rules, years):
        if sharing not in times:
            times[sharing] = _Times(reduce(or_, (bits[index] for index in sharing)))
        days.append((day, times[sharing]))
    within = [one.gap for one in times.values() if one.gap is not None]
    # Which pairs of days are next to each other, and how far apart, repeats; so it is looked at once.
    pairs = {(later - day, before, after) for (day, before), (later, after) in pairwise(days)}
    across = [apart * DAY_SECONDS + after.first - before.last for apart, before, after in pairs]
    return min([*within, *across], default=None)


def _days(rules: Sequence[TimesOnDays], years: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each day on which any expression fires, with the places of those that do."""
    sharing: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for year in years:
        for month in _MONTHS:
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            named = tuple(rule.days.month_of(first)[2] for rule in rules)
            if named not in sharing:
                fields_by_day = (
                    (day, tuple(i for i, days in enumerate(named) if days >> day & 1)) for day in range(1, 32)
                )
                sharing[named] = [(day, places) for day, places in fields_by_day if places]
            for day, places in sharing[named]:
                yield first + day - 1, places


def _gaps_at_clock_changes(trigger: CronTrigger | CalendarTrigger) -> Iterator[Micros]:
    """The gaps between the fires before and after each change of the clock."""
    zone = load_zone(trigger.timezone)
    year = release_year()
    second, until = (_first_second(one) for one in (year, year + CYCLE_YEARS))
    while (second := zone.segment_at(second).end) < until:
        change = second * SECOND
        before, after = trigger.previous_micros(change), trigger.next_micros(change - 1)
        following = None if after is None else trigger.next_micros(after)
        if before is not None and after is not None:
            yield after - before
        if after is not None and following is not None:
            yield following - after


def _first_second(year: int) -> int:
    return (date(year, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY_SECONDS
