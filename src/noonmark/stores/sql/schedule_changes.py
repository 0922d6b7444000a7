"""What a change of a schedule does to those of its rows that the plan does not speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.stores.sql import completion, dependencies, slots, subscriptions

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork


def follow(uow: UnitOfWork, state: ScheduleState, before: Schedule, after: Schedule) -> None:
    """Bring the live rows in line with what the schedule is now."""
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(uow, state, before.phase, after.phase)
    if old.target.route != new.target.route:
        for row in uow.live(state):
            row.route = new.target.route
            uow.changed(row)
    if (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency):
        for row in sorted(uow.live(state), key=lambda row: row.turn):
            if row.ready is None and row.waiting_for is not None:
                slots.wake(uow, row)
    if after.revision != before.revision and old.depends_on:
        dependencies.wake_waiting(uow, state)
    subscriptions.listen(uow, state, before, after)
    dependencies.bind(uow, state, before, after)


def _change_phase(uow: UnitOfWork, state: ScheduleState, before: SchedulePhase, after: SchedulePhase) -> None:
    match after:
        case SchedulePhase.DELETED:
            _cancel(uow, state)
        case SchedulePhase.PAUSED:
            _hold(uow, state)
        case _:
            if before is SchedulePhase.PAUSED:
                state.failures_in_row = 0
                uow.changed_state(state)
            _let_go(uow, state)


def _cancel(uow: UnitOfWork, state: ScheduleState) -> None:
    """Nothing that is not being delivered starts any more."""
    for row in uow.live(state):
        # Ending one may hand its place to the next, which ends in its turn.
        row.held = 0
        uow.changed(row)
        if row.phase in (Phase.PENDING, Phase.CLAIMED):
            completion.cancel(uow, row, Reason.DELETED)


def _hold(uow: UnitOfWork, state: ScheduleState) -> None:
    """Nothing that the schedule asked for by itself can be claimed, or started by whoever has claimed it."""
    rows = [row for row in uow.live(state) if row.is_own]
    for row in rows:
        row.held = 1
        if row.phase == Phase.CLAIMED:
            row.fence += 1
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
        uow.changed(row)
    for row in rows:  # once all of them are held: none may be handed what another one gives back
        slots.free_key_if_held(uow, row)


def _let_go(uow: UnitOfWork, state: ScheduleState) -> None:
    """What was held can be claimed at its time, and takes what became free in the meantime."""
    rows = uow.live(state)
    for row in rows:
        row.held = 0
        uow.changed(row)
    slots.wake_for_slot(uow, state)
    for key in dict.fromkeys(row.wanted for row in rows):
        if key is not None and (place := uow.place_of(key)) is not None:
            slots.wake_for_key(uow, place)
