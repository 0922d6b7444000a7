"""What has happened: occurrences and runs as callers read them, and pruning."""

from __future__ import annotations

from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.ids import TRIGGER, carries_steps
from noonmark.core.lifecycle import FAILURES, Phase
from noonmark.core.settlement import open_run
from noonmark.ports.records import Activity, FoundOccurrences
from noonmark.stores.memory import due_index
from noonmark.stores.rules.backfills import PREFIX, PhaseCount
from noonmark.stores.rules.records import DELIVERING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.settlement import Interim
    from noonmark.ports.records import OccurrenceFilter, PageKey
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row


def occurrences(
    uow: UnitOfWork, uid: str, limit: int | None, before: PageKey | None, phases: Collection[Phase]
) -> list[Occurrence]:
    """The occurrences of a schedule, newest nominal time first."""
    rows = [
        row
        for row in _rows(uow, uid)
        if (not phases or row.phase in phases) and (before is None or (row.nominal, row.id) < before)
    ]
    newest = nlargest(len(rows) if limit is None else limit, rows, key=lambda row: (row.nominal, row.id))
    return [uow.occurrence_of(row) for row in newest]


def search(
    uow: UnitOfWork, tenant: str, wanted: OccurrenceFilter, limit: int, before: PageKey | None
) -> FoundOccurrences:
    """The occurrences of a tenant that fit, latest time first; failures are found without reading the others."""
    rows: Iterable[Row] = uow.rows.values()
    if wanted.uid is not None:
        rows = _rows(uow, wanted.uid)
    elif wanted.phases and wanted.phases <= FAILURES:
        rows = uow.failures.values()
    matching = [row for row in rows if _fits(uow, row, tenant, wanted) and (before is None or _place(row) < before)]
    newest = nlargest(limit, matching, key=_place)
    return FoundOccurrences(
        occurrences=[uow.occurrence_of(row) for row in newest],
        after=_place(newest[-1]) if newest and len(matching) > limit else None,
    )


def _place(row: Row) -> PageKey:
    return (row.due if row.ended is None else row.ended, row.id)


def _fits(uow: UnitOfWork, row: Row, tenant: str, wanted: OccurrenceFilter) -> bool:
    time, schedule = _place(row)[0], uow.schedule_of_row(row)
    return (
        (not wanted.phases or row.phase in wanted.phases)
        and (not wanted.reasons or row.reason in wanted.reasons)
        and (wanted.since is None or time >= wanted.since)
        and (wanted.until is None or time <= wanted.until)
        and schedule.owner.tenant == tenant
        and not carries_steps(schedule.schedule_id)
        and wanted.user in (None, schedule.owner.user)
        and all(schedule.declaration.labels.get(name) == value for name, value in wanted.labels.items())
    )


def backfill_counts(uow: UnitOfWork, uid: str) -> list[PhaseCount]:
    """The occurrences of the backfills of a schedule, one by one."""
    return [
        PhaseCount(row.origin, row.phase, 1, row.nominal, row.nominal, row.first_due, row.held)
        for row in _rows(uow, uid)
        if row.origin.startswith(PREFIX)
    ]


def occurrences_at(uow: UnitOfWork, uid: str, time: Micros, limit: int) -> list[Occurrence]:
    """The occurrences of a schedule that stand for a time."""
    rows = list(_rows(uow, uid))
    exact = [row for row in rows if row.nominal == time]
    gaps = [row for row in rows if row.missed_last is not None and row.nominal < time <= row.missed_last]
    exact.sort(key=lambda row: (row.origin == TRIGGER, row.due, row.id), reverse=True)
    gaps.sort(key=lambda row: row.missed_last or 0)
    return [uow.occurrence_of(row) for row in (*exact[:limit], *gaps[:limit])]


def runs(uow: UnitOfWork, uid: str, limit: int | None, before: PageKey | None) -> list[Run]:
    """The runs of a schedule, newest start first."""
    runs = [
        run for row in _rows(uow, uid) for run in runs_of(uow, row) if before is None or (run.started, run.id) < before
    ]
    return nlargest(len(runs) if limit is None else limit, runs, key=lambda run: (run.started, run.id))


def runs_of(uow: UnitOfWork, row: Row) -> list[Run]:
    """The runs of a row: stored ones, and the one that goes on, if nothing of it is stored yet."""
    stored = uow.runs.get(row.key, ())
    if row.phase != Phase.DISPATCHING or any(run.id == f"{row.id}-{row.fence}" for run in stored):
        return list(stored)
    return [*stored, open_run(uow.occurrence_of(row), now=uow.now())]


def last_run(uow: UnitOfWork, row: Row) -> Run | None:
    """The last run of a row that has ended or was accepted, without its result."""
    is_accepted = row.phase == Phase.AWAITING_COMPLETION
    ended = [run for run in uow.runs.get(row.key, ()) if run.ended is not None or is_accepted]
    return evolve(ended[-1], result=None) if ended else None


def activity(uow: UnitOfWork, uid: str) -> Activity:
    """What a schedule does at present."""
    rows = list(_rows(uow, uid))
    ended = {row.key: [run for run in uow.runs.get(row.key, ()) if run.ended is not None] for row in rows}
    newest = max((row for row in rows if ended[row.key]), key=lambda row: (row.nominal, row.id), default=None)
    return Activity(
        delivering=tuple(sorted(row.id for row in rows if row.phase in DELIVERING or row.is_suspended)),
        last_run=None if newest is None else ended[newest.key][-1],
    )


def store_progress(uow: UnitOfWork, interims: Sequence[Interim]) -> list[bool]:
    """Store the output so far of deliveries that go on under the same fence."""
    answers = []
    for interim in interims:
        row = uow.rows.get(interim.occurrence.id)
        goes_on = row is not None and row.fence == interim.occurrence.fence and row.phase == Phase.DISPATCHING
        if row is not None and goes_on:
            uow.add_run(row, interim.run)
        answers.append(goes_on)
    return answers


def prune(uow: UnitOfWork, *, before: Micros, keep: int, limit: int) -> int:
    """Delete ended rows that are old, then those of schedules that have too many."""
    old = [uow.rows[one] for one in due_index.take([(uow.by_age, before - 1)], limit)]
    count = _delete(uow, old)
    uow.workflows.prune(before, limit)
    while count < limit and (fullest := uow.by_count.first()) is not None and -fullest[0] > keep:
        ended = uow.entries[fullest[2]].ended.values()
        excess = min(len(ended) - keep, limit - count)
        count += _delete(uow, nsmallest(excess, ended, key=lambda row: (row.nominal, row.id)))
    return count


def _delete(uow: UnitOfWork, rows: Sequence[Row]) -> int:
    for row in rows:
        uow.remove_row(row)
        uow.state_of(row).history -= 1
    return len(rows)


def _rows(uow: UnitOfWork, uid: str) -> Iterator[Row]:
    return uow.entries[uid].rows if uid in uow.entries else iter(())
