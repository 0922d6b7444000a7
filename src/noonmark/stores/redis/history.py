"""Occurrences as callers read them, what is overdue, and pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import LIVE
from noonmark.stores.redis.schema.schedules import CROWDED, EVENT_STREAMS, OCCURRENCES
from noonmark.stores.rules.backfills import PREFIX, PhaseCount
from noonmark.stores.rules.records import Unreadable, to_occurrence
from noonmark.stores.sql.records import STATE_COLUMNS, from_json
from noonmark.stores.sql.row_checks import FURTHEST, number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.records import PageKey
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Records
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

    First = tuple[Records, str, tuple[str, ...]]
    """An index of records, and a partition of it."""

_PAGE = 256
_HISTORY = STATE_COLUMNS.index("history")


def one(uow: UnitOfWork, occurrence_id: str) -> Occurrence | None:
    """Get an occurrence."""
    row = uow.row(occurrence_id)
    if row is None:
        return None
    occurrences = uow.occurrences_of([row])
    if not occurrences:
        raise StoreUnavailable(f"the stored record of occurrence {row.id} is damaged; noonmark doctor says more")
    return occurrences[0]


def of_schedule(
    uow: UnitOfWork, uid: str, limit: int | None, before: PageKey | None, phases: Collection[Phase]
) -> list[Occurrence]:
    """A schedule's occurrences, newest nominal time first."""
    state = uow.load_states([uid]).get(uid)
    if state is None:
        return []
    if phases and LIVE.issuperset(phases):  # these are few
        live = sorted(uow.live_rows(state), key=lambda row: (row.nominal, row.id), reverse=True)
        rows = [row for row in live if row.phase in phases and (before is None or (row.nominal, row.id) < before)]
        return uow.occurrences_of(rows[:limit])
    chosen: list[Row] = []
    for page in _pages(uow, state.schedule, before, _PAGE if limit is None else min(_PAGE, max(limit, 1))):
        chosen += [row for row in page if not phases or row.phase in phases]
        if limit is not None and len(chosen) >= limit:
            break
    return uow.occurrences_of(chosen[:limit])


def _pages(uow: UnitOfWork, schedule: int, before: PageKey | None, size: int) -> Iterator[list[Row]]:
    """The rows of a schedule, newest nominal time first, then highest id first."""
    place: Values | None = before
    while True:
        page = uow.rows.entries("history", (schedule,), before=place, limit=size, newest_first=True)
        yield uow.rows_of(entry[-1] for entry in page)
        if len(page) < size:
            return
        place = page[-1]


def standing_for(uow: UnitOfWork, uid: str, time: Micros, limit: int) -> list[Occurrence]:
    """A schedule's occurrences of a time, and of gaps that reach over it."""
    state = uow.load_states([uid]).get(uid)
    if state is None:
        return []
    exact = uow.find_rows("history", state.schedule, prefix=(time,))
    exact.sort(key=lambda row: (row.origin == TRIGGER, row.due, row.id), reverse=True)
    over = [row for row in uow.find_rows("gaps", state.schedule, since=(time,)) if row.nominal < time]
    return uow.occurrences_of([*exact[:limit], *over[:limit]])


def known(uow: UnitOfWork, occurrence_ids: Collection[str]) -> set[str]:
    """Those of the ids that occurrences have."""
    return {str(one) for (one,) in uow.rows.look_up_many("by_id", [(one,) for one in occurrence_ids])}


def overdue(uow: UnitOfWork, *, now: Micros, limit: int) -> tuple[list[Occurrence], dict[int, str], list[int]]:
    """Deliveries whose deadline has come, earliest first, what is wrong with those that cannot be read, and strays."""
    keys = [key for (key,) in uow.rows.find_keys("deadlines", until=(now,), limit=limit)]
    rows = uow.rows_of(keys)
    sound: list[Row] = []
    faults: dict[int, str] = {}
    for row in rows:
        if problem := row.damage or _problem(uow, row):
            faults[row.key] = problem
        else:
            sound.append(row)
    if len(rows) < len(keys):
        uow.rows.note_strays("deadlines", until=(now,), limit=limit)
    known = {row.key for row in rows}
    return uow.occurrences_of(sound), faults, [key for key in keys if key not in known]


