"""Warnings: what a trigger does that its author may not expect."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, EPOCH, MAX_INSTANT, SECOND, Micros
from noonmark.core.json_values import printable
from noonmark.core.triggers import CalendarTrigger, CronTrigger, EventTrigger
from noonmark.core.triggers.cron_expression import DAY_OF_MONTH, DAY_OF_WEEK, FIELDS, HOUR, MINUTE, MONTH, Field
from noonmark.core.triggers.recurrence import FIXED, MAX_GAP_SECONDS, WILDCARD, Gap
from noonmark.core.triggers.zones import Segment, load_zone

if TYPE_CHECKING:
    from noonmark.core.triggers import Trigger
    from noonmark.core.triggers.cron_expression import Expression
    from noonmark.core.triggers.wallclock import TimesOnDays

MAX_TIMES = 3
NEARLY = 0.85
"""The similarity above which an event type may be a typo of another: they differ in a letter or two."""
YEAR_SECONDS = 365 * DAY_SECONDS
STEP = re.compile(r"(\*|\w+)/(\d+)")
STEPPED = {
    FIELDS[0]: (60, "minute"),
    MINUTE: (60, "hour"),
    HOUR: (24, "day"),
    DAY_OF_MONTH: (0, "month"),
    MONTH: (12, "year"),
    DAY_OF_WEEK: (7, "week"),
}
"""How many steps of one fill the next larger unit; no step but 1 fills every month."""


def find_warnings(trigger: Trigger, since: Micros, *, is_present: bool) -> list[str]:
    """One sentence per trap, none for most triggers; dates within a year of `since`, which may not be the present."""
    warnings = [*_timeless_traps(trigger)]
    if isinstance(trigger, CronTrigger | CalendarTrigger):
        warnings += [
            f"{'on' if is_present else 'on days such as'} {trap}" for trap in _gap_traps(trigger, since // SECOND)
        ]
    return list(dict.fromkeys(warnings))


@lru_cache(maxsize=1_024)
def _timeless_traps(trigger: Trigger) -> tuple[str, ...]:
    """The traps that do not depend on the year; found once, since the same triggers are read again and again."""
    warnings: list[str] = []
    if isinstance(trigger, CronTrigger):
        for text, expression in zip(trigger.expressions, trigger.parsed, strict=True):
            warnings += _day_field_traps(text, expression)
            warnings += _step_traps(expression)
        if not trigger.key and any(expression.hashed for expression in trigger.parsed):
            warnings.append("H has no key to hash, so every trigger without one lands on the same time")
    if isinstance(trigger, EventTrigger):
        warnings += [trap for one in trigger.event_types if (trap := _fact_trap(one)) is not None]
    return tuple(warnings)


def _fact_trap(event_type: str) -> str | None:
    """A type that is almost a system event: misspelled, it waits for nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for those who wait for events

    from noonmark.core.system_events import SystemEvent  # noqa: PLC0415 - likewise

    fact_names = [str(one) for one in SystemEvent]
    meant = get_close_matches(event_type, fact_names, n=1, cutoff=NEARLY)
    if not meant or event_type in fact_names:
        return None
    return f"{printable(event_type)} is not an event that Noonmark emits, but {meant[0]} is"


def _day_field_traps(text: str, expression: Expression) -> list[str]:
    by_month, by_week = expression.texts[3], expression.texts[5]
    if expression.days.either:
        clause = f"the day of month ({by_month}) OR the day of week ({by_week})"
        return [f"{text!r} fires when {clause} matches, not only when both do; a calendar trigger can require both"]
    stepped = [part for part in (by_month, by_week) if part.startswith("*") and part != "*"]
    restricted = [part for part in (by_month, by_week) if part not in ("*", "?")]
    if stepped and len(restricted) > 1:
        clause = f"the day of month ({by_month}) AND the day of week ({by_week})"
        return [f"{text!r} fires only when {clause} match: a day field that begins with * never widens the other"]
    return []


def _step_traps(expression: Expression) -> list[str]:
    parts = [(field, part) for field, text in zip(FIELDS, expression.texts, strict=True) for part in text.split(",")]
    return [trap for field, part in parts if (trap := _step_trap(field, part)) is not None]


def _step_trap(field: Field, part: str) -> str | None:
    match = STEP.fullmatch(part)
    if match is None:
        return None
    start, step = field.numbers.get(match[1], field.low), int(match[2])
    size, unit = STEPPED[field]
    if step == 1 or (size and size % step == 0 and start - field.low < step):
        return None
    return f"{field.name} {part} does not mean every {step}: the count starts again each {unit}"


