"""Halts: what is asked to stop when one is set, and which one is in the way of a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.stores.rules import step_ends
from noonmark.stores.rules.records import Unreadable

if TYPE_CHECKING:
    from noonmark.core.halt import Halt
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def set_halt(uow: UnitOfWork, halt: Halt, most: int) -> int | None:
    """Store a halt, and ask what it covers to stop; returns how many that are. None if there are too many halts."""
    known = uow.halts(halt.tenant)
    if len(known) >= most or any(one.halt_id == halt.halt_id for one in known):
        return None
    uow.add_halt(halt)
    rows = uow.begun_rows(halt.tenant)
    states = {state.schedule: state for state in (uow.state_of(row) for row in rows)}
    schedules = uow.schedules_of(states.values())
    return sum(_stop(uow, row) for row in rows if _covers(halt, schedules[row.schedule]))


def in_the_way(uow: UnitOfWork, row: Row, schedule: Schedule) -> Busy | None:
    """The halt that a start meets. A workflow run that has begun may start once more: to stop its steps and to end."""
    halt = next((one for one in uow.halts(schedule.owner.tenant) if one.covers(schedule)), None)
    if halt is None:
        return None
    if row.has_begun and uow.is_workflow_run(row):
        row.stop = row.stop or Reason.HALTED
        uow.changed(row)
        return None
    return Busy(place=Place.HALT, halt=halt, at=uow.now())


def _covers(halt: Halt, schedule: Schedule | Unreadable) -> bool:
    """Whether a halt covers a schedule; one that cannot be read, if it covers the whole tenant."""
    return not halt.labels if isinstance(schedule, Unreadable) else halt.covers(schedule)


def _stop(uow: UnitOfWork, row: Row) -> bool:
    """Ask a row to stop, unless it was asked before."""
    if row.stop is not None:
        return False
    if uow.ends_itself(row):
        step_ends.stop_suspended(uow, row, Reason.HALTED)
        return True
    # No node watches what a target has accepted: it ends when its deadline is looked at.
    row.deadline = uow.now() if row.phase == Phase.AWAITING_COMPLETION else None
    row.stop = Reason.HALTED
    uow.changed(row)
    return True
