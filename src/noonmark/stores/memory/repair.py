"""Repair: the newest time that is stored, and putting right what a clock that was ahead has written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.core.values import altered
from noonmark.stores.memory import dependents
from noonmark.stores.memory.atomic import atomic

if TYPE_CHECKING:
    from collections.abc import Collection
    from threading import RLock

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.stores.memory.agenda import Agenda, Lines
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.nodes import Register
    from noonmark.stores.memory.rows import Row


def _mend_waiting(ledger: Ledger, row: Row, now: Micros, after: Micros) -> int:
    """Give a row that would wait for a false time another; says how many of its rules it met."""
    one, count = row.occurrence, 0
    if one.phase is Phase.PENDING and row.ready is not None:
        if row.ready > one.due and row.ready > after:
            row.ready, count = now, 1
        asked = one.origin != TRIGGER and one.attempt == 0 and one.due > after
        retried = one.attempt > 0 and one.due - LONGEST_RETRY > after
        if asked or retried:
            row.occurrence, row.ready, count = altered(one, due=now), now, count + 1
    elif row.lease_end is not None and one.due > after:
        row.occurrence, count = altered(one, due=now), 1
    if count:
        ledger.file(row)
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


class RepairVerbs:
    """Part of the memory store."""

    _ledger: Ledger
    _lock: RLock

    @atomic
    def newest_time(self, before: Micros | None = None) -> Micros | None:
        """The newest time that something was written."""
        ledger = self._ledger
        if before is not None:
            return self._newest_before(before)
        times = [ledger.newest_end, ledger.journal.newest_time(), *(one.seen for one in ledger.nodes.heard.values())]
        times += [one.last() for one in ledger.leases.values()]
        return max((time for time in times if time is not None), default=None)

    def _newest_before(self, before: Micros) -> Micros | None:
        """Asked once, when a node starts: it looks at everything."""
        ledger = self._ledger
        times = [one.seen for one in ledger.nodes.heard.values()]
        times += ledger.journal.times()
        for row in ledger.rows.values():
            times += [time for time in (row.occurrence.ended, row.lease_end) if time is not None]
        return max((time for time in times if time < before), default=None)

    @atomic
    def due_since(self, routes: Collection[str]) -> Micros | None:
        """Since when the first row can be claimed."""
        ledger, known = self._ledger, set(routes)
        agendas: list[Agenda[str] | Lines] = [ledger.ready[route] for route in known & ledger.ready.keys()]
        agendas += [ledger.leases[route] for route in known & ledger.leases.keys()]
        return min((first[0] for one in agendas if (first := one.first()) is not None), default=None)

    @atomic
    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        """Schedules that are accounted for beyond a time."""
        ledger = self._ledger
        found = [
            sheet
            for uid, sheet in sorted(ledger.sheets.items())
            if uid > after and sheet.watermark > until and sheet.schedule.phase is not SchedulePhase.DELETED
        ]
        return [ledger.snapshot(sheet, dependents.of_schedule(ledger, sheet), since=now) for sheet in found[:limit]]

    @atomic
    def mend(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        """Set back every time that lies too far ahead."""
        ledger, count = self._ledger, 0
        for row in list(ledger.rows.values()):
            count += _mend_waiting(ledger, row, now, after)
            ended = row.occurrence.ended
            if row.lease_end is not None and row.lease_end > after:
                row.lease_end = now + lease
                ledger.file(row)
            elif ended is not None and ended > after:
                row.occurrence = altered(row.occurrence, ended=now)
                ledger.by_age.put(row.occurrence.id, now)
            else:
                continue
            count += 1
        ledger.newest_end = ledger.by_age.last()
        for sheet in ledger.sheets.values():
            if sheet.plan_at is not None and sheet.plan_at > after and sheet.plan_at > sheet.watermark:
                sheet.plan_at = now
                ledger.file_plan(sheet)
                count += 1
        count += _mend_nodes(ledger.nodes, now, after, lease)
        return count + ledger.journal.mend(now=now, after=after)
