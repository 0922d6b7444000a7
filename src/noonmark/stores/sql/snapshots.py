"""Schedules as callers and planning read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.ports.records import StoredSchedule
from noonmark.stores.rules.snapshots import counters, of_sound, readable
from noonmark.stores.sql.row_checks import FURTHEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import ScheduleState
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

BY_ID = "SELECT key FROM schedules WHERE tenant = ? AND schedule_id = ? AND is_listed = 1"
DELETED_BY_ID = """
    SELECT key FROM schedules WHERE tenant = ? AND schedule_id = ? AND is_listed = 0
    ORDER BY deleted DESC, key DESC LIMIT 1
"""
BY_UID = "SELECT schedule FROM schedule_states WHERE uid = ?"
BY_NAME = """
    SELECT key FROM schedules CROSS JOIN schedule_states ON schedule = key
    WHERE tenant = ? AND username = ? AND name = ? AND is_listed = 1 ORDER BY created, uid LIMIT 1
"""
_NEXT_DUE = """
    SELECT schedule, min(due), min(CASE WHEN origin = 'trigger' OR substr(origin, 1, 6) = 'event:' THEN due END)
    FROM occurrences
    WHERE schedule IN EACH(bigint) AND ended IS NULL AND (phase = 'claimed' OR phase = 'pending' AND held = 0
    AND ready IS NOT NULL AND (ready <= ? OR waiting_for IS NULL)) GROUP BY schedule
"""
PLANNABLE = """
    SELECT * FROM schedule_states
    WHERE phase = 'active' AND plan_at IS NOT NULL AND fault IS NULL AND plan_at <= ? ORDER BY plan_at, uid LIMIT ?
"""
_ROUTES = """
    WITH RECURSIVE found(route) AS (
        SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ?
        UNION ALL
        SELECT (SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ? AND route > found.route)
        FROM found WHERE found.route IS NOT NULL
    )
    SELECT route FROM found WHERE route IS NOT NULL
"""


def kept(uow: UnitOfWork, query: str, *parameters: str) -> StoredSchedule | None:
    """The schedule that a query finds, as callers read it."""
    found = uow.session.query(query, *parameters)
    states = uow.states_of(found[0]) if found else []
    if found and not states:
        raise StoreUnavailable(f"the stored state of schedule {parameters[-1]} is not there; noonmark doctor says more")
    if not states:
        return None
    [state] = states
    return told(uow, [(state, readable(uow, state))])[0]


def told(uow: UnitOfWork, known: Sequence[tuple[ScheduleState, Schedule]]) -> list[StoredSchedule]:
    """Schedules as callers read them."""
    keys = [state.schedule for state, _ in known]
    found = uow.session.query(_NEXT_DUE, keys, uow.now())
    next_due = {key: (_time(due), _time(own)) for key, due, own in found}
    times = [next_due.get(key, (None, None)) for key in keys]
    return [
        StoredSchedule(schedule=schedule, counters=counters(state), next_due=due, next_own=own)
        for (state, schedule), (due, own) in zip(known, times, strict=True)
    ]


def _time(value: object) -> Micros | None:
    """A time, unless it is damaged."""
    return value if type(value) is int and abs(value) <= FURTHEST else None


def plannable(uow: UnitOfWork, now: Micros, limit: int) -> tuple[list[Snapshot], dict[int, str]]:
    """Schedules whose time to plan has come, and what is wrong with those that cannot be read."""
    return of_sound(uow, uow.states_in(PLANNABLE, now, limit))


def routes(session: Session, source: str) -> list[str]:
    """The routes of the schedules from a source, each once."""
    return [route for (route,) in session.query(_ROUTES, source, source)]
