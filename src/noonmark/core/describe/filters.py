"""Event filters in words, and why an event does not match one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.filters.match import Matcher
from noonmark.core.json_values import printable

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.filters.match import Unmet
    from noonmark.core.triggers import EventTrigger


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
    found = "there is none" if unmet.is_missing else f"it is {_shown(unmet.found)}"
    return f"{printable(unmet.key)}: {found}, and the filter wants that it {_condition(unmet.condition)}"


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


def mismatch(wanted: EventTrigger | Matcher, event: Event) -> str | None:
    """What about an event is not as a trigger, or filters alone, want it; None when they match it."""
    if isinstance(wanted, Matcher):
        unmet = wanted.unmet(event.payload, event_type=event.event_type, source=event.source)
    elif event.event_type not in wanted.event_types:
        return f"event_type: it is {event.event_type}, and the trigger wants {' or '.join(wanted.event_types)}"
    elif not wanted.within_bounds(event.emitted):
        return "emitted_at: it is not between the start and the end of the trigger"
    else:
        unmet = wanted.unmet(event.event_type, event.payload, source=event.source)
    return None if unmet is None else unmet_words(unmet)
