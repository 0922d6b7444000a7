"""Repair: the newest time that is stored, and putting right what a clock that was ahead has written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.stores.memory import dependencies
from noonmark.stores.memory.atomic import atomic

if TYPE_CHECKING:
    from collections.abc import Collection
    from threading import RLock

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.stores.memory.due_index import DueIndex, WaitLines
    from noonmark.stores.memory.nodes import Register
    from noonmark.stores.memory.records import Row
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def _mend_waiting(uow: UnitOfWork, row: Row, now: Micros, after: Micros) -> int:
    """Give a row that would wait for a false time another; says how many of its rules it met."""
    one, count = row.occurrence, 0
    if one.phase is Phase.PENDING and row.ready is not None:
        if row.ready > one.due and row.ready > after:
            row.ready, count = now, 1
        asked = one.origin != TRIGGER and one.attempt == 0 and one.due > after
        retried = one.attempt > 0 and one.due - LONGEST_RETRY > after
        if asked or retried:
            row.occurrence, row.ready, count = evolve(one, due=now), now, count + 1
    elif row.lease_end is not None and one.due > after:
        row.occurrence, count = evolve(one, due=now), 1
    if count:
        uow.file(row)
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


class ClockRepairVerbs:
    """Part of the memory store."""

    _uow: UnitOfWork
    _lock: RLock

    @atomic
    def newest_time(self, before: Micros | None = None) -> Micros | None:
        """The newest time that something was written."""
        uow = self._uow
        if before is not None:
            return self._newest_before(before)
        times = [uow.newest_end, uow.journal.newest_time(), *(one.seen for one in uow.nodes.heard.values())]
        times += [one.last() for one in uow.leases.values()]
        return max((time for time in times if time is not None), default=None)

    def _newest_before(self, before: Micros) -> Micros | None:
        """Asked once, when a node starts: it looks at everything."""
        uow = self._uow
        times = [one.seen for one in uow.nodes.heard.values()]
        times += uow.journal.times()
        for row in uow.rows.values():
            times += [time for time in (row.occurrence.ended, row.lease_end) if time is not None]
        return max((time for time in times if time < before), default=None)

    @atomic
    def due_since(self, routes: Collection[str]) -> Micros | None:
        """Since when the first row can be claimed."""
        uow, known = self._uow, set(routes)
        agendas: list[DueIndex[str] | WaitLines] = [uow.ready[route] for route in known & uow.ready.keys()]
        agendas += [uow.leases[route] for route in known & uow.leases.keys()]
        return min((first[0] for one in agendas if (first := one.first()) is not None), default=None)

    @atomic
    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        """Schedules that are accounted for beyond a time."""
        uow = self._uow
        found = [
            state
            for uid, state in sorted(uow.states.items())
            if uid > after and state.watermark > until and state.schedule.phase is not SchedulePhase.DELETED
        ]
        return [uow.snapshot(state, dependencies.of_schedule(uow, state), since=now) for state in found[:limit]]

    @atomic
    def mend(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        """Set back every time that lies too far ahead."""
        uow, count = self._uow, 0
        for row in list(uow.rows.values()):
            count += _mend_waiting(uow, row, now, after)
            ended = row.occurrence.ended
            if row.lease_end is not None and row.lease_end > after:
                row.lease_end = now + lease
                uow.file(row)
            elif ended is not None and ended > after:
                row.occurrence = evolve(row.occurrence, ended=now)
                uow.by_age.put(row.occurrence.id, now)
            else:
                continue
            count += 1
        uow.newest_end = uow.by_age.last()
        for state in uow.states.values():
            if state.plan_at is not None and state.plan_at > after and state.plan_at > state.watermark:
                state.plan_at = now
                uow.file_plan(state)
                count += 1
        count += _mend_nodes(uow.nodes, now, after, lease)
        return count + uow.journal.mend(now=now, after=after)
