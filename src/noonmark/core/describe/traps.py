"""Traps: what a trigger says that its author may not have meant."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, EPOCH, SECOND, Micros
from noonmark.core.triggers import CalendarTrigger, CronTrigger
from noonmark.core.triggers.dst import FIXED, Gap
from noonmark.core.triggers.fields import DAY_OF_MONTH, DAY_OF_WEEK, FIELDS, HOUR, MINUTE, MONTH, Field
from noonmark.core.triggers.recurrence import MAX_GAP_SECONDS
from noonmark.core.triggers.zones import Segment, load_zone

if TYPE_CHECKING:
    from noonmark.core.triggers import Trigger
    from noonmark.core.triggers.expression import Expression

YEAR_SECONDS = 365 * DAY_SECONDS
STEP = re.compile(r"(?:\*|\d+|H)/(\d+)")
STEPPED = {
    FIELDS[0]: (60, "minute"),
    MINUTE: (60, "hour"),
    HOUR: (24, "day"),
    DAY_OF_MONTH: (0, "month"),
    MONTH: (12, "year"),
    DAY_OF_WEEK: (7, "week"),
}
"""How many steps of one fill the next larger unit; no step but 1 fills every month."""


def traps(trigger: Trigger, since: Micros) -> list[str]:
    """One sentence per trap, none for most triggers."""
    found: list[str] = []
    if isinstance(trigger, CronTrigger):
        for text, expression in zip(trigger.expressions, trigger.parsed, strict=True):
            found += _day_field_traps(text, expression)
            found += _step_traps(expression)
        if not trigger.key and any(expression.hashed for expression in trigger.parsed):
            found.append("H has no key to hash, so every trigger without one lands on the same time")
    if isinstance(trigger, CronTrigger | CalendarTrigger):
        found += _gap_traps(trigger, since // SECOND)
    return list(dict.fromkeys(found))


def _day_field_traps(text: str, expression: Expression) -> list[str]:
    by_month, by_week = expression.texts[3], expression.texts[5]
    if expression.days.either:
        said = f"the day of month ({by_month}) OR the day of week ({by_week})"
        return [f"{text!r} fires when {said} matches, not only when both do; a calendar trigger can require both"]
    stepped = [part for part in (by_month, by_week) if part.startswith("*") and part != "*"]
    restricted = [part for part in (by_month, by_week) if part not in ("*", "?")]
    if stepped and len(restricted) > 1:
        said = f"the day of month ({by_month}) AND the day of week ({by_week})"
        return [f"{text!r} fires only when {said} match: a day field that begins with * never widens the other"]
    return []


def _step_traps(expression: Expression) -> list[str]:
    parts = [(field, part) for field, text in zip(FIELDS, expression.texts, strict=True) for part in text.split(",")]
    return [trap for field, part in parts if (trap := _step_trap(field, part)) is not None]


def _step_trap(field: Field, part: str) -> str | None:
    match = STEP.fullmatch(part)
    if match is None:
        return None
    step = int(match[1])
    size, unit = STEPPED[field]
    if step == 1 or (size and size % step == 0):
        return None
    return f"{field.name} {part} does not mean every {step}: the count starts again each {unit}"


def _gap_traps(trigger: CronTrigger | CalendarTrigger, since: int) -> list[str]:
    found: list[str] = []
    zone = load_zone(trigger.timezone)
    skips = trigger.dst.over(FIXED).gap is Gap.SKIP
    second = since
    while second < since + YEAR_SECONDS:
        segment = zone.segment_at(second)
        if segment.gap and segment.start >= since and trigger.within_bounds(segment.start * SECOND):
            found += _gap_trap(trigger, segment, skipped=skips or segment.gap > MAX_GAP_SECONDS)
        second = segment.end
    return found


def _gap_trap(trigger: CronTrigger | CalendarTrigger, segment: Segment, *, skipped: bool) -> list[str]:
    resumed = segment.start + segment.offset
    lost = [wall for rule in trigger.fixed_rules if (wall := rule.at_or_after(resumed - segment.gap)) is not None]
    lost = sorted(wall for wall in lost if wall < resumed)
    if not lost:
        return []
    outcome = "nothing fires for it" if skipped else f"it fires at {_clock(resumed)} instead"
    stopped = resumed - segment.gap
    to_another_day = stopped // DAY_SECONDS != resumed // DAY_SECONDS
    jump = (
        f"the clock jumps from {_clock(stopped)} to {f'{_date(resumed)} ' if to_another_day else ''}{_clock(resumed)}"
    )
    return [f"on {_date(lost[0])} there is no {_clock(lost[0])} in {trigger.timezone} ({jump}): {outcome}"]


def _clock(wall: int) -> str:
    hour, rest = divmod(wall % DAY_SECONDS, 3600)
    minute, second = divmod(rest, 60)
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _date(wall: int) -> str:
    return f"{EPOCH + timedelta(seconds=wall):%Y-%m-%d}"
