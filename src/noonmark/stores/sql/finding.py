"""Finding what can be claimed. Each query reads a partial index in its order, and nothing that it does not return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.ports.records import NODE_LISTED

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session

IS_READY = "phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = {route}"
IS_LEASED = "lease_end IS NOT NULL AND occurrences.route = {route}"
FIRST_READY = f"(SELECT ready FROM occurrences WHERE {IS_READY.format(route='j.value')} ORDER BY ready LIMIT 1)"  # noqa: S608 - our own text
FIRST_LEASED = (
    f"(SELECT lease_end FROM occurrences WHERE {IS_LEASED.format(route='j.value')} ORDER BY lease_end LIMIT 1)"  # noqa: S608 - likewise
)
# A value for each row, not a condition: PostgreSQL might read all schedules to see which of them are missing.
STRAY = "(SELECT s.schedule FROM schedule_states AS s WHERE s.schedule = occurrences.schedule) IS NULL"
DUE_ROUTES = f"""
    SELECT value FROM EACH(text) AS j WHERE {FIRST_READY} <= ? UNION ALL
    SELECT value FROM EACH(text) AS j WHERE {FIRST_LEASED} <= ?
"""  # noqa: S608 - likewise
_NAMES = """
    nominal, id, key, schedule, version, phase, revision, origin, route, due, first_due, attempt, fence, reason, detail,
    missed_count, missed_first, missed_last, caught_up, losses, waiting_for, holds_slot, stop, deadline, payload, own,
    behind, ended
"""
SELECTED = _NAMES.replace(",", " ").split()
"""The columns after the time at which a row can be claimed; the version is that of its schedule."""
COLUMNS = _NAMES.replace("phase, revision", "occurrences.phase AS phase, occurrences.revision AS revision")
GATHERED = f"time, {_NAMES}"
READY = f"""
    SELECT ready AS time, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE occurrences.{IS_READY.format(route="?")} AND ready <= ? ORDER BY ready, nominal, key LIMIT ?
    /* quick: occurrences */
"""  # noqa: S608 - likewise
EXPIRED = f"""
    SELECT lease_end AS time, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE {IS_LEASED.format(route="?")} AND lease_end <= ? ORDER BY lease_end, nominal, key LIMIT ?
    /* quick: occurrences */
"""  # noqa: S608 - likewise
DUE = f"(SELECT * FROM ({READY}) AS ready_ones UNION ALL SELECT * FROM ({EXPIRED}) AS expired_ones)"  # noqa: S608 - likewise
ONE = f"""
    SELECT 0, {COLUMNS} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE id = ? AND route IN EACH(text)
    AND ((occurrences.phase = 'pending' AND held = 0 AND ready <= ?) OR lease_end <= ?) /* quick: occurrences */
"""  # noqa: S608 - likewise
# Each step finds the next route after the one before, so that the cost follows the routes and not the rows.
_ROUTES = """
    WITH RECURSIVE found(route) AS (
        SELECT min(route) FROM occurrences WHERE {condition}
        UNION ALL
        SELECT (SELECT min(route) FROM occurrences WHERE {condition} AND route > found.route)
        FROM found WHERE found.route IS NOT NULL
    )
    SELECT found.route, served_routes.seen FROM found LEFT JOIN served_routes ON served_routes.route = found.route
    WHERE found.route IS NOT NULL AND coalesce(served_routes.seen <= ? OR served_routes.seen > ?, TRUE)
"""
READY_ROUTES = _ROUTES.format(condition="phase = 'pending' AND held = 0 AND ready IS NOT NULL")
LEASED_ROUTES = _ROUTES.format(condition="lease_end IS NOT NULL")
_LACKING = """
    SELECT {time}, {columns} FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE {condition} AND {time} < ? AND {time} < ? - patience AND coalesce(CAST(? AS bigint) <= ? - patience, TRUE)
    ORDER BY {time}, nominal, key LIMIT ? /* quick: occurrences */
"""
LACKING_READY = _LACKING.format(
    time="ready",
    columns=COLUMNS,
    condition="occurrences.phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = ?",
)
LACKING_LEASED = _LACKING.format(time="lease_end", columns=COLUMNS, condition=IS_LEASED.format(route="?"))

Found = Sequence[Any]
"""When a row can be claimed, its nominal time, its id, its key, then the other columns."""


def due(session: Session, routes: Collection[str], *, now: Micros, until: Micros, limit: int) -> list[Found]:
    """The rows that a claim may take, in its order."""
    found: list[Found] = []
    for route in due_routes(session, routes, now=now, until=until):
        found += session.gather(GATHERED, DUE, route, until, limit, route, now, limit)
    return sorted(found, key=turn)[:limit]


def due_routes(session: Session, routes: Collection[str], *, now: Micros, until: Micros) -> set[str]:
    """The routes that have anything for a claim to take."""
    named = list(routes)
    return {route for (route,) in session.gather("value", f"({DUE_ROUTES})", named, until, named, now)}


def only_due(session: Session, one: str, routes: Collection[str], *, now: Micros, until: Micros) -> list[Found]:
    """One row, if a claim may take it."""
    return [*session.query(ONE, one, list(routes), until, now)]


def lacking(session: Session, *, now: Micros, limit: int) -> list[Found]:
    """The rows that nobody could serve for as long as their schedules have patience, in the order of a claim."""
    latest = now - MIN_PATIENCE
    found: list[Found] = []
    for routes, rows in ((READY_ROUTES, LACKING_READY), (LEASED_ROUTES, LACKING_LEASED)):
        for route, seen in session.query(routes, latest, now + NODE_LISTED):
            if isinstance(route, str):
                served = seen if type(seen) is int and seen <= latest else None
                found += session.query(rows, route, latest, now, served, now, limit)
    return sorted(found, key=turn)[:limit]


def turn(columns: Found) -> tuple[int, int, int]:
    """Where a row stands in the order of a claim.

    By key in the end: what was planned together lies together, so that a batch touches few pages.
    """
    time, nominal, _, key = columns[:4]
    return (time if isinstance(time, int) else 0), (nominal if isinstance(nominal, int) else 0), key
