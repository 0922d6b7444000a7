"""Reading schedules: by their ids, and as planning sees them. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.plans import Gap, Snapshot
from noonmark.ports.records import NODE_LISTED, Counters, StoredSchedule
from noonmark.stores.sql import upstreams
from noonmark.stores.sql.records import PHASES, Unreadable, to_projection
from noonmark.stores.sql.row_checks import FURTHEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Projection
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import Row, ScheduleState
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Identity = tuple[str, str]

IDENTITIES = """
    SELECT j.c0 AS tenant, j.c1 AS schedule_id,
        (SELECT 1 FROM schedules WHERE tenant = j.c0 AND schedule_id = j.c1 AND is_listed = 1) AS is_taken,
        (SELECT 1 FROM dependencies WHERE tenant = j.c0 AND upstream_id = j.c1 LIMIT 1) AS is_followed
    FROM ROWS(text, text) AS j
"""
"""With EXISTS, PostgreSQL may read every dependency to look a few of them up."""
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
PROJECTIONS = """
    SELECT occurrences.* FROM occurrences
    WHERE schedule IN EACH(bigint) AND ended IS NULL AND origin = 'trigger' ORDER BY nominal, occurrences.key
"""
_BEATS = """
    SELECT NULL AS route, max(seen) AS seen FROM nodes WHERE seen <= ? UNION ALL
    SELECT route, seen FROM served_routes WHERE route IN EACH(text)
"""
_BEYOND = "schedule = ? AND origin = 'trigger' AND phase <> 'superseded' AND coalesce(missed_last, nominal) > ?"
_ROUTES = """
    WITH RECURSIVE found(route) AS (
        SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ?
        UNION ALL
        SELECT (SELECT min(route) FROM schedules WHERE is_listed = 1 AND source = ? AND route > found.route)
        FROM found WHERE found.route IS NOT NULL
    )
    SELECT route FROM found WHERE route IS NOT NULL
