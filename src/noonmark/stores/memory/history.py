"""What has happened: what schedules do and did, and forgetting what is old."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from noonmark.ports.records import Activity
from noonmark.stores.memory import due_index
from noonmark.stores.memory.unit_of_work import DELIVERING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.memory.records import Row
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def activity(rows: Sequence[Row]) -> Activity:
    """What a schedule does at present, told from its rows."""
    ran = [row for row in rows if any(run.ended is not None for run in row.runs)]
    newest = max(ran, key=lambda row: (row.occurrence.nominal, row.occurrence.id), default=None)
    ended = [] if newest is None else [run for run in newest.runs if run.ended is not None]
    return Activity(
        delivering=tuple(sorted(row.occurrence.id for row in rows if row.occurrence.phase in DELIVERING)),
        last_run=ended[-1] if ended else None,
    )


def prune(uow: UnitOfWork, *, before: Micros, keep: int, limit: int) -> int:
    """Forget what is old, and what is too much."""
    forgotten = [uow.rows[one] for one in due_index.take([(uow.by_age, before - 1)], limit)]
    for row in forgotten:
        uow.forget(row)
    count = len(forgotten)
    while count < limit and (fullest := uow.by_count.first()) is not None and -fullest[0] > keep:
        ended = uow.states[fullest[2]].ended.values()
        excess = min(len(ended) - keep, limit - count)
        oldest = nsmallest(excess, ended, key=lambda row: (row.occurrence.nominal, row.occurrence.id))
        for row in oldest:
            uow.forget(row)
        count += len(oldest)
    return count
