"""Local spans: hours, days, weeks and months of a time zone. A day may have 23 or 25 hours."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.instants import HOUR, SECOND

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.triggers.zones import Zone

LONG_MONTH = timedelta(days=32)


class LocalUnit(StrEnum):
    """How long a span is."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    """It begins on Monday."""
    MONTH = "month"


def span_of(zone: Zone, unit: LocalUnit, instant: Micros) -> tuple[Micros, Micros]:
    """The beginning of the span that an instant is in, and that of the next one."""
    local = zone.local_time(instant)
    if unit is LocalUnit.HOUR:
        start = _hour(zone, instant)
        return start, _hour(zone, start + HOUR)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit is LocalUnit.DAY:
        first, last = midnight, midnight + timedelta(days=1)
    elif unit is LocalUnit.WEEK:
        first = midnight - timedelta(days=midnight.weekday())
        last = first + timedelta(days=7)
    else:
        first = midnight.replace(day=1)
        last = (first + LONG_MONTH).replace(day=1)
    return zone.instant(first), zone.instant(last)


def span_edges(zone: Zone, unit: LocalUnit, since: Micros, until: Micros, most: int) -> list[Micros] | None:
    """The beginnings of the spans from one instant to before another, and the end; None if there are too many."""
    edges = [*span_of(zone, unit, since)]
    while edges[-1] < until:
        if len(edges) > most:
            return None
        edges.append(span_of(zone, unit, edges[-1])[1])
    return edges


def span_name(zone: Zone, unit: LocalUnit, start: Micros) -> str:
    """The local date on which a span begins; of an hour with its time."""
    local = zone.local_time(start)
    return local.isoformat(timespec="minutes") if unit is LocalUnit.HOUR else local.date().isoformat()


def _hour(zone: Zone, instant: Micros) -> Micros:
    local: datetime = zone.local_time(instant)
    into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    start = instant - into // timedelta(microseconds=1)
    here = zone.segment_at(instant // SECOND)
    # Where a clock is set by half an hour, an hour begins there.
    return start if zone.segment_at(start // SECOND).offset == here.offset else here.start * SECOND
