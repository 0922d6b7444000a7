"""What a change of a schedule does to those of its rows that the plan does not speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.stores.sql import dependents, endings, listening, places

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Sheet


def follow(ledger: Ledger, sheet: Sheet, before: Schedule, after: Schedule) -> None:
    """Bring the live rows in line with what the schedule is now."""
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(ledger, sheet, before.phase, after.phase)
    if old.target.route != new.target.route:
        for row in ledger.live(sheet):
            row.route = new.target.route
            ledger.changed(row)
    if (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency):
        for row in sorted(ledger.live(sheet), key=lambda row: row.turn):
            if row.ready is None and row.waiting_for is not None:
                places.wake(ledger, row)
    if after.revision != before.revision and old.depends_on:
        dependents.wake_waiting(ledger, sheet)
    listening.listen(ledger, sheet, before, after)
    dependents.bind(ledger, sheet, before, after)


def _change_phase(ledger: Ledger, sheet: Sheet, before: SchedulePhase, after: SchedulePhase) -> None:
    match after:
        case SchedulePhase.DELETED:
            _cancel(ledger, sheet)
        case SchedulePhase.PAUSED:
            _hold(ledger, sheet)
        case _:
            if before is SchedulePhase.PAUSED:
                sheet.failures_in_row = 0
                ledger.changed_sheet(sheet)
            _let_go(ledger, sheet)


def _cancel(ledger: Ledger, sheet: Sheet) -> None:
    """Nothing that is not being delivered starts any more."""
    for row in ledger.live(sheet):
        # Ending one may hand its place to the next, which ends in its turn.
        row.held = 0
        ledger.changed(row)
        if row.phase in (Phase.PENDING, Phase.CLAIMED):
            endings.cancel(ledger, row, Reason.DELETED)


def _hold(ledger: Ledger, sheet: Sheet) -> None:
    """Nothing that the schedule asked for by itself can be claimed, or started by whoever has claimed it."""
    rows = [row for row in ledger.live(sheet) if row.is_own]
    for row in rows:
        row.held = 1
        if row.phase == Phase.CLAIMED:
            row.fence += 1
            row.phase = Phase.PENDING
            row.lease_end = row.node = None
        ledger.changed(row)
    for row in rows:  # once all of them are held: none may be handed what another one gives back
        places.free_key_if_held(ledger, row)


def _let_go(ledger: Ledger, sheet: Sheet) -> None:
    """What was held can be claimed at its time, and takes what became free in the meantime."""
    rows = ledger.live(sheet)
    for row in rows:
        row.held = 0
        ledger.changed(row)
    places.wake_for_slot(ledger, sheet)
    for key in dict.fromkeys(row.wanted for row in rows):
        if key is not None and (place := ledger.place_of(key)) is not None:
            places.wake_for_key(ledger, place)
