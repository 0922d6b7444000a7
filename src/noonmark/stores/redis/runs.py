"""Runs as callers read them: stored ones, and those that go on, made from their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import open_run
from noonmark.ports.records import Activity
from noonmark.stores.redis.schema.schedules import RUNS
from noonmark.stores.rules.records import DELIVERING
from noonmark.stores.sql.reads.runs import MOST_DIGITS, to_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from noonmark.core.run import Run
    from noonmark.core.settlement import Interim
    from noonmark.ports.records import PageKey
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row, ScheduleState

_PLACES = [
    RUNS.columns.index(name)
    for name in ("occurrence_id", "fence", "attempt", "node", "started", "ended", "outcome", "result", "error",
                 "tokens", "cost")
]  # fmt: skip
_USAGE = RUNS.columns.index("usage")
_PAGE = 16
"""How many rows of a schedule are read at a time in search of one that ran."""


def of_schedule(uow: UnitOfWork, uid: str, limit: int | None, before: PageKey | None) -> list[Run]:
    """A schedule's runs, newest start first."""
    state = uow.load_states([uid]).get(uid)
    if state is None:
        return []
    until = None if before is None else (before[0],)
    # Of runs that started at the same time, the index has another order: all of the last such time are read.
    skipped = 0 if before is None else len(uow.runs.find_keys("of_schedule", (state.schedule,), prefix=until or ()))
    most = None if limit is None else limit + skipped
    keys = uow.runs.entries("of_schedule", (state.schedule,), until=until, limit=most, newest_first=True)
    if keys and len(keys) == most:
        keys += uow.runs.entries("of_schedule", (state.schedule,), prefix=keys[-1][:1])
    records = uow.runs.get_many(entry[2:] for entry in keys)
    going_on = [row for row in uow.live_rows(state) if row.phase == Phase.DISPATCHING]
    runs = [*map(_run, records.values()), *_going_on(uow, going_on)]
    runs = [run for run in runs if before is None or (run.started, run.id) < before]
    return sorted(runs, key=_order, reverse=True)[:limit]


def of_occurrence(uow: UnitOfWork, occurrence_id: str) -> list[Run]:
    """An occurrence's runs, newest start first."""
    row = uow.row(occurrence_id)
    return [] if row is None else _of_row(uow, row)


def last_of(uow: UnitOfWork, occurrence_ids: Sequence[str]) -> dict[str, Run]:
    """The last run of each of some occurrences that has ended or was accepted, without its result."""
    uow.load_rows(occurrence_ids)
    rows = [row for one in dict.fromkeys(occurrence_ids) if (row := uow.loaded_row(one)) is not None]
    last = {}
    for row, runs in zip(rows, _stored(uow, rows), strict=True):
        is_accepted = row.phase == Phase.AWAITING_COMPLETION
        last_run = next((run for run in reversed(runs) if run.ended is not None or is_accepted), None)
        if last_run is not None:
            last[row.id] = evolve(last_run, result=None)
    return last


def one(uow: UnitOfWork, run_id: str) -> tuple[str, Run] | None:
    """One run, and the uid of its schedule."""
    occurrence_id, _, number = run_id.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
    row = uow.row(occurrence_id) if is_number else None
    if row is None:
        return None
    return next(((uow.state_of(row).uid, run) for run in _of_row(uow, row) if run.id == run_id), None)


def activities(uow: UnitOfWork, uids: Sequence[str]) -> list[Activity]:
    """What each of some schedules does at present."""
    states = uow.load_states(uids)
    listed_states = [states[uid] for uid in dict.fromkeys(uids) if uid in states]
    live = uow.rows.find_each("live", [(state.schedule,) for state in listed_states])
    rows = uow.rows_of(key for keys in live for (key,) in keys)
    delivering: dict[int, list[str]] = {}
    for row in rows:
        if row.phase in DELIVERING or row.is_suspended:
            delivering.setdefault(row.schedule, []).append(row.id)
    # The first page of each schedule is read together.
    started = [(state.schedule,) for state in listed_states if state.last_started is not None]
    newest = uow.rows.find_each("history", started, limit=_PAGE, newest_first=True)
    _stored(uow, uow.rows_of(key for keys in newest for (key,) in keys))
    found = {
        state.uid: Activity(
            delivering=tuple(sorted(delivering.get(state.schedule, ()))), last_run=_last_run(uow, state)
        )
        for state in listed_states
    }
    return [found.get(uid, Activity(delivering=(), last_run=None)) for uid in uids]


def store_progress(uow: UnitOfWork, interims: Sequence[Interim]) -> list[bool]:
    """Store the output so far of deliveries that go on under the same fence."""
    uow.load_rows(one.occurrence.id for one in interims)
    answers = []
    for interim in interims:
        row = uow.loaded_row(interim.occurrence.id)
        goes_on = row is not None and row.fence == interim.occurrence.fence and row.phase == Phase.DISPATCHING
        if row is not None and goes_on:
            uow.add_run(row, interim.run)
        answers.append(goes_on)
    return answers


def _last_run(uow: UnitOfWork, state: ScheduleState) -> Run | None:
    """The last ended run of the newest occurrence of a schedule that has one."""
    if state.last_started is None:
        return None
    for rows in _pages(uow, state):
        for runs in _stored(uow, rows):
            ended = [run for run in runs if run.ended is not None]
            if ended:
                return ended[-1]
    return None


def _pages(uow: UnitOfWork, state: ScheduleState) -> Iterator[list[Row]]:
    """The rows of a schedule, newest nominal time first."""
    before: Values | None = None
    while True:
        page = uow.rows.entries("history", (state.schedule,), before=before, limit=_PAGE, newest_first=True)
        yield uow.rows_of(entry[-1] for entry in page)
        if len(page) < _PAGE:
            return
        before = page[-1]


def _stored(uow: UnitOfWork, rows: Sequence[Row]) -> list[list[Run]]:
    """The stored runs of each of some rows, in the order of their fences."""
    keys = uow.runs.find_each("of_occurrence", [(row.key,) for row in rows])
    records = uow.runs.get_many(key for of_one in keys for key in of_one)
    return [[_run(records[key]) for key in of_one if key in records] for of_one in keys]


def _of_row(uow: UnitOfWork, row: Row) -> list[Run]:
    [stored] = _stored(uow, [row])
    return sorted([*stored, *_going_on(uow, [row])], key=_order, reverse=True)


def _going_on(uow: UnitOfWork, rows: Iterable[Row]) -> list[Run]:
    """The deliveries in progress without a stored run."""
    dispatching = [row for row in rows if row.phase == Phase.DISPATCHING]
    stored = uow.runs.get_many((row.key, row.fence) for row in dispatching)
    untold = [row for row in dispatching if (row.key, row.fence) not in stored]
    return [open_run(one, now=uow.now()) for one in uow.occurrences_of(untold)]


def _order(run: Run) -> tuple[int, str]:
    return (run.started, run.id)


def _run(values: Values) -> Run:
    return to_run((*[values[place] for place in _PLACES], None, values[_USAGE]))
