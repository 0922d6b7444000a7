"""Listening: which schedules want to hear of which events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Sheet
    from noonmark.stores.sql.session import Session

COLUMNS = ("event_type", "tenant", "schedule")
# A value for each, not a condition: PostgreSQL would read all listeners to see which of the pairs have one.
HEARD = """
    SELECT j.c0, j.c1, (SELECT 1 FROM event_listeners WHERE tenant = j.c0 AND event_type = j.c1 LIMIT 1)
    FROM ROWS(text, text) AS j
"""
# From each tenant to the next: there may be many listeners, and nobody is to read them all.
LISTENING = """
    WITH RECURSIVE one(tenant) AS (
        SELECT min(tenant) FROM event_listeners
        UNION ALL
        SELECT (SELECT min(event_listeners.tenant) FROM event_listeners WHERE event_listeners.tenant > one.tenant)
        FROM one WHERE one.tenant IS NOT NULL
    )
    SELECT tenant, (
        SELECT 1 FROM event_listeners WHERE event_listeners.tenant = one.tenant AND event_type = ? LIMIT 1
    ) FROM one WHERE tenant IS NOT NULL ORDER BY tenant
"""
Heard = tuple[str, str]
"""A tenant, and a type of event."""


def heard(session: Session, among: Collection[Heard]) -> set[Heard]:
    """Those of some types for which somebody of the tenant listens."""
    if not among:
        return set()
    return {(tenant, event_type) for tenant, event_type, found in session.query(HEARD, list(among)) if found}


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
