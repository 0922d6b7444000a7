"""What was written lately, as far as times tell. Each query reads the end of an index, and names its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.changes import StoredChange

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session

_BY_OPERATION = """
    SELECT operation, notes.tenant, coalesce(username, caller), notes.schedule_id, max(noted) AS latest
    FROM notes LEFT JOIN schedule_states ON schedule_states.uid = notes.uid
    LEFT JOIN schedules ON schedules.key = schedule
    WHERE noted >= ? GROUP BY operation, notes.tenant, coalesce(username, caller), notes.schedule_id
    ORDER BY latest DESC LIMIT ?
"""
_OF_OCCURRENCES = """
    SELECT '{topic}', tenant, username, schedule_id, max({time}) AS latest
    FROM occurrences CROSS JOIN schedules ON schedules.key = schedule
    WHERE {time} >= ? AND {condition} GROUP BY tenant, username, schedule_id ORDER BY latest DESC LIMIT ?
"""
_EVENTS = """
    SELECT 'events', tenant, NULL, NULL, max(emitted)
    FROM (SELECT tenant, emitted FROM events WHERE emitted >= ? ORDER BY emitted DESC LIMIT ?) AS newest GROUP BY tenant
"""
_MESSAGES = """
    SELECT 'sessions', tenant, username, schedule_id, max(session_messages.created) AS latest
    FROM session_messages CROSS JOIN sessions ON sessions.key = session
    WHERE session_messages.created >= ? GROUP BY tenant, username, schedule_id ORDER BY latest DESC LIMIT ?
"""
_CALLS = """
    SELECT 'usage', tenant, username, schedule_id, max(called) AS latest FROM model_calls
    WHERE is_settled = 1 AND called >= ? GROUP BY tenant, username, schedule_id ORDER BY latest DESC LIMIT ?
"""
_APPROVALS = """
    SELECT 'approvals', tenant, NULL, NULL, max(requested) AS latest FROM approvals
    WHERE state = 'pending' AND requested >= ? GROUP BY tenant ORDER BY latest DESC LIMIT ?
"""
QUERIES = (
    _BY_OPERATION,
    _OF_OCCURRENCES.format(topic="occurrences", time="started", condition="lease_end IS NOT NULL"),
    _OF_OCCURRENCES.format(topic="runs", time="ended", condition="ended IS NOT NULL"),
    _EVENTS,
    _MESSAGES,
    _CALLS,
    _APPROVALS,
)


def recent(session: Session, since: Micros, limit: int) -> list[StoredChange]:
    """What was written since a time: at most `limit` changes of each kind, the newest. Damaged rows are left out."""
    rows = [row for query in QUERIES for row in session.query(query, since, limit)]
    return [
        StoredChange(kind=kind, tenant=tenant, user=user, schedule_id=schedule_id, at=at)
        for kind, tenant, user, schedule_id, at in rows
        if isinstance(kind, str)
        and isinstance(tenant, str)
        and isinstance(user, str | None)
        and isinstance(schedule_id, str | None)
        and type(at) is int
    ]
