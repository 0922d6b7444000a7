"""What a change of a schedule does to its rows that the plan does not name, and to its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.filters.index import discriminator
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.stores.rules import completion, dependencies, slots
from noonmark.stores.rules.records import UNSTARTED

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import ScheduleState
    from noonmark.stores.rules.unit_of_work import Subscription, UnitOfWork


def apply(uow: UnitOfWork, state: ScheduleState, before: Schedule, after: Schedule) -> None:
    """Bring the live rows, the subscriptions and the dependencies in line with a changed schedule."""
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(uow, state, before.phase, after.phase)
    if old.target.route != new.target.route:
        for row in uow.live_rows(state):
            row.route = new.target.route
            uow.changed(row)
    if (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency):
        for row in sorted(uow.live_rows(state), key=lambda row: row.turn):
            if row.ready is None and row.waiting_for is not None:
                slots.wake(uow, row)
    if after.revision != before.revision and old.depends_on:
        dependencies.wake_waiting(uow, state)
    if old.trigger is not new.trigger or subscriptions_of(before) != subscriptions_of(after):
        uow.replace_subscriptions(state, after.owner.tenant, subscriptions_of(after))
    dependencies.bind(uow, state, before, after)


def subscriptions_of(schedule: Schedule) -> list[Subscription]:
    """The event types that a schedule listens for."""
    trigger = schedule.declaration.trigger
    if schedule.phase is SchedulePhase.DELETED or not isinstance(trigger, EventTrigger):
        return []
    own = discriminator(trigger.filters)
    return [(event_type, own) for event_type in trigger.event_types]


def _change_phase(uow: UnitOfWork, state: ScheduleState, before: SchedulePhase, after: SchedulePhase) -> None:
    match after:
        case SchedulePhase.DELETED:
            _cancel_rows(uow, state)
        case SchedulePhase.PAUSED:
            _hold_rows(uow, state)
        case _:
            if before is SchedulePhase.PAUSED:
                state.failures_in_row = 0
                uow.changed_state(state)
            _release_rows(uow, state)


def _cancel_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Cancel every row that is not delivered."""
    for row in uow.live_rows(state):
        # Ending one may hand its slot to the next, which ends in its turn.
        row.held = 0
        uow.changed(row)
        if row.phase in UNSTARTED:
            completion.cancel(uow, row, Reason.DELETED)


def _hold_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Keep the rows that the schedule started by itself from being claimed, or started by a node that claimed them."""
    rows = [row for row in uow.live_rows(state) if row.is_own]
    slots.hold(uow, rows)
    for row in rows:  # once all of them are held: none may get what another one gives back
        slots.free_key_if_held(uow, row)


def _release_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Let held rows be claimed at their time, and take what became free meanwhile; a paused backfill stays so."""
    rows = [row for row in uow.live_rows(state) if row.is_own]
    for row in rows:
        row.held = 0
        uow.changed(row)
    slots.hand_over_slot(uow, state)
    for number in dict.fromkeys(row.wanted for row in rows):
        if number is not None and (key := uow.concurrency_key_of(number)) is not None:
            slots.hand_over_key(uow, key)
