"""Halts: what is asked to stop when one is set, and which one is in the way of a start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.agents.turns import spoken_session
from noonmark.core.interruption import ENGINE, engine_of, stop_deadline
from noonmark.core.reasons import Reason
from noonmark.stores.rules import step_ends
from noonmark.stores.rules.records import Unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.halt import Halt
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def set_halt(uow: UnitOfWork, halt: Halt, most: int) -> int | None:
    """Store a halt, and ask what it covers to stop; returns how many that are. None if there are too many halts."""
    halts = uow.halts(halt.tenant)
    if len(halts) >= most or any(one.halt_id == halt.halt_id for one in halts):
        return None
    uow.add_halt(halt)
    rows = uow.begun_rows(halt.tenant)
    states = {state.schedule: state for state in (uow.state_of(row) for row in rows)}
    schedules = uow.schedules_of(states.values())
    covered = [row for row in rows if _covering(uow, [halt], row, schedules[row.schedule]) is not None]
    return sum(_stop(uow, row, halt) for row in covered)


def in_the_way(uow: UnitOfWork, row: Row, schedule: Schedule) -> Busy | None:
    """The halt that a start meets. A workflow run that has begun may start once more: to stop its steps and to end."""
    halts = uow.halts(schedule.owner.tenant)
    halt = _covering(uow, halts, row, schedule) if halts else None
    if halt is None:
        return None
    if row.has_begun and uow.is_workflow_run(row):
        if row.stop is None:
            _request_stop(row, halt)
            uow.changed(row)
        return None
    return Busy(place=Place.HALT, halt=halt, at=uow.now())


def _covering(uow: UnitOfWork, halts: Sequence[Halt], row: Row, schedule: Schedule | Unreadable) -> Halt | None:
    """The first halt that covers a row: its schedule, a workflow run that it is a step of, or the session it talks in.

    The steps of a workflow belong to a hidden schedule, which has no labels and no lineage.
    """
    rows = [(row, schedule)]
    while (above := _run_above(uow, rows[-1][0])) is not None:
        rows.append(above)
    return next((halt for halt in halts if any(_covers(uow, halt, *one) for one in rows)), None)


def _run_above(uow: UnitOfWork, row: Row) -> tuple[Row, Schedule | Unreadable] | None:
    """The workflow run that a row is a step of, and its schedule."""
    overrides = uow.overrides(row)
    parent = None if overrides is None else overrides.parent
    above = None if parent is None else uow.row(parent.occurrence_id)
    if above is None:
        return None
    return above, uow.schedules_of([uow.state_of(above)])[above.schedule]


def _covers(uow: UnitOfWork, halt: Halt, row: Row, schedule: Schedule | Unreadable) -> bool:
    """Whether a halt covers a row of a schedule; one that cannot be read, if it covers the whole tenant."""
    if isinstance(schedule, Unreadable):
        return halt.is_of_tenant
    return halt.covers(schedule) or (halt.lineage is not None and _talks_in_lineage(uow, halt, row, schedule))


def _talks_in_lineage(uow: UnitOfWork, halt: Halt, row: Row, schedule: Schedule) -> bool:
    """Whether a row talks in the session that is halted, or in one that a halted schedule made."""
    overrides = uow.overrides(row)
    target = (overrides and overrides.target) or schedule.declaration.target
    session_id = spoken_session(target, uid=schedule.uid, schedule_id=schedule.schedule_id, occurrence_id=row.id)
    if session_id is None or session_id == halt.lineage:
        return session_id is not None
    session = uow.sessions.find(halt.tenant, session_id)
    maker = None if session is None else session.schedule_id
    if maker is None or maker == halt.lineage:
        return maker is not None
    state = uow.states_named([(halt.tenant, maker)]).get((halt.tenant, maker))
    made_by = None if state is None else uow.schedules_of([state])[state.schedule]
    return made_by is not None and not isinstance(made_by, Unreadable) and halt.covers(made_by)


def _stop(uow: UnitOfWork, row: Row, halt: Halt) -> bool:
    """Ask a row to stop, unless it was asked before."""
    if row.stop is not None:
        return False
    deadline = stop_deadline(row, now=uow.now(), is_workflow_run=uow.is_workflow_run(row))
    _request_stop(row, halt)
    if uow.ends_itself(row):
        step_ends.stop_suspended(uow, row, Reason.HALTED)
        return True
    row.deadline = deadline
    uow.changed(row)
    return True


def _request_stop(row: Row, halt: Halt) -> None:
    """Write that a row is to stop, and who wants that: what ends it does not read the halt, which may be lifted."""
    engine = engine_of(row)
    facts = halt.facts() if engine is None else {**halt.facts(), ENGINE: engine}
    row.stop = Reason.HALTED
    row.detail = json.dumps(facts, sort_keys=True)
