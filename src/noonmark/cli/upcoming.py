"""What a trigger will do: its next fires, its sentence and its traps."""

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
    """The fires after an instant, fewer than the `count` asked for when the trigger ends; `zone` is its own."""

    text: str
    warnings: list[str]
    fires: list[datetime]
    after: datetime
    count: int
    zone: str

    def to_document(self) -> dict[str, Any]:
        """The preview as JSON shows it."""
        times = [to_text(to_micros(fire)) for fire in self.fires]
        return {"fires": times, "description": self.text, "warnings": self.warnings}


def look_ahead(trigger: Trigger, *, after: datetime, count: int) -> Upcoming:
    """Ask the trigger; of one that waits for events no times are asked."""
    asked = 0 if isinstance(trigger, EventTrigger) else count
    description = describe(trigger, now=after)
    return Upcoming(
        text=description.text,
        warnings=description.warnings,
        fires=fires(trigger, after, asked),
        after=after,
        count=asked,
        zone=trigger.timezone if isinstance(trigger, WallTrigger) else "UTC",
    )
