"""Claims: which rows a claim may take, and in which order."""

from __future__ import annotations

import sys
from collections import defaultdict
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from noonmark.core.admission import make_claim
from noonmark.core.fair_queue import rounds
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.ports.records import Backlog
from noonmark.stores.memory.due_index import DueIndex, take
from noonmark.stores.rules.admission import lease_row
from noonmark.stores.rules.records import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.ports.records import Shares
    from noonmark.stores.memory.due_index import WaitQueues
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row


def only_due(uow: UnitOfWork, occurrence_id: str, routes: AbstractSet[str], *, now: Micros, until: Micros) -> list[Row]:
    """One row, if a claim may take it."""
    row = uow.rows.get(occurrence_id)
    if row is None or row.route not in routes:
        return []
    if row.phase == Phase.PENDING:
        is_due = row.ready is not None and row.ready <= until and not row.held
    else:
        is_due = row.lease_end is not None and row.lease_end <= now
    return [row] if is_due else []


def due(uow: UnitOfWork, routes: AbstractSet[str], *, now: Micros, until: Micros, limit: int) -> list[Row]:
    """The rows that a claim may take, in its order; they are in no due index until they are leased."""
    indexes = [(uow.leases[route], now) for route in routes & uow.leases.keys()]
    for route in routes & uow.ready.keys():
        indexes += [(line, until) for line in uow.ready[route].due(until).values()]
    return [uow.rows[one] for one in take(indexes, limit)]


def due_in_turn(
    uow: UnitOfWork, routes: AbstractSet[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Row]:
    """The same, owner by owner."""
    lines: defaultdict[int, list[tuple[DueIndex[str], Micros]]] = defaultdict(list)
    expired = take([(uow.leases[route], now) for route in routes & uow.leases.keys()], sys.maxsize)
    freed: defaultdict[int, list[Row]] = defaultdict(list)
    for row in [uow.rows[one] for one in expired]:
        freed[row.owner].append(row)
    for owner, rows in freed.items():
        line: DueIndex[str] = DueIndex()
        for row in rows:
            line.put(row.id, row.lease_end or 0, row.nominal)
        lines[owner].append((line, now))
    for route in routes & uow.ready.keys():
        for owner, line in uow.ready[route].due(until).items():
            lines[owner].append((line, until))
    after = -1 if shares.after is None else shares.after.number
    besides = {one.number for one in shares.besides}
    ring = sorted(lines.keys() - besides, key=lambda owner: (owner <= after, owner))
    taken = [list(take(lines[owner], shares.each)) for owner in ring[:limit]]
    chosen = [uow.rows[one] for one in rounds(taken, limit)]
    # `take` removes: what is not leased now goes back.
    given = {row.id for row in chosen}
    left = [uow.rows[one] for keys in taken for one in keys if one not in given]
    for row in [*left, *(row for rows in freed.values() for row in rows if row.id not in given)]:
        uow.file(row)
    return chosen


def unserved(uow: UnitOfWork, *, now: Micros, limit: int) -> list[Row]:
    """The rows that could have been claimed for longer than their schedule has patience, but no node serves them."""
    indexes = [*_unserved(uow, uow.ready, now), *_unserved(uow, uow.leases, now)]
    rows = [uow.rows[one] for _, _, one in merge(*(index.until(now) for index in indexes))]
    return [row for row in rows if _lacks_target(uow, row, now)][:limit]


def lease(uow: UnitOfWork, row: Row, node: str, *, now: Micros, until: Micros) -> Claim:
    """Lease a row."""
    found_in = PHASES[row.phase]
    lease_row(uow, row, node, now=now, until=until)
    schedule = uow.schedule_of(uow.state_of(row))
    return make_claim(occurrence=uow.occurrence(row, schedule), schedule=schedule, claimed=now, found_in=found_in)


def backlog(uow: UnitOfWork, *, now: Micros, limit: int) -> Backlog:
    """How much is due and not claimed, and how much waits."""
    ids: list[str] = []
    for due_index in uow.leases.values():
        ids += due_index.some(now, limit - len(ids))
    for lines in uow.ready.values():
        for line in lines.due(now).values():
            ids += line.some(now, limit - len(ids))
    rows = (uow.rows[one] for one in uow.waiting)
    waiting = (row for row in rows if row.ready is None or row.ready > now)
    return Backlog(
        schedules=len({uow.rows[one].schedule for one in ids}),
        due=len(ids),
        waiting=sum(1 for _ in islice(waiting, limit)),
    )


def _unserved(
    uow: UnitOfWork, indexes: Mapping[str, DueIndex[str]] | Mapping[str, WaitQueues], now: Micros
) -> list[DueIndex[str] | WaitQueues]:
    """The due indexes of routes that no node serves: only those can hold rows that lack a target."""
    return [index for route, index in indexes.items() if not _is_served(uow, route, now - MIN_PATIENCE)]


def _is_served(uow: UnitOfWork, route: str, since: Micros) -> bool:
    seen = uow.nodes.served.get(route)
    return seen is not None and seen > since


def _lacks_target(uow: UnitOfWork, row: Row, now: Micros) -> bool:
    since = now - uow.state_of(row).patience
    time = row.ready if row.phase == Phase.PENDING else row.lease_end
    return time is not None and time < since and not _is_served(uow, row.route, since)
