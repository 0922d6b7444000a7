"""Clock repair: the newest time that is stored, and setting back what a clock that was ahead has written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import SchedulePhase
from noonmark.stores.rules import snapshots
from noonmark.stores.rules.clock_repair import repair_row, repair_state

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.stores.memory.nodes import NodeRegister
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def newest_time(uow: UnitOfWork, before: Micros | None) -> Micros | None:
    """The newest time that something was written, or the newest before another."""
    times = [one.seen for one in uow.nodes.nodes.values()]
    if before is None:
        newest = [uow.by_age.last(), uow.audit_log.newest_time(), *(one.last() for one in uow.leases.values())]
        return max([*times, *(time for time in newest if time is not None)], default=None)
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
    pairs = [(state, uow.schedule_of(state)) for state in states[:limit]]
    return snapshots.snapshots(uow, pairs, since=now)


def repair(uow: UnitOfWork, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back every time that is too far ahead; returns how many."""
    count = 0
    for row in uow.rows.values():
        mended = repair_row(row, now=now, after=after, lease=lease)
        if mended:
            uow.changed(row)
        count += mended
    for entry in uow.entries.values():
        if repair_state(entry.state, now=now, after=after):
            uow.changed_state(entry.state)
            count += 1
    count += _repair_nodes(uow.nodes, now, after, lease)
    return count + uow.audit_log.repair(now=now, after=after)


def _repair_nodes(nodes: NodeRegister, now: Micros, after: Micros, lease: Micros) -> int:
    count = 0
    for name, seen_node in nodes.nodes.items():
        if seen_node.seen > after:
            nodes.nodes[name] = replace(seen_node, seen=now)
            count += 1
    for route, seen in nodes.served.items():
        if seen > after:
            nodes.served[route] = now
            count += 1
    if nodes.leadership is not None and nodes.leadership.until > after:
        nodes.leadership = replace(nodes.leadership, until=now + lease)
        count += 1
    return count
