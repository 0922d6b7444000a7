"""Subscriptions in the tables: which schedules subscribe to which events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.filters.index import NONE, is_fields, known_before
from noonmark.stores.sql.row_checks import FURTHEST

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.stores.rules.unit_of_work import ListenerQuestion, Subscription, Topic
    from noonmark.stores.sql.session import Session

COLUMNS = ("event_type", "tenant", "schedule", "fields", "wanted", "narrow_fields", "narrow_wanted")
# A value for each, not a condition: PostgreSQL would read all listeners to see which of the pairs have one.
HEARD = """
    SELECT j.c0, j.c1, coalesce(
        (SELECT 1 FROM event_listeners WHERE tenant = j.c0 AND event_type = j.c1 LIMIT 1),
        (SELECT 1 FROM step_waits WHERE event_type = j.c1 AND tenant = j.c0 LIMIT 1)
    ) FROM ROWS(text, text) AS j
"""
# From each tenant to the next: there may be many listeners.
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
WAITING = "SELECT DISTINCT tenant FROM step_waits WHERE event_type = ?"
# From each field to the next of a type, likewise: they are few.
FIELDS = """
    WITH RECURSIVE one(tenant, event_type, fields) AS (
        SELECT c0, c1, c2 FROM ROWS(text, text, text) AS j
        UNION ALL
        SELECT tenant, event_type, (
            SELECT narrow_fields FROM event_listeners
            WHERE event_listeners.tenant = one.tenant AND event_listeners.event_type = one.event_type
            AND narrow_fields > one.fields ORDER BY narrow_fields LIMIT 1
        ) FROM one WHERE fields IS NOT NULL
    )
    SELECT event_type, fields FROM one WHERE fields <> ''
"""
LISTENERS = f"""
    SELECT c0, (SELECT group_concat(schedule) FROM (
        SELECT schedule FROM event_listeners
        WHERE tenant = c1 AND event_type = c2 AND narrow_fields = c3 AND narrow_wanted = c4 AND schedule > c5
        AND schedule <= {FURTHEST} ORDER BY schedule LIMIT ?
    ) AS first_ones) FROM ROWS(bigint, text, text, text, text, bigint) AS j
"""


def subscribed(session: Session, topics: Collection[Topic]) -> set[Topic]:
    """Those topics that a schedule of the tenant listens for, or a step of a workflow run waits for."""
    if not topics:
        return set()
    return {(tenant, event_type) for tenant, event_type, found in session.query(HEARD, list(topics)) if found}


def fields_of(session: Session, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
    """The fields of the discriminators of all listeners, for each event type."""
    by_type: dict[str, list[str]] = {one: [] for one in types}
    for event_type, fields in session.query(FIELDS, [(tenant, one, NONE.fields) for one in types]):
        if is_fields(fields):  # else it is damaged, and no event has such fields
            by_type[event_type].append(fields)
    return by_type


def listeners(session: Session, tenant: str, questions: Sequence[ListenerQuestion], limit: int) -> list[list[int]]:
    """The keys of the first schedules that each question is about."""
    rows = [(place, tenant, one.event_type, *one.own, one.after) for place, one in enumerate(questions)]
    listeners: list[list[int]] = [[] for _ in questions]
    for place, keys in session.query(LISTENERS, limit, rows):
        listeners[place] = sorted(int(key) for key in keys.split(",")) if keys else []
    return listeners


def add(session: Session, rows: Sequence[tuple[int, str, Subscription]]) -> None:
    """Store subscriptions of schedules, each with its key and tenant."""
    if rows:
        values = [(event_type, tenant, key, *known_before(own), *own) for key, tenant, (event_type, own) in rows]
        session.insert("event_listeners", COLUMNS, values)


def tenants(session: Session, event_type: str) -> list[str]:
    """The tenants in which a schedule listens for an event type, or a step of a workflow run waits for one."""
    listening = {tenant for tenant, found in session.query(LISTENING, event_type) if found}
    waiting = {tenant for (tenant,) in session.query(WAITING, event_type)}
    return sorted(tenant for tenant in listening | waiting if isinstance(tenant, str))
