"""The backlog: how much is due, and how much waits. Each query reads a partial index up to its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.records import Backlog
from noonmark.stores.sql.claims import IS_LEASED, IS_READY, LEASED_ROUTES, READY_ROUTES, due_routes

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session

ALWAYS = 2**62
"""Later than anything: no route was served after it."""
_SCHEDULES = "SELECT schedule FROM occurrences WHERE {condition} AND {time} <= ? ORDER BY {time} LIMIT ?"
READY = _SCHEDULES.format(condition=IS_READY.format(route="?"), time="ready")
EXPIRED = _SCHEDULES.format(condition=IS_LEASED.format(route="?"), time="lease_end")
WAITING = """
    SELECT count(*) FROM (
        SELECT * FROM (
            SELECT 1 FROM occurrences
            WHERE phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL
            ORDER BY schedule LIMIT ?
        ) AS queued
        UNION ALL SELECT * FROM (SELECT 1 FROM occurrences WHERE wanted IS NOT NULL ORDER BY wanted LIMIT ?) AS wanting
        UNION ALL SELECT * FROM (
            SELECT 1 FROM occurrences
            WHERE phase = 'pending' AND waiting_for = 'dependency_pending' AND coalesce(ready > ?, TRUE)
            ORDER BY schedule LIMIT ?
        ) AS awaiting
    ) AS waiting
"""


def count(session: Session, now: Micros, limit: int) -> Backlog:
    """How much is due and not claimed, and how much waits."""
    routes = {route for query in (READY_ROUTES, LEASED_ROUTES) for route, _ in session.query(query, ALWAYS, ALWAYS)}
    routes = {route for route in routes if isinstance(route, str)}
    schedules: set[int] = set()
    due = 0
    for route in due_routes(session, routes, now=now, until=now):
        for query in (READY, EXPIRED):
            found = session.gather("schedule", f"({query})", route, now, limit - due)
            schedules.update(schedule for (schedule,) in found)
            due += len(found)
    [(waiting,)] = session.query(WAITING, limit, limit, now, limit)
    return Backlog(schedules=len(schedules), due=due, waiting=min(waiting, limit))
