"""The steps of a workflow run in an explanation: which failed and why, and what the others wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words
from noonmark.core.documents import present
from noonmark.core.explain.clauses import listed
from noonmark.core.explain.explanation import Rule
from noonmark.core.instants import to_text
from noonmark.core.workflows.run import StepPhase, WaitingFor, waits_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.explanation import Explanation, Facts
    from noonmark.core.workflows.definition import Definition, Step
    from noonmark.core.workflows.run import StepRecord

NO_CHILDREN: Mapping[str, str] = MappingProxyType({})
MAX_NAMED = 3
"""How many steps the sentence names; the facts have all of them."""
MAX_ERROR = 300
"""How much of an error the sentence repeats."""


def explain_steps(
    explanation: Explanation,
    definition: Definition,
    records: Sequence[StepRecord],
    children: Mapping[str, str] = NO_CHILDREN,
) -> Explanation:
    """An explanation of a workflow run with its steps; `children` says of occurrences why they have not ended."""
    own = [record for record in records if record.index is None]
    failed = [record for record in own if record.phase is StepPhase.FAILED]
    elements = [record for record in records if record.index is not None and record.phase is StepPhase.FAILED]
    waiting = _waiting(definition, own)
    running = [
        record.step_id
        for record in own
        if record.phase is StepPhase.RUNNING and waits_for(definition.step(record.step_id), record) is None
    ]
    # The error of the run names the step that failed first.
    untold = [record for record in failed if f"step '{record.step_id}' failed" not in explanation.summary]
    clauses = [
        *([_some([_failure(record, elements) for record in untold])] if untold else []),
        *([_running(running)] if running else []),
        *([_some([_wait(step, record, children) for step, record in waiting])] if waiting else []),
    ]
    summary = "; ".join([explanation.summary.removesuffix("."), *clauses]) + "."
    counts = Counter(str(record.phase) for record in own)
    counts[str(StepPhase.PENDING)] += len(definition.steps) - len(own)
    facts: Facts = {"steps": {str(phase): counts[phase] for phase in StepPhase if counts[phase]}} | present(
        failed_steps=[_failed_facts(record) for record in failed] or None,
        waiting_steps=[_waiting_facts(step, record) for step, record in waiting] or None,
    )
    steps = tuple(
        replace(step, facts=step.facts | facts) if step.rule is Rule.RUNS else step for step in explanation.steps
    )
    return replace(explanation, summary=summary, steps=steps)


def what_steps_wait_for(
    definition: Definition, records: Sequence[StepRecord], children: Mapping[str, str]
) -> str | None:
    """What the steps of a run wait for, as one sentence; None if none of them waits."""
    waiting = _waiting(definition, [record for record in records if record.index is None])
    text = _some([_wait(step, record, children) for step, record in waiting])
    return f"{text[0].upper()}{text[1:]}." if text else None


def _waiting(definition: Definition, records: Sequence[StepRecord]) -> list[tuple[Step, StepRecord]]:
    steps = [(definition.step(record.step_id), record) for record in records]
    return [(step, record) for step, record in steps if waits_for(step, record) is not None]


def _some(clauses: list[str]) -> str:
    more = f"; and {len(clauses) - MAX_NAMED} more" if len(clauses) > MAX_NAMED else ""
    return "; ".join(clauses[:MAX_NAMED]) + more


def _running(running: list[str]) -> str:
    if len(running) == 1:
        return f"step {listed(running)} is running"
    more = f" and {len(running) - MAX_NAMED} more" if len(running) > MAX_NAMED else ""
    return f"steps {listed(running[:MAX_NAMED])}{more} are running"


def _failure(record: StepRecord, elements: Sequence[StepRecord]) -> str:
    attempts = f" in attempt {record.attempt}" if record.attempt > 1 else ""
    failure = f"step `{record.step_id}` failed{attempts}{_error(record)}"
    first = next((element for element in elements if element.step_id == record.step_id), None)
    return failure if first is None else f"{failure} (element {first.index}{_error(first)})"


def _error(record: StepRecord) -> str:
    lines = [line.strip() for line in (record.error or "").splitlines() if line.strip()]
    return f" with `{lines[-1][:MAX_ERROR]}`" if lines else ""


def _wait(step: Step, record: StepRecord, children: Mapping[str, str]) -> str:
    until = "" if record.ready is None else f" until {instant_words(record.ready)}"
    name = f"step `{record.step_id}`"
    match waits_for(step, record):
        case WaitingFor.APPROVAL:
            return f"{name} waits for an approval{until}"
        case WaitingFor.EVENT if step.wait is not None:
            return f"{name} waits for the event {listed(step.wait.event_types)}{until}"
        case WaitingFor.OCCURRENCE:
            why = children.get(record.child or "")
            return f"{name} waits for the occurrence `{record.child}`{'' if why is None else f': {why}'}"
        case WaitingFor.RETRY:
            return f"{name} failed{_error(record)} and is tried again{until.replace('until', 'at')}"
        case _:
            return f"{name} waits{until}"


def _failed_facts(record: StepRecord) -> Facts:
    return present(step_id=record.step_id, attempt=record.attempt, error=record.error)


def _waiting_facts(step: Step, record: StepRecord) -> Facts:
    ready = None if record.ready is None else to_text(record.ready)
    what = waits_for(step, record)
    return present(step_id=record.step_id, waiting_for=str(what), until=ready, occurrence_id=record.child)
