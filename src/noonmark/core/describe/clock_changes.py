"""Clock changes: when the zone of a trigger changes its clock, and what that means for its fires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.describe.warnings import (
    YEAR_SECONDS,
    clock,
    date_of,
    gap_warnings,
    listed,
    matches,
)
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY_SECONDS, MAX_INSTANT, SECOND, Micros
from noonmark.core.triggers import CalendarTrigger, CronTrigger
from noonmark.core.triggers.zones import Pass, Segment, load_zone

if TYPE_CHECKING:
    from noonmark.core.triggers import Trigger


@frozen(kw_only=True)
class ClockChange:
    """A change of the clock within a year."""

    at: Micros
    shift_seconds: int
    """How far the clock jumps ahead; less than 0 where it goes back."""
    text: str
    is_affected: bool
    """Whether a fire is moved, lost or doubled by it, or would be but for the daylight-saving rule."""


def clock_changes(trigger: Trigger, since: Micros) -> list[ClockChange]:
    """The clock changes of the year after `since`, within the bounds of the trigger; none if it has no zone."""
    if not isinstance(trigger, CronTrigger | CalendarTrigger):
        return []
    changes: list[ClockChange] = []
    zone, before = load_zone(trigger.timezone), None
    second = since // SECOND
    until = min(second + YEAR_SECONDS, MAX_INSTANT // SECOND - DAY_SECONDS)
    start = second
    while second < until:
        segment = zone.segment_at(second)
        if segment.start >= start and trigger.within_bounds(segment.start * SECOND):
            if segment.gap:
                changes.append(_ahead(trigger, segment))
            elif before is not None and before.reading is Pass.FIRST and segment.reading is Pass.SECOND:
                changes.append(_back(trigger, before, segment))
        before, second = segment, segment.end
    return changes


def _ahead(trigger: CronTrigger | CalendarTrigger, segment: Segment) -> ClockChange:
    warnings = gap_warnings(trigger, segment)
    resumed = segment.start + segment.offset
    quiet = (
        f"{date_of(resumed)} the clock jumps from {clock(resumed - segment.gap)} to {clock(resumed)} in"
        f" {trigger.timezone}: no fire is lost"
    )
    return ClockChange(
        at=segment.start * SECOND,
        shift_seconds=segment.gap,
        text=f"on {warnings[0] if warnings else quiet}",
        is_affected=bool(warnings),
    )


def _back(trigger: CronTrigger | CalendarTrigger, first: Segment, second: Segment) -> ClockChange:
    """A stretch of wall-clock time comes twice."""
    length, change = first.offset - second.offset, second.start
    resumed = change + second.offset
    twice = sorted({wall for rule in trigger.rules for wall in matches(rule, resumed, resumed + length)})
    jump = f"the clock goes back from {clock(resumed + length)} to {clock(resumed)}"
    if not twice:
        text = f"on {date_of(resumed)} {jump} in {trigger.timezone}: no fire is near"
    else:
        text = (
            f"on {date_of(resumed)} {listed(twice, 'and')} {'comes' if len(twice) == 1 else 'come'} twice in"
            f" {trigger.timezone} ({jump}): {_passes(trigger, change, length, is_one=len(twice) == 1)}"
        )
    return ClockChange(at=change * SECOND, shift_seconds=-length, text=text, is_affected=bool(twice))


def _passes(trigger: CronTrigger | CalendarTrigger, change: int, length: int, *, is_one: bool) -> str:
    """In which pass of the repeated time it fires."""
    in_first, in_second = (
        trigger.count_micros(begin * SECOND - 1, (begin + length) * SECOND - 1) for begin in (change - length, change)
    )
    fires = "it fires" if is_one else "they fire"
    if in_first and in_second:
        return f"{fires} both times"
    if in_first:
        return f"{fires} the first time"
    return f"{fires} the second time" if in_second else f"{'it is' if is_one else 'they are'} out of bounds"