"""


def known(uow: UnitOfWork, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
    """Those of the tenants and schedule ids that are taken, and those that others depend on."""
    found = uow.session.gather("tenant, schedule_id, is_taken, is_followed", f"({IDENTITIES})", list(identities))
    taken = {(tenant, one) for tenant, one, is_taken, _ in found if is_taken}
    return taken, {(tenant, one) for tenant, one, _, is_followed in found if is_followed}


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
        StoredSchedule(schedule=schedule, counters=_counters(state), next_due=due, next_own=own)
        for (state, schedule), (due, own) in zip(known, times, strict=True)
    ]


def _time(value: object) -> Micros | None:
    """A time, unless it is damaged."""
    return value if type(value) is int and abs(value) <= FURTHEST else None


def by_uid(uow: UnitOfWork, uid: str) -> Snapshot | None:
    """A schedule as an edit reads it."""
    state = uow.read_states([uid]).get(uid)
    return None if state is None else snapshot(uow, state, readable(uow, state))


def snapshot(uow: UnitOfWork, state: ScheduleState, schedule: Schedule) -> Snapshot:
    """A schedule as planning reads it."""
    return _snapshots(uow, [(state, schedule)])[0]


def plannable(uow: UnitOfWork, now: Micros, limit: int) -> tuple[list[Snapshot], dict[int, str]]:
    """Schedules whose time to plan has come, and what is wrong with those that cannot be read."""
    states = uow.states_in(PLANNABLE, now, limit)
    found = _read(uow, states)
    faults = {key: str(one) for key, one in found.items() if isinstance(one, Unreadable)}
    faults |= {state.schedule: state.fault for state in states if state.fault is not None}
    sound = [
        (state, one)
        for state in states
        if state.schedule not in faults and not isinstance(one := found[state.schedule], Unreadable)
    ]
    return _snapshots(uow, sound), faults


def since(uow: UnitOfWork, states: Sequence[ScheduleState], now: Micros) -> list[Snapshot]:
    """Some schedules, with what has an outcome after that time; those that cannot be read are left out."""
    found = _read(uow, states)
    sound = [
        (state, one)
        for state in states
        if state.fault is None and not isinstance(one := found[state.schedule], Unreadable)
    ]
    return _snapshots(uow, sound, since=now)


def readable(uow: UnitOfWork, state: ScheduleState) -> Schedule:
    """The schedule of a sheet; whoever asks for one that cannot be read is told which it is."""
    try:
        return uow.schedule_of(state)
    except Unreadable as error:
        raise StoreUnavailable(f"the stored record of schedule {state.uid} is damaged: {error}") from None


def routes(session: Session, source: str) -> list[str]:
    """The routes of the schedules from a source, each once."""
    return [route for (route,) in session.query(_ROUTES, source, source)]


def _read(uow: UnitOfWork, states: Sequence[ScheduleState]) -> dict[int, Schedule | Unreadable]:
    return uow.schedule_cache.read(uow.session, {state.schedule: state.version for state in states})


def _snapshots(
    uow: UnitOfWork, found: Iterable[tuple[ScheduleState, Schedule]], *, since: Micros | None = None
) -> list[Snapshot]:
    known = list(found)
    beyond = {state.schedule: _beyond(uow, state, since) for state, _ in known}
    projections: dict[int, list[Projection]] = {}
    for row in uow.rows_in(PROJECTIONS, [state.schedule for state, _ in known]):
        if row.is_projection:
            projections.setdefault(row.schedule, []).append(to_projection(row))
    followers = [(state, schedule) for state, schedule in known if schedule.declaration.trigger is None]
    read = upstreams.read(uow, [(state, schedule, None) for state, schedule in followers]) if followers else []
    standings = {state.schedule: one for (state, _), one in zip(followers, read, strict=True)}
    beats = _Beats(uow, {schedule.declaration.target.route for _, schedule in known})
    return [
        Snapshot(
            schedule=schedule,
            watermark=state.watermark,
            projections=tuple(projections.get(state.schedule, ())),
            admitted=state.newest,
            runs=state.admitted,
            beyond=tuple(sorted((row.nominal, row.missed_last or row.nominal) for row in beyond[state.schedule])),
            gaps=() if since is None else tuple(_gaps(beyond[state.schedule])),
            exhausted=state.exhausted == 1,
            unserved=beats.lack(schedule.declaration.target.route, state.patience),
            upstreams=standings.get(state.schedule),
        )
        for state, schedule in known
    ]


def _beyond(uow: UnitOfWork, state: ScheduleState, since: Micros | None) -> list[Row]:
    """What was admitted or has ended after the watermark, or after that time; there is hardly ever anything."""
    after = state.watermark if since is None else min(since, state.watermark)
    if state.newest is None or state.newest <= after:
        return []
    return [row for row in uow.find(_BEYOND, state.schedule, after) if not row.is_projection]


def _gaps(rows: Iterable[Row]) -> Iterator[Gap]:
    for row in rows:
        if row.missed_last is not None:
            yield Gap(id=row.id, first=row.nominal, last=row.missed_last, count=row.missed_count)


class _Beats:
    """When nodes were last heard of, and which routes they served."""

    def __init__(self, uow: UnitOfWork, routes: Collection[str]) -> None:
        self._now = uow.now()
        # A beat from the future is damaged, or of a clock that was wrong: it says nothing about now.
        latest = self._now + NODE_LISTED
        found = uow.session.gather("route, seen", f"({_BEATS})", latest, list(routes))
        self._seen: dict[str | None, Micros] = {
            route: seen for route, seen in found if type(seen) is int and seen <= latest
        }
        self._newest = self._seen.pop(None, None)

    def lack(self, route: str, patience: Micros) -> bool:
        """Whether nodes are alive, but none of them has served a route for so long."""
        since = self._now - patience
        seen = self._seen.get(route)
        return self._newest is not None and self._newest > since and (seen is None or seen <= since)


def _counters(state: ScheduleState) -> Counters:
    return Counters(
        total=state.total,
        successful=state.successful,
        failed=state.failed,
        missed=state.missed,
        skipped=state.skipped,
        admitted=state.admitted,
        failures_in_row=state.failures_in_row,
        last_started=state.last_started,
        last_phase=None if state.last_phase is None else PHASES[state.last_phase],
    )
