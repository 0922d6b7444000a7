"""Listening: which schedules want to hear of which events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noonmark.core.filters.index import NONE, Discriminator, discriminator, is_fields
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import EventTrigger
from noonmark.stores.sql.row_checks import FURTHEST

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import ScheduleState
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

COLUMNS = ("event_type", "tenant", "schedule", "fields", "wanted")
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
# From each to the next of a type, likewise: they are few beside those who listen.
FIELDS = """
    WITH RECURSIVE one(tenant, event_type, fields) AS (
        SELECT c0, c1, c2 FROM ROWS(text, text, text) AS j
        UNION ALL
        SELECT tenant, event_type, (
            SELECT event_listeners.fields FROM event_listeners
            WHERE event_listeners.tenant = one.tenant AND event_listeners.event_type = one.event_type
            AND event_listeners.fields > one.fields ORDER BY event_listeners.fields LIMIT 1
        ) FROM one WHERE fields IS NOT NULL
    )
    SELECT event_type, fields FROM one WHERE fields <> ''
"""
LISTENERS = f"""
    SELECT c0, (SELECT group_concat(schedule) FROM (
        SELECT schedule FROM event_listeners
        WHERE tenant = c1 AND event_type = c2 AND fields = c3 AND wanted = c4 AND schedule > c5
        AND schedule <= {FURTHEST} ORDER BY schedule LIMIT ?
    ) AS first_ones) FROM ROWS(bigint, text, text, text, text, bigint) AS j
"""  # noqa: S608 - our own text
Heard = tuple[str, str]
"""A tenant, and a type of event."""


class EventQuestion(NamedTuple):
    """Who is looked for: those who listen for a type of event with this discriminator, beyond a schedule."""

    event_type: str
    own: Discriminator
    after: int


def heard(session: Session, among: Collection[Heard]) -> set[Heard]:
    """Those of some types for which somebody of the tenant listens."""
    if not among:
        return set()
    return {(tenant, event_type) for tenant, event_type, found in session.query(HEARD, list(among)) if found}


def fields_of(session: Session, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
    """For each of some types of event, the fields of all discriminators that those who listen for it have."""
    found: dict[str, list[str]] = {one: [] for one in types}
    for event_type, fields in session.query(FIELDS, [(tenant, one, NONE.fields) for one in types]):
        if is_fields(fields):  # else it is damaged, and no event has such fields
            found[event_type].append(fields)
    return found


def listeners(session: Session, tenant: str, asked: Sequence[EventQuestion], limit: int) -> list[list[int]]:
    """For each, the keys of the first schedules that listen so."""
    rows = [(place, tenant, one.event_type, *one.own, one.after) for place, one in enumerate(asked)]
    found: list[list[int]] = [[] for _ in asked]
    for place, keys in session.query(LISTENERS, limit, rows):
        found[place] = sorted(int(key) for key in keys.split(",")) if keys else []
    return found


def add_all(uow: UnitOfWork, created: Sequence[tuple[ScheduleState, Schedule]]) -> None:
    """Remember which events new schedules listen for."""
    rows = [(name, one.owner.tenant, state.schedule, *own) for state, one in created for name, own in _heard_by(one)]
    if rows:
        uow.session.insert("event_listeners", COLUMNS, rows)


def listen(uow: UnitOfWork, state: ScheduleState, before: Schedule, after: Schedule) -> None:
    """Remember which events a schedule listens for from now on."""
    if before.declaration.trigger is not after.declaration.trigger or _heard_by(before) != _heard_by(after):
        uow.write()  # now, for the database forgets the discriminator of a trigger that changes: see `guards`
        uow.session.delete("event_listeners", "schedule", [state.schedule])
        add_all(uow, [(state, after)])


def _heard_by(schedule: Schedule) -> list[tuple[str, Discriminator]]:
    trigger = schedule.declaration.trigger
    if schedule.phase is SchedulePhase.DELETED or not isinstance(trigger, EventTrigger):
        return []
    own = discriminator(trigger.filters)
    return [(event_type, own) for event_type in trigger.event_types]
