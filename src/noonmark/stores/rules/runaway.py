"""The runaway guard: what a store counts of a schedule that has it, and which starts it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.ids import TRIGGER, Origin, OriginKind, is_hidden, kind_of
from noonmark.core.policies import runaway
from noonmark.core.policies.runaway import Counted
from noonmark.core.system_events import SystemEvent
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.unit_of_work import Fact

if TYPE_CHECKING:
    from noonmark.core.admission import Start
    from noonmark.core.instants import Micros
    from noonmark.core.policies.runaway import Breach, Guard
    from noonmark.core.run import Run
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def counted_of(uow: UnitOfWork, state: ScheduleState) -> Counted | None:
    """What was counted of a schedule; None if it was nothing, or its record is damaged."""
    if state.runaway is None:
        return None
    try:
        return runaway.read_counted(uow.unpack(state.runaway, "runaway"))
    except Unreadable:
        return None


def in_the_way(uow: UnitOfWork, row: Row, start: Start) -> Busy | None:
    """What stops a first start: one more than may be in this hour, or that its schedule was stopped before."""
    guard = None if row.has_begun else _guard(start)
    state = uow.state_of(row)
    if guard is None or state.runaway is None:
        return None
    counted = counted_of(uow, state) or Counted()
    if counted.stopped is not None:
        return Busy(place=Place.RUNAWAY, stopped=counted.stopped, at=uow.now())
    if not _is_counted(row):
        return None
    breach = runaway.judge_start(guard, counted, start.claim.schedule.declaration.trigger, at=_at(uow, row))
    return None if breach is None else Busy(place=Place.RUNAWAY, breach=breach, at=uow.now())


def count_start(uow: UnitOfWork, row: Row, start: Start) -> None:
    """Count the first start of an occurrence. Backfills and steps of workflows do not count."""
    if _guard(start) is None or not _is_counted(row):
        return
    state = uow.state_of(row)
    counted = counted_of(uow, state) or Counted(since=uow.now())
    _put(uow, state, runaway.count_start(counted, at=_at(uow, row)))


def count_result(uow: UnitOfWork, state: ScheduleState, run: Run, limit: int) -> Breach | None:
    """Count the result of an occurrence; returns the rule that it breaks, if it does."""
    counted = counted_of(uow, state) or Counted(since=uow.now())
    counted = runaway.count_result(counted, runaway.result_digest(run.result))
    _put(uow, state, counted)
    return runaway.judge_results(limit, counted)


def stop(uow: UnitOfWork, state: ScheduleState, breach: Breach) -> None:
    """Pause a schedule: nothing of it starts until it is resumed."""
    _put(uow, state, replace(counted_of(uow, state) or Counted(since=uow.now()), stopped=breach.text))


def report(uow: UnitOfWork, state: ScheduleState, breach: Breach) -> None:
    """Report that a schedule has broken a rule."""
    uow.facts.append(Fact(event=SystemEvent.RUNAWAY, state=state, breach=breach))


def begin_anew(uow: UnitOfWork, state: ScheduleState) -> None:
    """A schedule was resumed: what was counted before does not count any more."""
    if state.runaway is not None:
        _put(uow, state, Counted(since=uow.now()))


def _guard(start: Start) -> Guard | None:
    """The rules for an occurrence; a step of a workflow, or a run without a schedule, has none."""
    guard = start.claim.schedule.declaration.guard
    if guard is None or is_hidden(start.claim.schedule.schedule_id):
        return None
    overrides = start.claim.occurrence.overrides
    return guard if overrides is None or overrides.parent is None else None


def _is_counted(row: Row) -> bool:
    return kind_of(Origin(row.origin)) is not OriginKind.BACKFILL


def _at(uow: UnitOfWork, row: Row) -> Micros:
    """The time whose hour a start counts for: the one that the trigger named, however late it starts."""
    return row.nominal if row.origin == TRIGGER else uow.now()


def _put(uow: UnitOfWork, state: ScheduleState, counted: Counted) -> None:
    state.runaway = uow.pack(counted.to_document())
    uow.changed_state(state)
