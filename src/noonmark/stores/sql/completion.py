"""Endings: what an occurrence leaves behind, and what its schedule remembers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.system_events import ENDS, SystemEvent
from noonmark.stores.detail import to_detail
from noonmark.stores.sql import dependencies, slots
from noonmark.stores.sql.records import PHASES, Unreadable
from noonmark.stores.system_events import More

if TYPE_CHECKING:
    from noonmark.core.run import Run
    from noonmark.stores.sql.records import Row, ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def end(uow: UnitOfWork, row: Row, phase: Phase, reason: Reason, detail: str = "", *, run: Run | None = None) -> None:
    """A live row ends, perhaps with a run of it; what it held is handed to the first in line."""
    slots.leave(uow, row)
    row.phase, row.reason, row.detail, row.waiting_for = phase, reason, detail, None
    if phase == Phase.MISFIRED and not row.missed_count:  # a gap of one
        row.missed_count, row.missed_first, row.missed_last = 1, row.nominal, row.nominal
    archive(uow, row, run)


def cancel(uow: UnitOfWork, row: Row, reason: Reason) -> None:
    """End a row that nobody delivers; whoever has claimed it loses it."""
    row.fence += 1
    end(uow, row, Phase.CANCELLED, reason)


def end_unreadable(uow: UnitOfWork, row: Row, problem: str) -> None:
    """End a row that cannot be read, so that it keeps nobody from the others."""
    state = uow.state_of(row)
    try:
        uow.schedule_of(state)
    except Unreadable:
        state.fault = problem
    row.fence += 1
    end(uow, row, Phase.DELIVERY_FAILED, Reason.UNREADABLE, to_detail({"problem": problem}))
    complete_if_done(uow, state)


def give_back(row: Row) -> None:
    """Nobody holds a row any more, or is asked to stop it."""
    row.lease_end = row.node = row.started = row.stop = row.deadline = None


def archive(uow: UnitOfWork, row: Row, run: Run | None = None) -> None:
    """Put a live row that has got a final phase away, and count it."""
    state = uow.state_of(row)
    give_back(row)
    row.ready = None
    row.held = 0
    row.ended = uow.now()
    state.live = max(0, state.live - 1)
    state.history += 1
    if row.phase != Phase.SUPERSEDED:
        _count(state, row)
        note_admitted(state, row)
        uow.note(ENDS[PHASES[row.phase]], state, row, More(run=run))
    uow.changed(row)
    uow.changed_state(state)
    slots.give_up(uow, row)
    dependencies.note_end(uow, state, row)


def note_admitted(state: ScheduleState, row: Row) -> None:
    """Remember the newest time of the trigger that was admitted, or has ended."""
    if row.origin == TRIGGER:
        newest = row.nominal if row.missed_last is None else row.missed_last
        state.newest = newest if state.newest is None else max(state.newest, newest)


def complete_if_done(uow: UnitOfWork, state: ScheduleState) -> None:
    """An active schedule with nothing live and nothing to come is completed."""
    if state.exhausted and not state.live and state.phase == SchedulePhase.ACTIVE:
        state.phase, state.updated = SchedulePhase.COMPLETED, uow.now()
        state.version += 1
        uow.changed_state(state)
        uow.note(SystemEvent.SCHEDULE_COMPLETED, state)


def uncount(state: ScheduleState, row: Row, fires: int) -> None:
    """Take fires of a gap back that were counted too soon."""
    state.total -= fires
    if row.phase == Phase.MISFIRED:
        state.missed -= fires
    elif row.phase == Phase.SKIPPED:
        state.skipped -= fires


def _count(state: ScheduleState, row: Row) -> None:
    fires, phase = max(1, row.missed_count), row.phase
    state.total += fires
    state.last_phase = phase
    if phase == Phase.COMPLETED:
        state.successful += fires
        state.failures_in_row = 0
    elif phase in FAILURES:
        state.failed += fires
        state.failures_in_row += 1
    elif phase == Phase.MISFIRED:
        state.missed += fires
    elif phase == Phase.SKIPPED:
        state.skipped += fires
