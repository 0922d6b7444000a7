"""What runs, is due, waits, comes next and is overdue."""

from __future__ import annotations

from heapq import merge
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

from noonmark.core.ids import carries_steps
from noonmark.core.lifecycle import Phase
from noonmark.ports.records import OccurrenceGroup, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.due_index import Entry
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

    Timed = tuple[Micros, Row]

MAX_READ = 1_000
"""How many rows of each kind one call counts at most."""


def workload(uow: UnitOfWork, *, now: Micros, limit: int, tenant: str | None) -> Workload:
    """The live occurrences, by what they do."""

    def group(timed: Iterable[Timed]) -> OccurrenceGroup:
        own = (pair for pair in timed if _is_shown(uow.schedule_of_row(pair[1]), tenant))
        listed = list(islice(own, MAX_READ + 1))
        first = sorted(listed[:MAX_READ], key=lambda pair: (pair[0], pair[1].key))
        return OccurrenceGroup(
            occurrences=[uow.occurrence_of(row) for _, row in first[:limit]],
            count=len(first),
            is_complete=len(listed) <= MAX_READ,
        )

    def rows(entries: Iterable[Entry[str]]) -> Iterator[Timed]:
        return ((time, uow.rows[key]) for time, _, key in entries)

    ready = list(islice(_after(merge(*(one.in_order() for one in uow.ready.values())), now), MAX_READ + limit))
    leased = [pair for index in uow.leases.values() for pair in rows(index.in_order())]
    deadlines = list(rows(uow.deadlines.in_order()))
    waiting = (uow.rows[key] for key in uow.waiting)
    dispatching = (row for _, row in leased if row.phase == Phase.DISPATCHING)
    accepted = (row for _, row in deadlines if row.phase == Phase.AWAITING_COMPLETION)
    return Workload(
        running=group((row.started or 0, row) for row in chain(dispatching, accepted)),
        due=group(
            chain(
                rows(takewhile(lambda entry: entry[0] <= now, merge(*(one.in_order() for one in uow.ready.values())))),
                (pair for pair in leased if pair[0] <= now and pair[1].phase == Phase.CLAIMED),
            )
        ),
        waiting=group((row.due, row) for row in waiting if not row.held and (row.ready is None or row.ready > now)),
        upcoming=group(pair for pair in rows(ready) if pair[1].waiting_for is None),
        overdue=group(takewhile(lambda pair: pair[0] <= now, deadlines)),
    )


def _is_shown(schedule: Schedule, tenant: str | None) -> bool:
    return tenant in (None, schedule.owner.tenant) and not carries_steps(schedule.schedule_id)


def _after(entries: Iterator[Entry[str]], now: Micros) -> Iterator[Entry[str]]:
    return (entry for entry in entries if entry[0] > now)
