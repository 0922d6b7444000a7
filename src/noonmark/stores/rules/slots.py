"""Slots: the slot of a schedule, the places under concurrency keys, and the runs that `max_runs` allows.

A row that cannot have what it needs waits in line, and whatever becomes free is handed to the first in line at once. So
nothing is free while a row that may run waits for it, no row overtakes the line, and no wake-up is lost.

A row may need several concurrency keys. It gets all of them at once, and holds none while it waits: it is in the line
of one that has no free place, and moves to another line when that one has a place for it and another has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.agents.turns import is_flow_key
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.stores.rules.records import OtherKey, read_other_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.core.admission import Start, Wait
    from noonmark.core.policies.limits import Concurrency, KeyLimit
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def busy(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """What a start needs and cannot have; None if all of it is free."""
    state = uow.state_of(row)
    if start.max_runs is not None and state.admitted >= start.max_runs:
        return Busy(place=Place.MAX_RUNS)
    if start.is_in_line and (before := uow.late_fire_before(row)) is not None:
        return Busy(place=Place.TURN, waiting=state.queued, holder=before.id)
    if start.takes_slot and (holder := slot_holder(uow, state)) is not None and holder is not row:
        return Busy(place=Place.SLOT, waiting=state.queued, holder=holder.id)
    return _busy_key(uow, row, start) if _needs_keys(row, start) else None


def take(uow: UnitOfWork, row: Row, start: Start) -> None:
    """Take everything that a start needs, which is free."""
    state = uow.state_of(row)
    if _needs_keys(row, start):
        _take_keys(uow, row, start)
    if start.takes_slot:
        give_slot(uow, state, row)
    if row.is_own and not row.has_begun:
        state.admitted += 1


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
    free_keys(uow, row)
    if decided.waiting_for is Reason.QUEUED:
        state.queued += 1
        uow.changed_state(state)
    else:
        needed = _needed(uow, schedule, schedule.declaration.concurrency, decided.keys)
        wanted = next((one for one in needed if one.reason == decided.waiting_for), None)
        if wanted is not None:
            _join_line(uow, row, wanted, needed)
            hand_over_keys(uow, [wanted.key])
    hand_over_slot(uow, state)  # whatever it waits for, it may have kept those behind it in its line waiting


def leave_queue(uow: UnitOfWork, row: Row) -> None:
    """Take a row out of the line it is in; the caller gives it a time or an end."""
    if row.wanted is not None:
        key = uow.concurrency_key_of(row.wanted)
        row.wanted = row.wanted_limit = row.other_keys = None
        if key is not None:
            key.waiting = max(0, key.waiting - 1)
            uow.changed_key(key)
    elif row.is_queued:
        state = uow.state_of(row)
        state.queued = max(0, state.queued - 1)
        uow.changed_state(state)


def free_all(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Release the slot and the concurrency keys of a row that is no longer queued."""
    if state.holder == row.key:
        state.holder = None
        row.holds_slot = 0
        uow.changed_state(state)
        hand_over_slot(uow, state)
    free_keys(uow, row)


def free_keys(uow: UnitOfWork, row: Row) -> None:
    """Give the places under concurrency keys back that this row holds."""
    if row.place is not None:
        held = _held(uow, row)
        row.place = row.other_keys = None
        uow.changed(row)
        _free(uow, held)


def free_keys_of_suspended(uow: UnitOfWork, row: Row) -> None:
    """Give back what a run that suspends does not use, but not the key of its flow: that is busy until its end."""
    held = _held(uow, row)
    keys = [key for number in held if (key := uow.concurrency_key_of(number)) is not None]
    flow_keys = [key.key for key in keys if is_flow_key(key.name)]
    if held and held != flow_keys:
        row.place, row.other_keys = next(iter(flow_keys), None), None
        uow.changed(row)
        _free(uow, [number for number in held if number not in flow_keys])


def hold(uow: UnitOfWork, rows: Iterable[Row]) -> None:
    """Keep rows from being claimed, or started by a node that has claimed them."""
    for row in rows:
        row.held = 1
        if row.phase == Phase.CLAIMED:
            row.fence += 1
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
        uow.changed(row)


def free_keys_if_held(uow: UnitOfWork, row: Row) -> None:
    """A row that a pause holds keeps no places: rows of other schedules may wait for them."""
    if row.phase == Phase.PENDING and row.held:
        free_keys(uow, row)


def hand_over_slot(uow: UnitOfWork, state: ScheduleState) -> None:
    """Give a free slot to the first in line whose turn has come."""
    if state.holder is None and state.queued and (row := _first_for_slot(uow, state)) is not None:
        wake(uow, row)
        give_slot(uow, state, row)


