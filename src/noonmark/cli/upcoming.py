"""A preview of a trigger: its next fires, its description and its warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.describe import describe
from noonmark.core.instants import to_micros, to_text
from noonmark.core.triggers import EventTrigger, fires
from noonmark.core.triggers.recurrence import WallTrigger

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.triggers import Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """The fires after an instant: `count`, or fewer if the trigger ends. `zone` is the trigger's time zone."""

    text: str
    warnings: list[str]
    fires: list[datetime]
    after: datetime
    count: int
    zone: str

    def to_document(self) -> dict[str, Any]:
        """The preview as JSON."""
        times = [to_text(to_micros(fire)) for fire in self.fires]
        return {"fires": times, "description": self.text, "warnings": self.warnings}


def preview_trigger(trigger: Trigger, *, after: datetime, count: int) -> Upcoming:
    """Preview a trigger; one that waits for events has no fires."""
    if isinstance(trigger, EventTrigger):
        count = 0
    description = describe(trigger, now=after)
    return Upcoming(
        text=description.text,
        warnings=description.warnings,
        fires=fires(trigger, after, count),
        after=after,
        count=count,
        zone=trigger.timezone if isinstance(trigger, WallTrigger) else "UTC",
    )
