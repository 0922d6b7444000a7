"""Dependents: who depends on whom, and how they learn of what happens upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.causation import chain_after
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import is_used_up
from noonmark.ports.records import Graph
from noonmark.stores.sql.records import Unreadable, from_json, occurrence, to_json
from noonmark.stores.sql.row_checks import number

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import Row, ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

COLUMNS = ("schedule", "position", "tenant", "upstream_id")
_KEYS = """
    SELECT schedules.key FROM schedules WHERE schedule_id IN EACH(text) AND tenant = ? AND is_listed = 1
"""
# Only of the schedule that has the id now: one that was deleted under it is nobody's upstream any more.
DOWNSTREAM = """
    SELECT other.key, other.trigger_document IS NULL FROM schedules AS own
    CROSS JOIN dependencies ON dependencies.tenant = own.tenant AND upstream_id = own.schedule_id
    CROSS JOIN schedules AS other ON other.key = dependencies.schedule
    WHERE own.key = ? AND (own.is_listed = 1 OR NOT EXISTS (
        SELECT 1 FROM schedules AS newer
        WHERE newer.tenant = own.tenant AND newer.schedule_id = own.schedule_id AND newer.is_listed = 1
    )) ORDER BY other.key
"""
_RISE = """
    INSERT INTO dependency_graphs (tenant, version) VALUES (?, 1)
    ON CONFLICT (tenant) DO UPDATE SET version = dependency_graphs.version + 1
"""
_VERSION = "SELECT version FROM dependency_graphs WHERE tenant = ?"
GRAPH = """
    WITH RECURSIVE reached(own, position, id, upstream_id) AS (
        SELECT own.key, position, own.schedule_id, upstream_id FROM EACH(text) AS j
        CROSS JOIN schedules AS own ON own.tenant = ? AND own.schedule_id = j.value AND own.is_listed = 1
        LEFT JOIN dependencies ON dependencies.schedule = own.key
        UNION
        SELECT own.key, dependencies.position, own.schedule_id, dependencies.upstream_id FROM reached
        CROSS JOIN schedules AS own ON own.tenant = ? AND own.schedule_id = reached.upstream_id AND own.is_listed = 1
        LEFT JOIN dependencies ON dependencies.schedule = own.key
    )
    SELECT id, upstream_id FROM reached ORDER BY own, position
"""
_WAITING = """
    phase = 'pending' AND waiting_for = 'dependency_pending' AND schedule = ? AND (ready IS NULL OR ready > ?)
"""
AWAITING = f"""{_WAITING} AND (awaits_after IS NULL OR (
    CAST(? AS integer) = 1 AND nominal >= ? AND awaits_after < ?
)) ORDER BY nominal, id"""


def bind(uow: UnitOfWork, state: ScheduleState, before: Schedule | None, after: Schedule) -> None:
    """Remember what a schedule depends on from now on; whoever depends on it has news."""
    old, new = [] if before is None else _named(before), _named(after)
    if old != new:
        tenant = after.owner.tenant
        uow.write()
        uow.session.delete("dependencies", "schedule", [state.schedule])
        if new:
            rows = [(state.schedule, position, tenant, one) for position, one in enumerate(new)]
            uow.session.insert("dependencies", COLUMNS, rows)
        keys = uow.session.query(_KEYS, new, tenant)
        for upstream in uow.states_of([key for (key,) in keys]):
            upstream.followed = 1
            uow.changed_state(upstream)
        if set(old) != set(new):
            uow.session.execute(_RISE, tenant)
    tell(uow, state)


def is_ordered(uow: UnitOfWork, tenant: str, version: int | None) -> bool:
    """Whether what depends on what is still as a plan was checked against."""
    return version is None or _version(uow, tenant) == version


def graph(uow: UnitOfWork, tenant: str, schedule_ids: Collection[str]) -> Graph:
    """What some schedules depend on, directly and through others."""
    found: dict[str, tuple[str, ...]] = {}
    for one, upstream in uow.session.query(GRAPH, list(schedule_ids), tenant, tenant):
        found[one] = (*found.get(one, ()), *([] if upstream is None else [upstream]))
    return Graph(version=_version(uow, tenant), upstreams=found)


def note_end(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Tell whoever depends on a schedule that an occurrence of it has ended."""
    if state.followed and row.phase != Phase.SUPERSEDED:
        downstream = _downstream(uow, state)
        if downstream:
            accounted = [other.watermark + 1 for other, follows in downstream if follows]
            state.ended_at = max([uow.now(), *accounted, *([] if state.ended_at is None else [state.ended_at + 1])])
            if row.phase == Phase.COMPLETED:
                state.completed_at = state.ended_at
            if accounted:
                state.leads = _leads(uow, state, row)
            uow.changed_state(state)
    tell(uow, state, row, is_end=row.phase != Phase.SUPERSEDED)


