"""Claims: which rows one may take, in which order, and what a lease makes of a row."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from noonmark.core.admission import Claim
from noonmark.core.fair_queue import rounds
from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import lost_run
from noonmark.ports.records import Backlog
from noonmark.stores.memory.due_index import DueIndex, take

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from noonmark.core.instants import Micros
    from noonmark.ports.records import Shares
    from noonmark.stores.memory.records import Row
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def only_due(uow: UnitOfWork, one: str, routes: AbstractSet[str], *, now: Micros, until: Micros) -> list[Row]:
    """One row, if a claim may take it."""
    row = uow.rows.get(one)
    is_due = row is not None and row.occurrence.route in routes and uow.is_due(row, now=now, until=until)
    return [row] if row is not None and is_due else []


def due(uow: UnitOfWork, routes: AbstractSet[str], *, now: Micros, until: Micros, limit: int) -> list[Row]:
    """The rows that a claim may take, in its order; they are in no agenda until they are leased."""
    agendas = [(uow.leases[route], now) for route in routes & uow.leases.keys()]
    for route in routes & uow.ready.keys():
        agendas += [(line, until) for line in uow.ready[route].due(until).values()]
    return [uow.rows[one] for one in take(agendas, limit)]


def due_in_turn(
    uow: UnitOfWork, routes: AbstractSet[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Row]:
    """The same, owner by owner."""
    lines: defaultdict[int, list[tuple[DueIndex[str], Micros]]] = defaultdict(list)
    expired = take([(uow.leases[route], now) for route in routes & uow.leases.keys()], sys.maxsize)
    freed: defaultdict[int, list[Row]] = defaultdict(list)
    for row in [uow.rows[one] for one in expired]:
        freed[row.state.owner].append(row)
    for owner, rows in freed.items():
        line: DueIndex[str] = DueIndex()
        for row in rows:
            line.put(row.occurrence.id, row.lease_end or 0, row.occurrence.nominal)
        lines[owner].append((line, now))
    for route in routes & uow.ready.keys():
        for owner, line in uow.ready[route].due(until).items():
            lines[owner].append((line, until))
    after = -1 if shares.after is None else shares.after.number
    besides = {one.number for one in shares.besides}
    ring = sorted(lines.keys() - besides, key=lambda owner: (owner <= after, owner))
    taken = [list(take(lines[owner], shares.each)) for owner in ring[:limit]]
    chosen = [uow.rows[one] for one in rounds(taken, limit)]
    # To take is to remove: what is not leased now goes back where it was.
    given = {row.occurrence.id for row in chosen}
    left = [uow.rows[one] for keys in taken for one in keys if one not in given]
    for row in [*left, *(row for rows in freed.values() for row in rows if row.occurrence.id not in given)]:
        uow.file(row)
    return chosen


def backlog(uow: UnitOfWork, *, now: Micros, limit: int) -> Backlog:
    """How much is due and not claimed, and how much waits."""
    found: list[str] = []
    for due_index in uow.leases.values():
        found += due_index.some(now, limit - len(found))
    for lines in uow.ready.values():
        for line in lines.due(now).values():
            found += line.some(now, limit - len(found))
    rows = (uow.rows[one] for one in uow.in_line)
    waiting = (row for row in rows if row.ready is None or row.ready > now)
    return Backlog(
        schedules=len({uow.rows[one].occurrence.uid for one in found}),
        due=len(found),
        waiting=sum(1 for _ in islice(waiting, limit)),
    )


def lease(uow: UnitOfWork, row: Row, node: str, *, now: Micros, until: Micros) -> Claim:
    """Lease a row; a delivery that was lost with its node is kept as a run."""
    one = row.occurrence
    lost = one.phase is Phase.DISPATCHING
    if lost:
        row.keep_run(lost_run(one, now=now))
    row.occurrence = evolve(
        one,
        phase=Phase.CLAIMED,
        fence=one.fence + 1,
        losses=one.losses + lost,
        attempt=one.attempt - lost,
        node=node,
        started=None,
    )
    row.lease_end = until
    uow.file(row)
    schedule = uow.state_of(row).schedule
    return Claim(occurrence=row.occurrence, schedule=schedule, claimed=now, found_in=one.phase)
