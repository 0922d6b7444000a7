"""Endings: what an occurrence leaves behind, and what its schedule remembers of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.stores.memory import places

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.ports.store import Tally
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row, Sheet

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def end(ledger: Ledger, row: Row, phase: Phase, reason: Reason, detail: str = "") -> None:
    """A live row ends; what it held is handed to the first in line."""
    places.leave(ledger, row)
    row.occurrence = replace(row.occurrence, phase=phase, reason=reason, detail=detail, waiting_for=None)
    archive(ledger, row)


def archive(ledger: Ledger, row: Row) -> None:
    """Put a live row that has got a final phase away, and count it."""
    sheet = ledger.sheet_of(row)
    ledger.archive(row, ledger.now())
    places.give_up(ledger, row)
    one = row.occurrence
    if one.phase is not Phase.SUPERSEDED:
        sheet.tally = _counted(sheet.tally, one)
        note_admitted(sheet, one)


def note_admitted(sheet: Sheet, one: Occurrence) -> None:
    """Remember the newest time of the trigger that was admitted, or has ended."""
    if one.origin == TRIGGER:
        newest = one.nominal if one.missed_last is None else one.missed_last
        sheet.admitted = newest if sheet.admitted is None else max(sheet.admitted, newest)


def cancel(ledger: Ledger, row: Row, reason: Reason) -> None:
    """End a row that nobody delivers; whoever has claimed it loses it."""
    row.occurrence = replace(row.occurrence, fence=row.occurrence.fence + 1)
    end(ledger, row, Phase.CANCELLED, reason)


def complete_if_done(ledger: Ledger, sheet: Sheet) -> None:
    """An active schedule with nothing live and nothing to come is completed."""
    if sheet.schedule.phase is SchedulePhase.ACTIVE and sheet.exhausted and not sheet.live:
        phase = step_schedule(sheet.schedule.phase, SchedulePhase.COMPLETED)
        ledger.keep_schedule(sheet, replace(sheet.schedule, phase=phase, updated=ledger.now()))


def _counted(tally: Tally, one: Occurrence) -> Tally:
    fires = max(1, one.missed_count)
    in_row = tally.failures_in_row
    if one.phase in FAILURES:
        in_row += 1
    elif one.phase is Phase.COMPLETED:
        in_row = 0
    return replace(
        tally,
        total=tally.total + fires,
        successful=tally.successful + fires * (one.phase is Phase.COMPLETED),
        failed=tally.failed + fires * (one.phase in FAILURES),
        missed=tally.missed + fires * (one.phase is Phase.MISFIRED),
        skipped=tally.skipped + fires * (one.phase is Phase.SKIPPED),
        failures_in_row=in_row,
        last_phase=one.phase,
    )
