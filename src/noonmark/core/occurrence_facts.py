"""What placeholders may ask of an occurrence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import to_text

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule


def occurrence_facts(schedule: Schedule, occurrence: Occurrence) -> dict[str, Any]:
    """The value of each name that `core.targets.placeholders` knows."""
    brought = occurrence.payload
    event = brought if kind_of(occurrence.origin) is OriginKind.EVENT else None
    return {
        "schedule_id": occurrence.schedule_id,
        "schedule_name": schedule.declaration.name or "",
        "occurrence_id": occurrence.id,
        "nominal_at": to_text(occurrence.nominal),
        "due_at": to_text(occurrence.due),
        "attempt": occurrence.attempt,
        "payload": brought if event is None else event["payload"],
        "event": event,
    }