def _problem(uow: UnitOfWork, row: Row) -> str | None:
    """What keeps a row, or its schedule, from being read."""
    try:
        uow.schedule_of(uow.state_of(row))
        to_occurrence(row, "", "", None, from_json)
    except Unreadable as error:
        return str(error)
    return None


def next_time(uow: UnitOfWork, routes: Collection[str], lookahead: Micros) -> Micros | None:
    """When anything can next be matched, planned, is overdue, or can be claimed."""
    streams = uow.transaction.records(EVENT_STREAMS)
    firsts: list[First] = [(uow.states, "to_plan", ()), (uow.rows, "deadlines", ())]
    firsts += [(uow.rows, "leased", (route,)) for route in routes]
    ready: list[First] = [(uow.rows, "ready", (route,)) for route in routes]
    uow.transaction.preload(
        [
            streams.question("behind", limit=1),
            *(records.question(index, partition, limit=1) for records, index, partition in [*firsts, *ready]),
        ]
    )
    times = [
        number(entry[0], FURTHEST) - (lookahead if index == "ready" else 0)
        for records, index, partition in [*firsts, *ready]
        for entry in records.entries(index, partition, limit=1, hint=True)
    ]
    if streams.find_keys("behind", limit=1, hint=True):
        times.append(MIN_INSTANT)
    return min(times, default=None)


def due_since(uow: UnitOfWork, routes: Collection[str]) -> Micros | None:
    """Since when the first row can be claimed."""
    firsts = [(index, (route,)) for route in routes for index in ("ready", "leased")]
    uow.transaction.preload(uow.rows.question(index, partition, limit=1) for index, partition in firsts)
    entries = [entry for index, partition in firsts for entry in uow.rows.entries(index, partition, limit=1)]
    return min((number(entry[0], 0) for entry in entries), default=None)


def prune(uow: UnitOfWork, *, before: Micros, keep: int, limit: int) -> int:
    """Delete old occurrences, then the excess of each schedule."""
    old = [key for (key,) in uow.rows.find_keys("ended", before=(before,), limit=limit, hint=True)]
    count = _forget(uow, old)
    uow.workflows.prune(before, limit)
    for schedule, history in _fullest(uow, keep, limit) if count < limit else ():
        excess = min(history - keep, limit - count)
        if excess <= 0:
            break
        keys = uow.rows.find_keys("ended_of_schedule", (schedule,), limit=excess, hint=True)
        count += _forget(uow, [key for (key,) in keys])
        if len(keys) < excess:  # a damaged count would be found again and again, and leave no room for others
            [state] = uow.states_of([schedule])
            state.history = uow.rows.count("ended_of_schedule", (schedule,))
            uow.changed_state(state)
    return count


def _fullest(uow: UnitOfWork, keep: int, limit: int) -> list[tuple[int, int]]:
    """Schedules with more ended occurrences than are kept, the fullest first, and how many these are."""
    uow.stage()
    if keep >= CROWDED - 1:
        entries = uow.states.entries("with_history", after=(keep,), limit=limit, newest_first=True, hint=True)
        return [(number(key, 0), number(history, 0)) for history, key in entries]
    # To find the others, all schedules are read.
    counts: dict[int, int] = {}
    for (key,), values in uow.transaction.scan(uow.states.table):
        counts[key] = number(values[_HISTORY], 0)
    counts.update((state.schedule, state.history) for state in uow.states_of(counts) if state.history > keep)
    full = [(key, history) for key, history in counts.items() if history > keep]
    return sorted(full, key=lambda one: (-one[1], one[0]))[:limit]


def _forget(uow: UnitOfWork, keys: Sequence[int]) -> int:
    rows = [row for row in uow.rows_of(keys) if row.ended is not None]
    uow.forget_rows(rows)
    for row in rows:
        state = uow.state_of(row)
        state.history = max(0, state.history - 1)
        uow.changed_state(state)
    return len(rows)


def backfill_counts(uow: UnitOfWork, uid: str) -> list[PhaseCount]:
    """The occurrences of the backfills of a schedule, one by one."""
    state = uow.load_states([uid]).get(uid)
    if state is None:
        return []
    rows = (OCCURRENCES.named(values) for values in uow.rows.find("history", (state.schedule,)))
    return [
        PhaseCount(row["origin"], row["phase"], 1, row["nominal"], row["nominal"], row["first_due"], row["held"])
        for row in rows
        if row["origin"].startswith(PREFIX)
    ]
