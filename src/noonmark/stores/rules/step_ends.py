"""Ends of external steps: of a child occurrence, of a wait for an event, of an approval. They wake a suspended run.

A run that suspends and an end of one of its steps both lock the row of the run before they look at the step. So one of
them sees what the other has written, and no wake-up is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidTrigger
from noonmark.core.filters.index import NONE, discriminators
from noonmark.core.filters.match import matches
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import reason_sentence
from noonmark.core.workflows.progress import result_problem
from noonmark.core.workflows.run import Compensation, StepPhase
from noonmark.stores.rules import slots
from noonmark.stores.rules.records import AWAITED_BY_RUNS, DELIVERING, REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.occurrence import Parent
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.settlement import Settlement, Suspended
    from noonmark.core.workflows.run import StepRecord
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import UnitOfWork
    from noonmark.stores.rules.workflow_records import StepPlace, StepWait, Topic, WaitQuestion

MAX_ERROR = 500
"""Characters of the end of an error, where its cause is."""


def end_external_step(  # noqa: PLR0913 - what is known of its end
    uow: UnitOfWork,
    row: Row,
    place: StepPlace,
    phase: StepPhase,
    *,
    result: object = None,
    error: str | None = None,
    attempts: int = 1,
) -> bool:
    """End a step that runs elsewhere, after some attempts, and wake its run; False if it does not run."""
    step = uow.workflows.step(place)
    if row.ended is not None or step is None or not step.is_external or step.phase is not StepPhase.RUNNING:
        return False
    if phase is StepPhase.COMPLETED and (problem := result_problem(result)) is not None:
        phase, result, error = StepPhase.FAILED, None, problem
    attempt = step.attempt + max(0, attempts - 1)
    _write(uow, row, replace(step, phase=phase, ended=uow.now(), result=result, error=error, attempt=attempt))
    return True


def _write(uow: UnitOfWork, row: Row, step: StepRecord) -> None:
    """Write a step, and wake its run if that is suspended, or else the process that carries it out."""
    uow.workflows.put_steps(row, [step])
    if row.phase == Phase.PENDING and row.waiting_for in AWAITED_BY_RUNS and _is_later(uow, row):
        slots.wake(uow, row)
    elif row.phase in DELIVERING:
        uow.wakes_nodes = True


def stop_suspended(uow: UnitOfWork, row: Row, reason: Reason, *, by: int | None = None) -> None:
    """Ask a run that is suspended, or waits for its next attempt, to stop: a node resumes it, and ends it."""
    row.stop, row.deadline, row.due = reason, by, min(row.due, uow.now())
    row.held = 0  # also while its schedule is paused
    uow.changed(row)
    if row.phase == Phase.PENDING and _is_later(uow, row):
        slots.wake(uow, row)


def suspend(uow: UnitOfWork, row: Row, reason: Reason, detail: str, suspended: Suspended) -> None:
    """Suspend a run: it keeps its slot, and can be claimed at its time, or when one of its open steps ends."""
    stop, deadline = row.stop, row.deadline
    row.phase, row.reason, row.detail = Phase.PENDING, reason, row.with_halt(detail)
    row.waiting_for, row.ready = suspended.waiting_for, suspended.until
    row.give_back()
    steps = [uow.workflows.step((row.key, *one)) for one in suspended.open_steps]
    if stop is not None:
        row.stop, row.deadline = stop, deadline
    is_asked = stop is not None and not suspended.is_closing
    if is_asked or any(step is not None and not step.awaits_others for step in steps):
        row.ready = uow.now()
        uow.wakes_nodes = True
    uow.changed(row)
    slots.free_keys_of_suspended(uow, row)


def load(uow: UnitOfWork, settlements: Sequence[Settlement]) -> None:
    """Read, and lock, what the ends and suspensions of loaded rows are about: parents after their children."""
    places: list[StepPlace] = []
    parents: list[Parent] = []
    for settlement in settlements:
        row = uow.loaded_row(settlement.occurrence.id)
        if row is None or row.fence != settlement.occurrence.fence:
            continue
        if settlement.suspended is not None:
            places += [(row.key, *one) for one in settlement.suspended.open_steps]
        elif (parent := _parent(uow, row)) is not None:
            parents.append(parent)
    uow.load_rows(one.occurrence_id for one in parents)
    rows = ((uow.loaded_row(one.occurrence_id), one) for one in parents)
    places += [(row.key, one.step_id, one.index) for row, one in rows if row is not None]
    if places:
        uow.workflows.load_steps(places)


def end_child(uow: UnitOfWork, row: Row, run: Run | None) -> None:
    """The end of a child is the end of the step that it is for."""
    parent = _parent(uow, row)
    owner = None if parent is None else uow.row(parent.occurrence_id)
    if parent is None or owner is None:
        return
    place = (owner.key, parent.step_id, parent.index)
    step = uow.workflows.step(place)
    if step is not None and step.is_being_stopped and step.child == row.id:
        _end_stopped(uow, owner, step, row, run)
    elif step is not None and step.compensation is Compensation.ELSEWHERE and step.child == row.id:
        if row.phase == Phase.COMPLETED:
            _write(uow, owner, replace(step, phase=StepPhase.COMPENSATED, compensation=None, error=None))
        else:
            _write(uow, owner, replace(step, compensation=Compensation.FAILED, error=_failure(row, run)))
    elif step is not None and step.child not in (None, row.id):
        return  # a child of an earlier attempt of the run
    elif row.phase != Phase.COMPLETED:
        end_external_step(uow, owner, place, StepPhase.FAILED, error=_failure(row, run), attempts=row.attempt)
    elif run is not None and run.result is None and run.error is not None:  # its result could not be stored
        end_external_step(uow, owner, place, StepPhase.FAILED, error=run.error, attempts=row.attempt)
    else:
        result = None if run is None else run.result
        end_external_step(uow, owner, place, StepPhase.COMPLETED, result=result, attempts=row.attempt)


def _end_stopped(uow: UnitOfWork, owner: Row, step: StepRecord, row: Row, run: Run | None) -> None:
    """An inner workflow that was asked to stop has ended, and has undone its steps; or it was quicker."""
    result = None if run is None else run.result
    if row.phase == Phase.COMPLETED and result_problem(result) is None:
        _write(uow, owner, replace(step, phase=StepPhase.COMPLETED, ended=uow.now(), result=result, compensation=None))
    else:
        _write(uow, owner, replace(step, ended=uow.now(), compensation=None, error=_failure(row, run)))


def end_waits(uow: UnitOfWork, events: Sequence[tuple[str, Event]]) -> None:
    """End the steps that wait for events, which have just been matched."""
    fields = uow.workflows.wait_fields({(tenant, event.event_type) for tenant, event in events})
    if not fields:
        return
    event_questions = [(event, _questions(tenant, event, fields)) for tenant, event in events]
    waits: dict[WaitQuestion, list[StepWait]] = {one: [] for _, questions in event_questions for one in questions}
    for wait in uow.workflows.waits(waits) if waits else ():
        waits[(wait.tenant, wait.event_type), wait.own].append(wait)
    met: dict[tuple[int, str], tuple[StepWait, Event]] = {}
    for event, questions in event_questions:
        for wait in (wait for one in questions for wait in waits[one]):
            if wait.after < event.emitted and _matches(wait, event):
                met.setdefault((wait.key, wait.step_id), (wait, event))
    uow.load_rows(wait.occurrence_id for wait, _ in met.values())
    uow.workflows.load_steps([(key, step_id, None) for key, step_id in met])
    for (key, step_id), (wait, event) in met.items():
        row = uow.loaded_row(wait.occurrence_id)
        if row is None or row.key != key:
            continue
        result = {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "source": event.source,
            "payload": event.payload,
        }
        end_external_step(uow, row, (key, step_id, None), StepPhase.COMPLETED, result=result)
        uow.workflows.drop(row, [step_id])


def _questions(tenant: str, event: Event, fields: Mapping[Topic, Sequence[str]]) -> list[WaitQuestion]:
    """The discriminators of the waits that an event may end."""
    topic = (tenant, event.event_type)
    own = [NONE, *discriminators(event, [one for one in fields.get(topic, ()) if one != NONE.fields])]
    return [(topic, one) for one in own if one.fields in fields.get(topic, ())]


def _matches(wait: StepWait, event: Event) -> bool:
    """Whether an event is what a step waits for; filters that make no sense match none."""
    try:
        return matches(wait.filters, event.payload, event_type=event.event_type, source=event.source)
    except InvalidTrigger:
        return False


def _is_later(uow: UnitOfWork, row: Row) -> bool:
    return row.ready is None or row.ready > uow.now()


def _parent(uow: UnitOfWork, row: Row) -> Parent | None:
    """The step that a row is for; None also if the row is damaged."""
    overrides = uow.overrides(row)
    return None if overrides is None else overrides.parent


def _failure(row: Row, run: Run | None) -> str:
    """Why a child did not complete."""
    lines = [line.strip() for line in ((run and run.error) or "").splitlines() if line.strip()]
    reason = REASONS.get(row.reason)
    more = lines[-1][-MAX_ERROR:] if lines else reason_sentence(reason, row.detail) if reason else ""
    return f"{row.id} ended as {row.phase}/{row.reason}: {more}"