def _gap_traps(trigger: CronTrigger | CalendarTrigger, since: int) -> list[str]:
    warnings: list[str] = []
    zone = load_zone(trigger.timezone)
    second, until = since, min(since + YEAR_SECONDS, MAX_INSTANT // SECOND - DAY_SECONDS)
    while second < until:
        segment = zone.segment_at(second)
        if segment.gap and segment.start >= since and trigger.within_bounds(segment.start * SECOND):
            warnings += _known_gap_warnings(trigger, segment)
        second = segment.end
    return warnings


def gap_warnings(trigger: CronTrigger | CalendarTrigger, segment: Segment) -> list[str]:
    """What a jump of the clock at the start of a segment does to the fires, if anything."""
    return _fixed_trap(trigger, segment) + _wildcard_trap(trigger, segment)


@lru_cache(maxsize=1_024)
def _known_gap_warnings(trigger: CronTrigger | CalendarTrigger, segment: Segment) -> tuple[str, ...]:
    return tuple(gap_warnings(trigger, segment))


def _fixed_trap(trigger: CronTrigger | CalendarTrigger, segment: Segment) -> list[str]:
    """Fixed times that the jump swallows, and what becomes of them."""
    resumed = segment.start + segment.offset
    lost = sorted({wall for rule in trigger.fixed_rules for wall in matches(rule, resumed - segment.gap, resumed)})
    if not lost:
        return []
    if segment.gap > MAX_GAP_SECONDS or trigger.dst.over(FIXED).gap is Gap.SKIP:
        outcome = "nothing fires for it" if len(lost) == 1 else "nothing fires for them"
    elif any(rule.at_or_after(resumed) == resumed for rule in trigger.rules):
        outcome = f"covered by the fire at {clock(resumed)}"
    elif len(lost) == 1:
        outcome = f"it fires at {clock(resumed)} instead"
    else:
        outcome = f"they fire once, at {clock(resumed)}"
    return [f"{_gone(trigger, segment, lost)}: {outcome}"]


def _wildcard_trap(trigger: CronTrigger | CalendarTrigger, segment: Segment) -> list[str]:
    """A day on which a rule that follows real time has no time left at all."""
    resumed = segment.start + segment.offset
    stopped = resumed - segment.gap
    midnight = stopped - stopped % DAY_SECONDS
    for rule in trigger.rules:
        swallowed = rule.count(stopped, resumed)
        alone = swallowed and swallowed == rule.count(midnight, midnight + DAY_SECONDS)
        if alone and rule not in trigger.fixed_rules and trigger.dst.over(WILDCARD).gap is Gap.SKIP:
            return [f"{_gone(trigger, segment, matches(rule, stopped, resumed))}: nothing fires that day"]
    return []


def matches(rule: TimesOnDays, low: int, high: int) -> list[int]:
    """The first few wall-clock times that a rule names in a stretch."""
    matches: list[int] = []
    wall = rule.at_or_after(low)
    while wall is not None and wall < high and len(matches) <= MAX_TIMES:
        matches.append(wall)
        wall = rule.at_or_after(wall + 1)
    return matches


def _gone(trigger: CronTrigger | CalendarTrigger, segment: Segment, lost: list[int]) -> str:
    resumed = segment.start + segment.offset
    stopped = resumed - segment.gap
    times = listed(lost, "or")
    to_another_day = stopped // DAY_SECONDS != resumed // DAY_SECONDS
    jump = (
        f"the clock jumps from {clock(stopped)} to {f'{date_of(resumed)} ' if to_another_day else ''}{clock(resumed)}"
    )
    return f"{date_of(lost[0])} there is no {times} in {trigger.timezone} ({jump})"


def listed(walls: list[int], word: str) -> str:
    """The first few of some wall-clock times."""
    return f" {word} ".join(clock(wall) for wall in walls[:MAX_TIMES]) + (" .." if len(walls) > MAX_TIMES else "")


def clock(wall: int) -> str:
    """The time of day of a wall-clock second."""
    hour, rest = divmod(wall % DAY_SECONDS, 3600)
    minute, second = divmod(rest, 60)
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def date_of(wall: int) -> str:
    """The day of a wall-clock second."""
    return f"{EPOCH + timedelta(seconds=wall):%Y-%m-%d}"
