"""Endings: what an occurrence leaves behind, and what its schedule remembers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase, step_schedule
from noonmark.core.system_events import ENDS, SystemEvent
from noonmark.stores.memory import dependencies, slots
from noonmark.stores.system_events import More

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.stores.memory.records import Row, ScheduleState
    from noonmark.stores.memory.unit_of_work import UnitOfWork

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def end(uow: UnitOfWork, row: Row, phase: Phase, reason: Reason, detail: str = "", *, run: Run | None = None) -> None:
    """A live row ends, perhaps with a run of it; what it held is handed to the first in line."""
    slots.leave(uow, row)
    one = row.occurrence
    if phase is Phase.MISFIRED and not one.missed_count:  # a gap of one
        one = evolve(one, missed_count=1, missed_first=one.nominal, missed_last=one.nominal)
    row.occurrence = evolve(
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
        ended=uow.now(),
    )
    archive(uow, row, run)


def archive(uow: UnitOfWork, row: Row, run: Run | None = None) -> None:
    """Put a live row that has got a final phase away, and count it."""
    state, one = row.state, row.occurrence
    ended = one.ended
    if ended is None:  # it had ended when it was planned
        ended = uow.now()
        row.occurrence = one = evolve(one, ended=ended)
    uow.archive(row, ended)
    slots.give_up(uow, row)
    if one.phase is not Phase.SUPERSEDED:
        _count(state, one)
        note_admitted(state, one)
        uow.note(ENDS[one.phase], state.schedule, one, More(run=run))
    dependencies.note_end(uow, state, one)


def note_admitted(state: ScheduleState, one: Occurrence) -> None:
    """Remember the newest time of the trigger that was admitted, or has ended."""
    if one.origin == TRIGGER:
        newest = one.nominal if one.missed_last is None else one.missed_last
        state.newest = newest if state.newest is None else max(state.newest, newest)


def cancel(uow: UnitOfWork, row: Row, reason: Reason) -> None:
    """End a row that nobody delivers; whoever has claimed it loses it."""
    row.occurrence = evolve(row.occurrence, fence=row.occurrence.fence + 1)
    end(uow, row, Phase.CANCELLED, reason)


def complete_if_done(uow: UnitOfWork, state: ScheduleState) -> None:
    """An active schedule with nothing live and nothing to come is completed."""
    if state.schedule.phase is SchedulePhase.ACTIVE and state.exhausted and not state.live:
        phase = step_schedule(state.schedule.phase, SchedulePhase.COMPLETED)
        state.schedule = evolve(state.schedule, phase=phase, updated=uow.now())
        uow.file_plan(state)
        uow.note(SystemEvent.SCHEDULE_COMPLETED, state.schedule)


def uncount(state: ScheduleState, one: Occurrence, fires: int) -> None:
    """Take fires of a gap back that were counted too soon."""
    state.total -= fires
    if one.phase is Phase.MISFIRED:
        state.missed -= fires
    elif one.phase is Phase.SKIPPED:
        state.skipped -= fires


def _count(state: ScheduleState, one: Occurrence) -> None:
    fires = max(1, one.missed_count)
    state.total += fires
    state.last_phase = one.phase
    if one.phase is Phase.COMPLETED:
        state.successful += fires
        state.failures_in_row = 0
    elif one.phase in FAILURES:
        state.failed += fires
        state.failures_in_row += 1
    elif one.phase is Phase.MISFIRED:
        state.missed += fires
    elif one.phase is Phase.SKIPPED:
        state.skipped += fires
