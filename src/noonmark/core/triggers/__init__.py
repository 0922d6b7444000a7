"""Triggers: when a schedule fires. Five kinds, one interface, no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidTrigger
from noonmark.core.instants import from_micros
from noonmark.core.json_values import shown
from noonmark.core.triggers.calendar import CalendarTrigger
from noonmark.core.triggers.cron import CronTrigger
from noonmark.core.triggers.event import EventTrigger
from noonmark.core.triggers.interval import IntervalTrigger
from noonmark.core.triggers.once import OnceTrigger
from noonmark.core.triggers.parse import parse_trigger
from noonmark.core.triggers.trigger import Trigger, instant_argument, trigger_argument

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "CalendarTrigger",
    "CronTrigger",
    "EventTrigger",
    "IntervalTrigger",
    "OnceTrigger",
    "Trigger",
    "fires",
    "parse_trigger",
]


def fires(trigger: Trigger, after: datetime, count: int) -> list[datetime]:
    """The next `count` nominal times strictly after an instant; fewer when the trigger ends."""
    count = _count_argument(count)
    times: list[datetime] = []
    instant: int | None = instant_argument("after", after)
    next_micros = trigger_argument(trigger).next_micros
    while len(times) < count and instant is not None:
        instant = next_micros(instant)
        if instant is not None:
            times.append(from_micros(instant))
    return times


def _count_argument(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InvalidTrigger(f"must be an integer from 0 on, not {shown(value)}", field="count")
