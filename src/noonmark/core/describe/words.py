"""Triggers and event filters in words, and why an event does not match a filter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.describe.wall_clock import calendar_words, expression_words
from noonmark.core.filters.match import Matcher
from noonmark.core.instants import SECOND, Micros, from_micros
from noonmark.core.json_values import printable
from noonmark.core.triggers import CalendarTrigger, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.filters.match import Unmet
    from noonmark.core.triggers import Trigger

MAX_SHOWN = 60
OPERATORS = {
    "prefix": "begins with",
    "suffix": "ends with",
    "contains": "contains",
    "equals": "is",
    "gt": "is greater than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
}


def filter_words(filters: dict[str, Any]) -> str:
    """` and <condition>` for each filter, or nothing."""
    return "".join(f" and {key} {_condition(value)}" for key, value in filters.items())


def unmet_words(unmet: Unmet) -> str:
    """Which filter an event does not pass, and what the event has there."""
    actual = "there is none" if unmet.is_missing else f"it is {_shown(unmet.found)}"
    return f"{printable(unmet.key)}: {actual}, and the filter wants that it {_condition(unmet.condition)}"


def _condition(value: object) -> str:
    if isinstance(value, dict):
        return " and ".join(_operator(name, operand) for name, operand in value.items())
    if isinstance(value, list | tuple):
        return f"is one of {_shown(value)}"
    return f"is {_shown(value)}"


def _operator(name: str, operand: object) -> str:
    if name == "exists":
        return "is there" if operand else "is not there"
    if name == "not":
        return f"not ({_condition(operand)})"
    return f"{OPERATORS[name]} {_shown(operand)}"


def _shown(value: object) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def mismatch(condition: EventTrigger | Matcher, event: Event) -> str | None:
    """Why an event does not match a trigger or filters; None if it does."""
    if isinstance(condition, Matcher):
        unmet = condition.unmet(event.payload, event_type=event.event_type, source=event.source)
    elif event.event_type not in condition.event_types:
        return f"event_type: it is {event.event_type}, and the trigger wants {' or '.join(condition.event_types)}"
    elif not condition.within_bounds(event.emitted):
        return "emitted_at: it is not between the start and the end of the trigger"
    else:
        unmet = condition.unmet(event.event_type, event.payload, source=event.source)
    return None if unmet is None else unmet_words(unmet)


UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))
MILLISECOND: Micros = 1_000
ALMOST_A_SECOND: Micros = 999_500
"""From here on, three digits are a second."""

SPOKEN = {
    ("gap", "after"): "made up for after a gap",
    ("gap", "skip"): "skipped in a gap",
    ("fold", "first"): "in the first pass of a repeated hour",
    ("fold", "second"): "in the second pass of a repeated hour",
    ("fold", "both"): "in both passes of a repeated hour",
}


def words(trigger: Trigger) -> str:
    """The whole sentence, bounds and jitter included."""
    parts = [_rule(trigger)]
    if not isinstance(trigger, OnceTrigger):
        parts += [f"from {instant_words(trigger.start)}"] if trigger.start is not None else []
        parts += [f"until {instant_words(trigger.end)}"] if trigger.end is not None else []
    if trigger.jitter:
        parts.append(f"up to {duration_words(trigger.jitter)} late (jitter)")
    return ", ".join(parts)


def instant_words(micros: Micros) -> str:
    """An instant as people read it; microseconds only where there are any."""
    return from_micros(micros).isoformat(sep=" ").replace("+00:00", " UTC")


def duration_words(micros: Micros) -> str:
    """A length of time as people say it: `1 hour 30 minutes`, `0.25 seconds`."""
    seconds, fraction = divmod(micros, SECOND)
    parts = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(_counted(f"{count:,}", unit))
    if seconds or fraction or not parts:
        parts.append(_counted(f"{seconds + fraction / SECOND:.6f}".rstrip("0").rstrip("."), "second"))
    return " ".join(parts)


def took_words(micros: Micros) -> str:
    """How long something took: `0.04 milliseconds`, `235 milliseconds`, `1.234 seconds`."""
    if 0 < micros < ALMOST_A_SECOND:
        return _counted(f"{micros / MILLISECOND:.3g}", "millisecond")
    return duration_words(max(0, micros) // MILLISECOND * MILLISECOND)


def _counted(count: str, unit: str) -> str:
    return f"{count} {unit}" if count == "1" else f"{count} {unit}s"


def _rule(trigger: Trigger) -> str:
    match trigger:
        case OnceTrigger(due=int(due)):
            return f"Once, at {instant_words(due)}"
        case OnceTrigger(delay=int(delay)):
            return f"Once, {duration_words(delay)} after it is created"
        case IntervalTrigger(every=every):
            spoken = duration_words(every)
            single = spoken.startswith("1 ") and spoken.count(" ") == 1
            return f"Every {spoken.removeprefix('1 ') if single else spoken}"
        case CronTrigger(parsed=parsed):
            first, *more = dict.fromkeys(expression_words(one) for one in parsed)
            return (
                "; or ".join([first, *(f"{text[0].lower()}{text[1:]}" for text in more)]) + f", {_zone_words(trigger)}"
            )
        case CalendarTrigger():
            return f"{calendar_words(trigger)}, {_zone_words(trigger)}"
        case EventTrigger(event_types=types, filters=filters):
            return f"When {' or '.join(types)} is emitted{filter_words(filters)}"
    raise AssertionError(trigger)  # pragma: no cover - there are five triggers


def _zone_words(trigger: CronTrigger | CalendarTrigger) -> str:
    zone = trigger.timezone if trigger.timezone == "UTC" else f"{trigger.timezone} time"
    dst = trigger.dst.to_document()
    return zone + "".join(f", {SPOKEN[half, value]}" for half, value in dst.items())