def tell(uow: UnitOfWork, state: ScheduleState, row: Row | None = None, *, is_end: bool = False) -> None:
    """Whoever depends on a schedule has news: of one of its occurrences, or of itself."""
    if not state.followed:
        return
    now = uow.now()
    for other, follows in _downstream(uow, state):
        other.news += 1
        uow.changed_state(other)
        if follows:
            _follow_up(uow, other, is_end=is_end, now=now)
        elif row is None:
            wake_waiting(uow, other)
        else:
            last = row.nominal if row.missed_last is None else row.missed_last
            named = int(row.origin == TRIGGER)
            for waiting in uow.find(AWAITING, other.schedule, now, named, row.nominal, last):
                _wake(uow, waiting, now)


def wake_waiting(uow: UnitOfWork, state: ScheduleState) -> None:
    """Whatever waits for the upstreams of a schedule gets a time, now."""
    now = uow.now()
    for row in uow.find(f"{_WAITING} ORDER BY nominal, id", state.schedule, now):
        _wake(uow, row, now)


def _leads(uow: UnitOfWork, state: ScheduleState, row: Row) -> str | None:
    """The trail of what the end of a row sets off; a damaged record begins anew."""
    try:
        schedule = uow.schedule_of(state)
        one = occurrence(row, schedule.uid, schedule.schedule_id, from_json(row.payload, "payload"))
    except Unreadable:
        return None
    led = chain_after(one)
    return None if led is None else to_json(led.to_document())


def _wake(uow: UnitOfWork, row: Row, now: Micros) -> None:
    row.ready = now
    uow.woke = True
    uow.changed(row)


def _follow_up(uow: UnitOfWork, state: ScheduleState, *, is_end: bool, now: Micros) -> None:
    """Let the planner look whether a schedule without a trigger owes a fire now; an end may let it go on."""
    try:
        schedule = uow.schedule_of(state)
    except Unreadable as error:
        state.fault = state.fault or str(error)
        return
    if is_end and not is_used_up(schedule, state.admitted):
        state.exhausted = 0
        if state.phase == SchedulePhase.COMPLETED:
            state.phase, state.updated = SchedulePhase.ACTIVE, now
            state.version += 1
    if state.phase == SchedulePhase.ACTIVE:
        uow.woke = True
        state.plan_at = now if state.plan_at is None else min(state.plan_at, now)


def _downstream(uow: UnitOfWork, state: ScheduleState) -> list[tuple[ScheduleState, bool]]:
    """Who depends on a schedule, and whether that has no trigger of its own."""
    uow.write()
    found = uow.session.query(DOWNSTREAM, state.schedule)
    follows: dict[int, object] = dict(found)
    return [(other, follows[other.schedule] == 1) for other in uow.states_of([key for key, _ in found])]


def _version(uow: UnitOfWork, tenant: str) -> int:
    found = uow.session.query(_VERSION, tenant)
    return number(found[0][0], 0) if found else 0


def _named(schedule: Schedule) -> list[str]:
    if schedule.phase is SchedulePhase.DELETED:
        return []
    return [one.schedule_id for one in schedule.declaration.depends_on]
