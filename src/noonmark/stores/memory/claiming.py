"""Claims: which rows one may take, in which order, and what a lease makes of a row."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from noonmark.core.admission import Claim
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import lost_run
from noonmark.core.turns import rounds
from noonmark.core.values import altered
from noonmark.ports.records import Backlog
from noonmark.stores.memory.agenda import Agenda, take

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from noonmark.core.instants import Micros
    from noonmark.ports.records import Shares
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row


def only_due(ledger: Ledger, one: str, routes: AbstractSet[str], *, now: Micros, until: Micros) -> list[Row]:
    """One row, if a claim may take it."""
    row = ledger.rows.get(one)
    is_due = row is not None and row.occurrence.route in routes and ledger.is_due(row, now=now, until=until)
    return [row] if row is not None and is_due else []


def due(ledger: Ledger, routes: AbstractSet[str], *, now: Micros, until: Micros, limit: int) -> list[Row]:
    """The rows that a claim may take, in its order; they are in no agenda until they are leased."""
    agendas = [(ledger.leases[route], now) for route in routes & ledger.leases.keys()]
    for route in routes & ledger.ready.keys():
        agendas += [(line, until) for line in ledger.ready[route].due(until).values()]
    return [ledger.rows[one] for one in take(agendas, limit)]


def due_in_turn(
    ledger: Ledger, routes: AbstractSet[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Row]:
    """The same, owner by owner."""
    lines: defaultdict[int, list[tuple[Agenda[str], Micros]]] = defaultdict(list)
    expired = take([(ledger.leases[route], now) for route in routes & ledger.leases.keys()], sys.maxsize)
    freed: defaultdict[int, list[Row]] = defaultdict(list)
    for row in [ledger.rows[one] for one in expired]:
        freed[row.sheet.owner].append(row)
    for owner, rows in freed.items():
        line: Agenda[str] = Agenda()
        for row in rows:
            line.put(row.occurrence.id, row.lease_end or 0, row.occurrence.nominal)
        lines[owner].append((line, now))
    for route in routes & ledger.ready.keys():
        for owner, line in ledger.ready[route].due(until).items():
            lines[owner].append((line, until))
    after = -1 if shares.after is None else shares.after.number
    besides = {one.number for one in shares.besides}
    ring = sorted(lines.keys() - besides, key=lambda owner: (owner <= after, owner))
    taken = [list(take(lines[owner], shares.each)) for owner in ring[:limit]]
    chosen = [ledger.rows[one] for one in rounds(taken, limit)]
    # To take is to remove: what is not leased now goes back where it was.
    given = {row.occurrence.id for row in chosen}
    left = [ledger.rows[one] for keys in taken for one in keys if one not in given]
    for row in [*left, *(row for rows in freed.values() for row in rows if row.occurrence.id not in given)]:
        ledger.file(row)
    return chosen


def backlog(ledger: Ledger, *, now: Micros, limit: int) -> Backlog:
    """How much is due and not claimed, and how much waits."""
    found: list[str] = []
    for agenda in ledger.leases.values():
        found += agenda.some(now, limit - len(found))
    for lines in ledger.ready.values():
        for line in lines.due(now).values():
            found += line.some(now, limit - len(found))
    rows = (ledger.rows[one] for one in ledger.in_line)
    waiting = (row for row in rows if row.ready is None or row.ready > now)
    return Backlog(
        schedules=len({ledger.rows[one].occurrence.uid for one in found}),
        due=len(found),
        waiting=sum(1 for _ in islice(waiting, limit)),
    )


def lease(ledger: Ledger, row: Row, node: str, *, now: Micros, until: Micros) -> Claim:
    """Lease a row; a delivery that was lost with its node is kept as a run."""
    one = row.occurrence
    lost = one.phase is Phase.DISPATCHING
    if lost:
        row.keep_run(lost_run(one, now=now))
    row.occurrence = altered(
        one,
        phase=Phase.CLAIMED,
        fence=one.fence + 1,
        losses=one.losses + lost,
        attempt=one.attempt - lost,
        node=node,
        started=None,
    )
    row.lease_end = until
    ledger.file(row)
    schedule = ledger.sheet_of(row).schedule
    return Claim(occurrence=row.occurrence, schedule=schedule, claimed=now, found_in=one.phase)
