"""Endings: what an occurrence leaves behind, and what its schedule remembers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.facts import ENDS, Fact
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.values import altered
from noonmark.stores.memory import dependents, places
from noonmark.stores.telling import More

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row, Sheet

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def end(ledger: Ledger, row: Row, phase: Phase, reason: Reason, detail: str = "", *, run: Run | None = None) -> None:
    """A live row ends, perhaps with a run of it; what it held is handed to the first in line."""
    places.leave(ledger, row)
    one = row.occurrence
    if phase is Phase.MISFIRED and not one.missed_count:  # a gap of one
        one = altered(one, missed_count=1, missed_first=one.nominal, missed_last=one.nominal)
    row.occurrence = altered(
        one,
        phase=phase,
        reason=reason,
        detail=detail,
        waiting_for=None,
        node=None,
        started=None,
        stop=None,
        deadline=None,
        holds_slot=False,
        ended=ledger.now(),
    )
    archive(ledger, row, run)


def archive(ledger: Ledger, row: Row, run: Run | None = None) -> None:
    """Put a live row that has got a final phase away, and count it."""
    sheet, one = row.sheet, row.occurrence
    ended = one.ended
    if ended is None:  # it had ended when it was planned
        ended = ledger.now()
        row.occurrence = one = altered(one, ended=ended)
    ledger.archive(row, ended)
    places.give_up(ledger, row)
    if one.phase is not Phase.SUPERSEDED:
        _count(sheet, one)
        note_admitted(sheet, one)
        ledger.note(ENDS[one.phase], sheet.schedule, one, More(run=run))
    dependents.note_end(ledger, sheet, one)


def note_admitted(sheet: Sheet, one: Occurrence) -> None:
    """Remember the newest time of the trigger that was admitted, or has ended."""
    if one.origin == TRIGGER:
        newest = one.nominal if one.missed_last is None else one.missed_last
        sheet.newest = newest if sheet.newest is None else max(sheet.newest, newest)


def cancel(ledger: Ledger, row: Row, reason: Reason) -> None:
    """End a row that nobody delivers; whoever has claimed it loses it."""
    row.occurrence = altered(row.occurrence, fence=row.occurrence.fence + 1)
    end(ledger, row, Phase.CANCELLED, reason)


def complete_if_done(ledger: Ledger, sheet: Sheet) -> None:
    """An active schedule with nothing live and nothing to come is completed."""
    if sheet.schedule.phase is SchedulePhase.ACTIVE and sheet.exhausted and not sheet.live:
        phase = step_schedule(sheet.schedule.phase, SchedulePhase.COMPLETED)
        sheet.schedule = altered(sheet.schedule, phase=phase, updated=ledger.now())
        ledger.file_plan(sheet)
        ledger.note(Fact.SCHEDULE_COMPLETED, sheet.schedule)


def uncount(sheet: Sheet, one: Occurrence, fires: int) -> None:
    """Take fires of a gap back that were counted too soon."""
    sheet.total -= fires
    if one.phase is Phase.MISFIRED:
        sheet.missed -= fires
    elif one.phase is Phase.SKIPPED:
        sheet.skipped -= fires


def _count(sheet: Sheet, one: Occurrence) -> None:
    fires = max(1, one.missed_count)
    sheet.total += fires
    sheet.last_phase = one.phase
    if one.phase is Phase.COMPLETED:
        sheet.successful += fires
        sheet.failures_in_row = 0
    elif one.phase in FAILURES:
        sheet.failed += fires
        sheet.failures_in_row += 1
    elif one.phase is Phase.MISFIRED:
        sheet.missed += fires
    elif one.phase is Phase.SKIPPED:
        sheet.skipped += fires
