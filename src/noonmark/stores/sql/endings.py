"""Endings: what an occurrence leaves behind, and what its schedule remembers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.facts import ENDS, Fact
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.stores.facts import to_detail
from noonmark.stores.sql import dependents, places
from noonmark.stores.sql.records import PHASES, Unreadable
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from noonmark.core.run import Run
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Row, Sheet

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def end(ledger: Ledger, row: Row, phase: Phase, reason: Reason, detail: str = "", *, run: Run | None = None) -> None:
    """A live row ends, perhaps with a run of it; what it held is handed to the first in line."""
    places.leave(ledger, row)
    row.phase, row.reason, row.detail, row.waiting_for = phase, reason, detail, None
    if phase == Phase.MISFIRED and not row.missed_count:  # a gap of one
        row.missed_count, row.missed_first, row.missed_last = 1, row.nominal, row.nominal
    archive(ledger, row, run)


def cancel(ledger: Ledger, row: Row, reason: Reason) -> None:
    """End a row that nobody delivers; whoever has claimed it loses it."""
    row.fence += 1
    end(ledger, row, Phase.CANCELLED, reason)


def end_unreadable(ledger: Ledger, row: Row, problem: str) -> None:
    """End a row that cannot be read, so that it keeps nobody from the others."""
    sheet = ledger.sheet_of(row)
    try:
        ledger.schedule_of(sheet)
    except Unreadable:
        sheet.fault = problem
    row.fence += 1
    end(ledger, row, Phase.DELIVERY_FAILED, Reason.UNREADABLE, to_detail({"problem": problem}))
    complete_if_done(ledger, sheet)


def give_back(row: Row) -> None:
    """Nobody holds a row any more, or is asked to stop it."""
    row.lease_end = row.node = row.started = row.stop = row.deadline = None


def archive(ledger: Ledger, row: Row, run: Run | None = None) -> None:
    """Put a live row that has got a final phase away, and count it."""
    sheet = ledger.sheet_of(row)
    give_back(row)
    row.ready = None
    row.held = 0
    row.ended = ledger.now()
    sheet.live = max(0, sheet.live - 1)
    sheet.history += 1
    if row.phase != Phase.SUPERSEDED:
        _count(sheet, row)
        note_admitted(sheet, row)
        ledger.note(ENDS[PHASES[row.phase]], sheet, row, More(run=run))
    ledger.changed(row)
    ledger.changed_sheet(sheet)
    places.give_up(ledger, row)
    dependents.note_end(ledger, sheet, row)


def note_admitted(sheet: Sheet, row: Row) -> None:
    """Remember the newest time of the trigger that was admitted, or has ended."""
    if row.origin == TRIGGER:
        newest = row.nominal if row.missed_last is None else row.missed_last
        sheet.newest = newest if sheet.newest is None else max(sheet.newest, newest)


def complete_if_done(ledger: Ledger, sheet: Sheet) -> None:
    """An active schedule with nothing live and nothing to come is completed."""
    if sheet.exhausted and not sheet.live and sheet.phase == SchedulePhase.ACTIVE:
        sheet.phase, sheet.updated = SchedulePhase.COMPLETED, ledger.now()
        sheet.version += 1
        ledger.changed_sheet(sheet)
        ledger.note(Fact.SCHEDULE_COMPLETED, sheet)


def uncount(sheet: Sheet, row: Row, fires: int) -> None:
    """Take fires of a gap back that were counted too soon."""
    sheet.total -= fires
    if row.phase == Phase.MISFIRED:
        sheet.missed -= fires
    elif row.phase == Phase.SKIPPED:
        sheet.skipped -= fires


def _count(sheet: Sheet, row: Row) -> None:
    fires, phase = max(1, row.missed_count), row.phase
    sheet.total += fires
    sheet.last_phase = phase
    if phase == Phase.COMPLETED:
        sheet.successful += fires
        sheet.failures_in_row = 0
    elif phase in FAILURES:
        sheet.failed += fires
        sheet.failures_in_row += 1
    elif phase == Phase.MISFIRED:
        sheet.missed += fires
    elif phase == Phase.SKIPPED:
        sheet.skipped += fires
