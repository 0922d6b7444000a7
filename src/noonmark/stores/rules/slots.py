"""Slots: the slot of a schedule, the places under a concurrency key, and the runs that `max_runs` allows.

A row that cannot have what it needs waits in line, and whatever becomes free is handed to the first in line at once. So
nothing is free while a row that may run waits for it, no row overtakes the line, and no wake-up is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.admission import Start, Wait
    from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def take(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """Take everything that a start needs, or nothing of it and return what is taken."""
    state = uow.state_of(row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        return Busy(place=Place.MAX_RUNS)
    if start.is_in_line and (before := uow.late_fire_before(row)) is not None:
        return Busy(place=Place.TURN, waiting=state.queued, holder=before.id)
    if start.takes_slot and (holder := slot_holder(uow, state)) is not None and holder is not row:
        return Busy(place=Place.SLOT, waiting=state.queued, holder=holder.id)
    key = None
    if start.concurrency is not None:
        key = uow.concurrency_key(start.claim.schedule.owner.tenant, start.concurrency.key)
        if key.key != row.place and _is_full(uow, key, start.concurrency.limit):
            return Busy(place=Place.CONCURRENCY)
    if row.place is not None and (key is None or key.key != row.place):
        free_key(uow, row)
    if key is not None and row.place is None:
        _give_key(uow, row, key)
    if start.takes_slot:
        _give_slot(uow, state, row)
    if row.is_own and not row.has_begun:
        state.admitted += 1
    return None


def slot_holder(uow: UnitOfWork, state: ScheduleState) -> Row | None:
    """The row that holds the slot; a damaged number that names no row of the schedule is cleared."""
    row = None if state.holder is None else uow.row_of_key(state.holder)
    if row is None or row.schedule != state.schedule:
        state.holder = None
        return None
    return row


def wait(uow: UnitOfWork, row: Row, decided: Wait) -> None:
    """Put a row in line. If what it waits for is free by now and no row is before it, it has its turn at once."""
    state, schedule = uow.state_of(row), decided.claim.schedule
    row.lease_end = row.node = row.started = None
    row.ready, row.awaits_after = decided.until, decided.after
    if decided.seen is not None and decided.seen != state.news:
        row.ready = uow.now()
    row.phase, row.waiting_for = Phase.PENDING, decided.waiting_for
    uow.changed(row)
    # It must not keep others from what it cannot use itself.
    free_key(uow, row)
    concurrency = schedule.declaration.concurrency
    if decided.waiting_for is Reason.QUEUED:
        state.queued += 1
        uow.changed_state(state)
    elif decided.waiting_for is Reason.CONCURRENCY_LIMIT and concurrency is not None:
        key = uow.concurrency_key(schedule.owner.tenant, concurrency.key)
        row.wanted, row.wanted_limit = key.key, concurrency.limit
        key.waiting += 1
        uow.changed(row)
        uow.changed_key(key)
        hand_over_key(uow, key)
    hand_over_slot(uow, state)  # whatever it waits for, it may have kept those behind it in its line waiting


def leave_queue(uow: UnitOfWork, row: Row) -> None:
    """Take a row out of the line it is in; the caller gives it a time or an end."""
    if row.wanted is not None:
        key = uow.concurrency_key_of(row.wanted)
        row.wanted = row.wanted_limit = None
        if key is not None:
            key.waiting = max(0, key.waiting - 1)
            uow.changed_key(key)
    elif row.is_queued:
        state = uow.state_of(row)
        state.queued = max(0, state.queued - 1)
        uow.changed_state(state)


def free_all(uow: UnitOfWork, row: Row) -> None:
    """Release the slot and the concurrency key of a row that is no longer queued."""
    free_slot(uow, row)
    free_key(uow, row)


def free_slot(uow: UnitOfWork, row: Row) -> None:
    """Give the slot back, if this row holds it."""
    state = uow.state_of(row)
    if state.holder == row.key:
        state.holder = None
        row.holds_slot = 0
        uow.changed_state(state)
        hand_over_slot(uow, state)


def free_key(uow: UnitOfWork, row: Row) -> None:
    """Give the place under a concurrency key back, if this row holds one."""
    if row.place is not None:
        key = uow.concurrency_key_of(row.place)
        row.place = None
        uow.changed(row)
        if key is not None:
            key.taken = max(0, key.taken - 1)
            uow.changed_key(key)
            hand_over_key(uow, key)


def hold(uow: UnitOfWork, rows: Iterable[Row]) -> None:
    """Keep rows from being claimed, or started by a node that has claimed them."""
    for row in rows:
        row.held = 1
        if row.phase == Phase.CLAIMED:
            row.fence += 1
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
        uow.changed(row)


def free_key_if_held(uow: UnitOfWork, row: Row) -> None:
    """A row that a pause holds keeps no place: rows of other schedules may wait for it."""
    if row.phase == Phase.PENDING and row.held:
        free_key(uow, row)


def hand_over_slot(uow: UnitOfWork, state: ScheduleState) -> None:
    """Give a free slot to the first in line whose turn has come."""
    if state.holder is None and state.queued and (row := _first_for_slot(uow, state)) is not None:
        wake(uow, row)
        _give_slot(uow, state, row)


def hand_over_key(uow: UnitOfWork, key: ConcurrencyKey) -> None:
    """Give free places to the first in line, as far as its limit allows, then to the next."""
    while (row := _first_for_key(uow, key)) is not None:
        if row.wanted_limit is None or key.taken >= row.wanted_limit:
            break
        wake(uow, row)
        _give_key(uow, row, key)


def wake(uow: UnitOfWork, row: Row) -> None:
    """Make a waiting row ready now. It keeps its `waiting_for` until it starts, so that it cannot misfire."""
    leave_queue(uow, row)
    row.ready = uow.now()
    uow.wakes_nodes = True
    uow.changed(row)


def slot_queue(uow: UnitOfWork, state: ScheduleState) -> list[Row]:
    """The rows that wait for the slot, in the order of their turns."""
    return uow.slot_queue(state) if state.queued else []


def _first_for_slot(uow: UnitOfWork, state: ScheduleState) -> Row | None:
    """The first in line; the caught-up ones among them in the order of their nominal times, and none too soon."""
    first = uow.first_for_slot(state)
    if first is None or not first.is_caught_up:
        return first
    waiting = [row for row in uow.slot_queue(state) if not row.held]
    oldest = min((row for row in waiting if row.is_caught_up), key=lambda row: row.nominal)
    if uow.late_fire_before(oldest) is None:
        return oldest
    return next((row for row in waiting if not row.is_caught_up), None)


def _first_for_key(uow: UnitOfWork, key: ConcurrencyKey) -> Row | None:
    return uow.first_for_key(key) if key.waiting else None


def _is_full(uow: UnitOfWork, key: ConcurrencyKey, limit: int) -> bool:
    """Whether one more has to wait; with different limits under one key, a row may wait beside free places."""
    return key.taken >= limit or _first_for_key(uow, key) is not None


def _give_slot(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    state.holder = row.key
    row.holds_slot = 1
    uow.changed(row)
    uow.changed_state(state)


def _give_key(uow: UnitOfWork, row: Row, key: ConcurrencyKey) -> None:
    row.place = key.key
    key.taken += 1
    uow.changed(row)
    uow.changed_key(key)
