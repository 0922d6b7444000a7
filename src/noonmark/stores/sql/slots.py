"""Places: the slot of a schedule, the places under a concurrency key, the runs that `max_runs` allows.

Whoever waits stands in a line, and a place that becomes free is handed to the first in the line at once. So a place
is never free while somebody who may run waits for it, nobody overtakes the line, and no wake-up is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import admission
from noonmark.core.admission import Busy
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from noonmark.core.admission import Start, Wait
    from noonmark.stores.sql.records import ConcurrencySlot, Row, ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

_IN_SLOT_LINE = "phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL AND schedule = ?"
_FIRST = "AND held = 0 ORDER BY due, nominal, id LIMIT 1"


def take(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """Take every place that a start needs, or none of them and say which is taken."""
    state = uow.state_of(row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        return Busy(place=admission.Place.MAX_RUNS)
    if start.takes_slot and (holder := holder_of(uow, state)) is not None and holder is not row:
        return Busy(place=admission.Place.SLOT, waiting=state.queued, holder_caught_up=holder.caught_up)
    place = None
    if start.concurrency is not None:
        place = uow.place(start.claim.schedule.owner.tenant, start.concurrency.key)
        if place.key != row.place and _is_full(uow, place, start.concurrency.limit):
            return Busy(place=admission.Place.CONCURRENCY)
    if row.place is not None and (place is None or place.key != row.place):
        free_key(uow, row)
    if place is not None and row.place is None:
        _give_key(uow, row, place)
    if start.takes_slot:
        _give_slot(uow, state, row)
    if row.is_own and not row.has_begun:
        state.admitted += 1
    return None


def holder_of(uow: UnitOfWork, state: ScheduleState) -> Row | None:
    """The row that holds the slot; a number that is that of no row of the schedule is damaged, and nobody's."""
    rows = [] if state.holder is None else uow.rows_of([state.holder])
    if not rows or rows[0].schedule != state.schedule:
        state.holder = None
        return None
    return rows[0]


def wait(uow: UnitOfWork, row: Row, decided: Wait) -> None:
    """Put a row in line. If what it waits for is free by now and nobody stands before it, it has its turn at once."""
    state, schedule = uow.state_of(row), decided.claim.schedule
    row.lease_end = row.node = row.started = None
    row.ready, row.awaits_after = decided.until, decided.after
    if decided.seen is not None and decided.seen != state.news:
        row.ready = uow.now()
    row.phase, row.waiting_for = Phase.PENDING, decided.waiting_for
    uow.changed(row)
    # It must not keep the others from what it cannot use itself.
    free_key(uow, row)
    concurrency = schedule.declaration.concurrency
    if decided.waiting_for is Reason.QUEUED:
        state.queued += 1
        uow.changed_state(state)
        wake_for_slot(uow, state)
    elif decided.waiting_for is Reason.CONCURRENCY_LIMIT and concurrency is not None:
        place = uow.place(schedule.owner.tenant, concurrency.key)
        row.wanted, row.wanted_limit = place.key, concurrency.limit
        place.waiting += 1
        uow.changed(row)
        uow.changed_place(place)
        wake_for_key(uow, place)


def leave(uow: UnitOfWork, row: Row) -> None:
    """Take a row out of whatever line it stands in; whoever calls this gives it a time, or an end."""
    if row.wanted is not None:
        place = uow.place_of(row.wanted)
        row.wanted = row.wanted_limit = None
        if place is not None:
            place.waiting = max(0, place.waiting - 1)
            uow.changed_place(place)
    elif row.is_queued:
        state = uow.state_of(row)
        state.queued = max(0, state.queued - 1)
        uow.changed_state(state)


def give_up(uow: UnitOfWork, row: Row) -> None:
    """Give back every place of a row that is in no line any more."""
    free_slot(uow, row)
    free_key(uow, row)


def free_slot(uow: UnitOfWork, row: Row) -> None:
    """Give the slot back, if this row holds it."""
    state = uow.state_of(row)
    if state.holder == row.key:
        state.holder = None
        row.holds_slot = 0
        uow.changed_state(state)
        wake_for_slot(uow, state)


def free_key(uow: UnitOfWork, row: Row) -> None:
    """Give the place under a concurrency key back, if this row holds one."""
    if row.place is not None:
        place = uow.place_of(row.place)
        row.place = None
        uow.changed(row)
        if place is not None:
            place.taken = max(0, place.taken - 1)
            uow.changed_place(place)
            wake_for_key(uow, place)


def free_key_if_held(uow: UnitOfWork, row: Row) -> None:
    """What a pause holds keeps no place from others: theirs may be another schedule, which nobody has paused."""
    if row.phase == Phase.PENDING and row.held:
        free_key(uow, row)


def wake_for_slot(uow: UnitOfWork, state: ScheduleState) -> None:
    """Hand a free slot to the first in line."""
    if state.holder is None and state.queued:
        for row in uow.find(f"{_IN_SLOT_LINE} {_FIRST}", state.schedule):
            wake(uow, row)
            _give_slot(uow, state, row)


def wake_for_key(uow: UnitOfWork, place: ConcurrencySlot) -> None:
    """Hand free places to the first in line, as far as its limit allows, then to the next."""
    while (row := _first_wanting(uow, place)) is not None:
        if row.wanted_limit is None or place.taken >= row.wanted_limit:
            break
        wake(uow, row)
        _give_key(uow, row, place)


def wake(uow: UnitOfWork, row: Row) -> None:
    """Give a waiting row a time, now. What it waited for stays written on it until it starts: it cannot misfire."""
    leave(uow, row)
    row.ready = uow.now()
    uow.woke = True
    uow.changed(row)


def in_slot_line(uow: UnitOfWork, state: ScheduleState) -> list[Row]:
    """Everybody who waits for the slot, first in line first."""
    return uow.find(f"{_IN_SLOT_LINE} ORDER BY due, nominal, id", state.schedule) if state.queued else []


def _first_wanting(uow: UnitOfWork, place: ConcurrencySlot) -> Row | None:
    if not place.waiting:
        return None
    return next(iter(uow.find(f"wanted = ? {_FIRST}", place.key)), None)


def _is_full(uow: UnitOfWork, place: ConcurrencySlot, limit: int) -> bool:
    """Whether one more has to wait; with different limits under one key, somebody may wait beside free places."""
    return place.taken >= limit or _first_wanting(uow, place) is not None


def _give_slot(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    state.holder = row.key
    row.holds_slot = 1
    uow.changed(row)
    uow.changed_state(state)


def _give_key(uow: UnitOfWork, row: Row, place: ConcurrencySlot) -> None:
    row.place = place.key
    place.taken += 1
    uow.changed(row)
    uow.changed_place(place)
