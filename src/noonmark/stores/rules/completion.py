"""Completion: what the end of an occurrence changes, and when its schedule is completed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.settlement import FAILURES
from noonmark.core.system_events import ENDS, SystemEvent
from noonmark.core.targets import AGENT_ROUTES
from noonmark.ports.workflows import OF_OCCURRENCE
from noonmark.stores.rules import budgets, dependencies, rate_windows, slots, step_ends
from noonmark.stores.rules.records import PHASES, Unreadable
from noonmark.stores.rules.unit_of_work import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.run import Run
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork

_COMPLETED, _MISFIRED, _SKIPPED, _SUPERSEDED = Phase.COMPLETED, Phase.MISFIRED, Phase.SKIPPED, Phase.SUPERSEDED
_ACTIVE, _HALTED, _SCHEDULE_COMPLETED = SchedulePhase.ACTIVE, Reason.HALTED, SystemEvent.SCHEDULE_COMPLETED


def to_detail(facts: Mapping[str, int | float | str]) -> str:
    """The numbers behind a decision as one JSON object with sorted keys; empty if there are none."""
    return json.dumps(dict(facts), sort_keys=True) if facts else ""


def end(uow: UnitOfWork, row: Row, phase: Phase, reason: Reason, detail: str = "", *, run: Run | None = None) -> None:
    """End a live row, perhaps with a run of it; what it held is handed to the first in line."""
    if row.wanted is not None or row.waiting_for is not None:
        slots.leave_queue(uow, row)
    if reason is _HALTED:
        detail = row.with_halt(detail)
    row.phase, row.reason, row.detail, row.waiting_for = phase, reason, detail, None
    if phase == _MISFIRED and not row.missed_count:  # a gap of one
        row.missed_count, row.missed_first, row.missed_last = 1, row.nominal, row.nominal
    archive(uow, row, run)


def cancel(uow: UnitOfWork, row: Row, reason: Reason) -> None:
    """End a row that is not delivered; a node that has claimed it loses it."""
    row.fence += 1
    end(uow, row, Phase.CANCELLED, reason)


def end_unreadable(uow: UnitOfWork, row: Row, problem: str) -> None:
    """End a row whose record is damaged, so that it does not block others."""
    state = uow.state_of(row)
    try:
        uow.schedule_of(state)
    except Unreadable:
        state.fault = problem
    row.fence += 1
    end(uow, row, Phase.DELIVERY_FAILED, Reason.UNREADABLE, to_detail({"problem": problem}))
    complete_if_done(uow, state)


def archive(uow: UnitOfWork, row: Row, run: Run | None = None) -> None:
    """Move a live row with a final phase to the history, and count it."""
    state = uow.state_of(row)
    row.give_back()
    row.ready = None
    row.held = 0
    row.ended = uow.now()
    state.live = max(0, state.live - 1)
    state.history += 1
    if row.phase != _SUPERSEDED:
        _count(state, row)
        note_admitted(state, row)
        if state.rate_window is not None:
            rate_windows.count_end(uow, state, row)
        event = ENDS[PHASES[row.phase]]
        if uow.may_have_subscribers(state, event):
            uow.facts.append(Fact(event=event, state=state, row=row, run=run))
    uow.changed(row)
    uow.changed_state(state)
    slots.free_all(uow, state, row)
    if state.queued:
        slots.hand_over_slot(uow, state)  # it may have kept those behind it in its line waiting without the slot
    if state.followed:
        dependencies.note_end(uow, state, row)
    if uow.is_workflow_run(row):
        uow.workflows.close(row)
    if row.route in AGENT_ROUTES:
        tenant = uow.tenants_of([row.schedule]).get(row.schedule, "")
        budgets.give_back_unused(uow, tenant, row.id)
        uow.workflows.drop(row, [OF_OCCURRENCE])
    if row.own is not None:
        step_ends.end_child(uow, row, run)


def note_admitted(state: ScheduleState, row: Row) -> None:
    """Remember the newest time of the trigger that was admitted or has ended."""
    if row.origin == TRIGGER:
        newest = row.last_nominal
        state.newest = newest if state.newest is None else max(state.newest, newest)


def complete_if_done(uow: UnitOfWork, state: ScheduleState) -> None:
    """Complete an active schedule with no live row and nothing to come."""
    if state.exhausted and not state.live and state.phase == _ACTIVE:
        state.phase, state.updated = SchedulePhase.COMPLETED, uow.now()
        state.version += 1
        uow.changed_state(state)
        if uow.may_have_subscribers(state, _SCHEDULE_COMPLETED):
            uow.facts.append(Fact(event=_SCHEDULE_COMPLETED, state=state))


def uncount(state: ScheduleState, row: Row, fires: int) -> None:
    """Take back fires of a gap that were counted too soon."""
    state.total -= fires
    if row.phase == Phase.MISFIRED:
        state.missed -= fires
    elif row.phase == Phase.SKIPPED:
        state.skipped -= fires


def _count(state: ScheduleState, row: Row) -> None:
    fires, phase = max(1, row.missed_count), row.phase
    state.total += fires
    state.last_phase = phase
    if phase == _COMPLETED:
        state.successful += fires
        state.failures_in_row = 0
    elif phase in FAILURES:
        state.failed += fires
        state.failures_in_row += 1
    elif phase == _MISFIRED:
        state.missed += fires
    elif phase == _SKIPPED:
        state.skipped += fires