def hand_over_keys(uow: UnitOfWork, keys: Iterable[int | None]) -> None:
    """Give the free places under some keys to the rows that wait for them, in the order of their turns.

    A row that also needs a key without a free place moves to the line of that key, and its place goes to the next.
    """
    concurrency_keys = (None if number is None else uow.concurrency_key_of(number) for number in dict.fromkeys(keys))
    lines = [key for key in concurrency_keys if key is not None]
    while lines:
        firsts = [(row, key) for key in lines if (row := _first_for_key(uow, key)) is not None]
        if not firsts:
            return
        row, key = min(firsts, key=lambda first: first[0].turn)
        limit = row.wanted_limit
        if limit is None or key.taken >= limit:
            lines.remove(key)
            continue
        others = read_other_keys(row, uow.unpack)
        needed = [OtherKey(key.key, limit, row.waiting_for or Reason.CONCURRENCY_LIMIT), *others]
        blocked = next((one for one in others if _is_taken(uow, one)), None)
        if blocked is None:
            wake(uow, row)
            _give_keys(uow, row, needed)
        else:
            leave_queue(uow, row)
            row.waiting_for = blocked.reason
            _join_line(uow, row, blocked, needed)


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


def _needs_keys(row: Row, start: Start) -> bool:
    return start.concurrency is not None or bool(start.keys) or row.place is not None


def _busy_key(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """The first concurrency key that a start needs and that has no free place."""
    held = _held(uow, row)
    for one in _needed(uow, start.claim.schedule, start.concurrency, start.keys):
        if one.key not in held and _is_full(uow, one):
            limit = next((limit for limit in start.keys if limit.reason == one.reason), None)
            return Busy(place=Place.CONCURRENCY, key=limit)
    return None


def _take_keys(uow: UnitOfWork, row: Row, start: Start) -> None:
    """Take every concurrency key that a start needs; release any other."""
    held = _held(uow, row)
    needed = _needed(uow, start.claim.schedule, start.concurrency, start.keys)
    numbers = [one.key for one in needed]
    row.place = row.other_keys = None
    uow.changed(row)
    _give_keys(uow, row, needed, held)
    # Last: what is handed over now must not be what this row needs.
    _free(uow, [number for number in held if number not in numbers])


def _needed(
    uow: UnitOfWork, schedule: Schedule, concurrency: Concurrency | None, keys: Sequence[KeyLimit]
) -> list[OtherKey]:
    """The concurrency keys that a row needs, that of its schedule first."""
    limits = [] if concurrency is None else [(concurrency.key, concurrency.limit, Reason.CONCURRENCY_LIMIT)]
    limits += [(one.name, one.limit, one.reason) for one in keys]
    tenant = schedule.owner.tenant
    return [OtherKey(uow.concurrency_key(tenant, name).key, limit, reason) for name, limit, reason in limits]


def _held(uow: UnitOfWork, row: Row) -> list[int]:
    """The concurrency keys under which a row holds a place."""
    return [] if row.place is None else [row.place, *(one.key for one in read_other_keys(row, uow.unpack))]


def _free(uow: UnitOfWork, held: Sequence[int]) -> None:
    for number in held:
        key = uow.concurrency_key_of(number)
        if key is not None:
            key.taken = max(0, key.taken - 1)
            uow.changed_key(key)
    hand_over_keys(uow, held)


def _join_line(uow: UnitOfWork, row: Row, wanted: OtherKey, needed: Sequence[OtherKey]) -> None:
    """Put a row in the line of one of the keys that it needs."""
    row.wanted, row.wanted_limit = wanted.key, wanted.limit
    row.other_keys = uow.pack([list(one) for one in needed if one.key != wanted.key] or None)
    uow.changed(row)
    key = uow.concurrency_key_of(wanted.key)
    if key is not None:
        key.waiting += 1
        uow.changed_key(key)


def _is_taken(uow: UnitOfWork, needed: OtherKey) -> bool:
    key = uow.concurrency_key_of(needed.key)
    return key is not None and key.taken >= needed.limit


def _is_full(uow: UnitOfWork, needed: OtherKey) -> bool:
    """Whether one more has to wait; with different limits under one key, a row may wait beside free places."""
    key = uow.concurrency_key_of(needed.key)
    return key is not None and (key.taken >= needed.limit or _first_for_key(uow, key) is not None)


def give_slot(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Give the slot, which is free, to a row."""
    state.holder = row.key
    row.holds_slot = 1
    uow.changed(row)
    uow.changed_state(state)


def _give_keys(uow: UnitOfWork, row: Row, needed: Sequence[OtherKey], held: Sequence[int] = ()) -> None:
    """Give a row a place under every key that it needs; it has those that it held before."""
    for one in needed:
        key = uow.concurrency_key_of(one.key)
        if key is not None and one.key not in held:
            key.taken += 1
            uow.changed_key(key)
    if needed:
        row.place = needed[0].key
        row.other_keys = uow.pack([list(one) for one in needed[1:]] or None)
        uow.changed(row)
