"""Places: the slot of a schedule, the places under a concurrency key, the runs that `max_runs` allows.

Whoever waits stands in a line, and a place that becomes free is handed to the first in the line at once. So a place
is never free while somebody who may run waits for it, nobody overtakes the line, and no wake-up is lost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from noonmark.core.admission import Start, Wait
    from noonmark.stores.memory.records import Key, Row, ScheduleState, Turn
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def take(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """Take every place that a start needs, or none of them and say which is taken."""
    state = uow.state_of(row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        return Busy(place=Place.MAX_RUNS)
    if start.takes_slot and state.holder is not None and state.holder is not row:
        return Busy(place=Place.SLOT, waiting=len(state.queue), holder_caught_up=state.holder.occurrence.caught_up)
    key = None
    if start.concurrency is not None:
        key = (state.schedule.owner.tenant, start.concurrency.key)
        if key != row.key and _is_full(uow, key, start.concurrency.limit):
            return Busy(place=Place.CONCURRENCY)
    if key != row.key:
        free_key(uow, row)
        if key is not None:
            _give_key(uow, row, key)
    if start.takes_slot:
        state.holder = row  # the start itself writes it on the row
    if row.is_own and not row.occurrence.has_begun:
        state.admitted += 1
    return None


def wait(uow: UnitOfWork, row: Row, decided: Wait) -> None:
    """Put a row in line. If what it waits for is free by now and nobody stands before it, it has its turn at once."""
    state, reason = uow.state_of(row), decided.waiting_for
    concurrency = decided.claim.schedule.declaration.concurrency
    row.ready, row.lease_end, row.awaits_after = decided.until, None, decided.after
    if decided.seen is not None and decided.seen != state.news:
        row.ready = uow.now()
    row.occurrence = evolve(row.occurrence, phase=Phase.PENDING, waiting_for=reason, node=None, started=None)
    uow.file(row)
    # It must not keep the others from what it cannot use itself.
    free_key(uow, row)
    if reason is Reason.QUEUED:
        insort(state.queue, row.turn)
        wake_for_slot(uow, state)
    elif reason is Reason.CONCURRENCY_LIMIT and concurrency is not None:
        key = (state.schedule.owner.tenant, concurrency.key)
        row.wants = (key, concurrency.limit)
        insort(uow.waiting[key], row.turn)
        wake_for_key(uow, key)


def leave(uow: UnitOfWork, row: Row) -> None:
    """Take a row out of whatever line it stands in."""
    if row.wants is not None:
        line = uow.waiting[row.wants[0]]
        del line[bisect_left(line, row.turn)]
        row.wants = None
    elif row.ready is None and row.occurrence.waiting_for is Reason.QUEUED:
        queue = uow.state_of(row).queue
        del queue[bisect_left(queue, row.turn)]


def give_up(uow: UnitOfWork, row: Row) -> None:
    """Leave every line, and give back every place."""
    leave(uow, row)
    free_slot(uow, row)
    free_key(uow, row)


def free_slot(uow: UnitOfWork, row: Row) -> None:
    """Give the slot back, if this row holds it."""
    state = uow.state_of(row)
    if state.holder is row:
        state.holder = None
        if row.occurrence.holds_slot:
            row.occurrence = evolve(row.occurrence, holds_slot=False)
        wake_for_slot(uow, state)


def free_key(uow: UnitOfWork, row: Row) -> None:
    """Give the place under a concurrency key back, if this row holds one."""
    key = row.key
    if key is not None:
        row.key = None
        uow.holders[key].discard(row.occurrence.id)
        wake_for_key(uow, key)


def free_key_if_held(uow: UnitOfWork, row: Row) -> None:
    """What a pause holds keeps no place from others: theirs may be another schedule, which nobody has paused."""
    if row.occurrence.phase is Phase.PENDING and uow.state_of(row).holds_back(row):
        free_key(uow, row)


def wake_for_slot(uow: UnitOfWork, state: ScheduleState) -> None:
    """Hand a free slot to the first in line."""
    row = _first(uow, state.queue) if state.queue else None
    if state.holder is None and row is not None:
        wake(uow, row)
        _give_slot(state, row)


def wake_for_key(uow: UnitOfWork, key: Key) -> None:
    """Hand free places to the first in line, as far as its limit allows, then to the next."""
    while (row := _first(uow, uow.waiting[key])) is not None and row.wants is not None:
        if len(uow.holders[key]) >= row.wants[1]:
            break
        wake(uow, row)
        _give_key(uow, row, key)


def wake(uow: UnitOfWork, row: Row) -> None:
    """Give a waiting row a time, now. What it waited for stays written on it until it starts: it cannot misfire."""
    leave(uow, row)
    row.ready = uow.now()
    uow.file(row)


def _first(uow: UnitOfWork, line: list[Turn]) -> Row | None:
    """The first in a line that no pause holds back."""
    rows = (uow.rows[waiting] for _, _, waiting in line)
    return next((row for row in rows if not uow.state_of(row).holds_back(row)), None)


def _is_full(uow: UnitOfWork, key: Key, limit: int) -> bool:
    """Whether one more has to wait; with different limits under one key, somebody may wait beside free places."""
    return len(uow.holders[key]) >= limit or _first(uow, uow.waiting[key]) is not None


def _give_slot(state: ScheduleState, row: Row) -> None:
    state.holder = row
    row.occurrence = evolve(row.occurrence, holds_slot=True)


def _give_key(uow: UnitOfWork, row: Row, key: Key) -> None:
    row.key = key
    uow.holders[key].add(row.occurrence.id)
