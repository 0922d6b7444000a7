"""Triggers: when a schedule fires. Five kinds, one interface, no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import from_micros
from noonmark.core.triggers.calendar import CalendarTrigger
from noonmark.core.triggers.cron import CronTrigger
from noonmark.core.triggers.event import EventTrigger
from noonmark.core.triggers.interval import IntervalTrigger
from noonmark.core.triggers.once import OnceTrigger
from noonmark.core.triggers.parse import parse_trigger
from noonmark.core.triggers.trigger import Trigger, instant_argument

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
    found: list[datetime] = []
    instant: int | None = instant_argument("after", after)
    while len(found) < count and instant is not None:
        instant = trigger.next_micros(instant)
        if instant is not None:
            found.append(from_micros(instant))
    return found
