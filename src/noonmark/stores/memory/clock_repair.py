"""Clock repair: the newest time that is stored, and setting back what a clock that was ahead has written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.stores.rules import snapshots

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.stores.memory.nodes import Register
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row


def newest_time(uow: UnitOfWork, before: Micros | None) -> Micros | None:
    """The newest time that something was written, or the newest before another."""
    times = [one.seen for one in uow.nodes.heard.values()]
    if before is None:
        known = [uow.by_age.last(), uow.audit_log.newest_time(), *(one.last() for one in uow.leases.values())]
        return max([*times, *(time for time in known if time is not None)], default=None)
    # Asked once, when a node starts: this reads everything.
    times += uow.audit_log.times()
    for row in uow.rows.values():
        times += [time for time in (row.ended, row.lease_end) if time is not None]
    return max((time for time in times if time < before), default=None)


def planned_ahead(uow: UnitOfWork, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
    """Schedules that are accounted for beyond a time."""
    states = [
        entry.state
        for uid, entry in sorted(uow.entries.items())
        if uid > after and entry.state.watermark > until and entry.state.phase != SchedulePhase.DELETED
    ]
    found = [(state, uow.schedule_of(state)) for state in states[:limit]]
    return snapshots.snapshots(uow, found, since=now)


def mend(uow: UnitOfWork, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back every time that is too far ahead; returns how many."""
    count = 0
    for row in uow.rows.values():
        mended = _mend_waiting(row, now, after)
        if row.lease_end is not None and row.lease_end > after:
            row.lease_end = now + lease
            mended += 1
        elif row.ended is not None and row.ended > after:
            row.ended = now
            mended += 1
        if mended:
            uow.changed(row)
        count += mended
    for entry in uow.entries.values():
        state = entry.state
        if state.plan_at is not None and state.plan_at > after and state.plan_at > state.watermark:
            state.plan_at = now
            uow.changed_state(state)
            count += 1
    count += _mend_nodes(uow.nodes, now, after, lease)
    return count + uow.audit_log.mend(now=now, after=after)


def _mend_waiting(row: Row, now: Micros, after: Micros) -> int:
    """Set back the times of a row that would wait for a wrong time; returns how many rules applied."""
    count = 0
    if row.phase == Phase.PENDING and row.ready is not None:
        if row.ready > row.due and row.ready > after:
            row.ready, count = now, 1
        is_asked = row.origin != TRIGGER and row.attempt == 0 and row.due > after
        is_retry = row.attempt > 0 and row.due - LONGEST_RETRY > after
        if is_asked or is_retry:
            row.due = row.ready = now
            count += 1
    elif row.lease_end is not None and row.due > after:
        row.due, count = now, 1
    return count


def _mend_nodes(nodes: Register, now: Micros, after: Micros, lease: Micros) -> int:
    count = 0
    for name, heard in nodes.heard.items():
        if heard.seen > after:
            nodes.heard[name] = replace(heard, seen=now)
            count += 1
    for route, seen in nodes.served.items():
        if seen > after:
            nodes.served[route] = now
            count += 1
    if nodes.leadership is not None and nodes.leadership.until > after:
        nodes.leadership = replace(nodes.leadership, until=now + lease)
        count += 1
    return count
