"""Listening: which schedules want to hear of which events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Sheet

COLUMNS = ("event_type", "tenant", "schedule")


def add_all(ledger: Ledger, created: Sequence[tuple[Sheet, Schedule]]) -> None:
    """Remember which events new schedules listen for."""
    rows = [(name, one.owner.tenant, sheet.schedule) for sheet, one in created for name in _heard_by(one)]
    if rows:
        ledger.session.insert("event_listeners", COLUMNS, rows)


def listen(ledger: Ledger, sheet: Sheet, before: Schedule, after: Schedule) -> None:
    """Remember which events a schedule listens for from now on."""
    if _heard_by(before) != _heard_by(after):
        ledger.session.delete("event_listeners", "schedule", [sheet.schedule])
        add_all(ledger, [(sheet, after)])


def _heard_by(schedule: Schedule) -> tuple[str, ...]:
    trigger = schedule.declaration.trigger
    if schedule.phase is SchedulePhase.DELETED or not isinstance(trigger, EventTrigger):
        return ()
    return trigger.event_types
