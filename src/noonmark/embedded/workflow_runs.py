"""Runs of workflows as a Python program sees them: started, waited for, and read."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn, Self

from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict, NotFound, RunFailed
from noonmark.core.frozen import brief, frozen
from noonmark.core.instants import from_micros, parse_instant, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import reason_sentence
from noonmark.core.workflows.definition import restore_definition
from noonmark.core.workflows.progress import results
from noonmark.core.workflows.run import StepPhase
from noonmark.embedded.run_now import (
    Ending,
    any_runner,
    check_may_wait,
    exception_line,
    not_here,
    served_routes,
    wait_for_end,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.workflows.definition import Definition
    from noonmark.core.workflows.run import StepKey, StepRecord
    from noonmark.embedded.runners import Runner
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.store import Store
    from noonmark.ports.workflows import WorkflowVersion

    Records = Mapping[StepKey, StepRecord]


@frozen(kw_only=True)
class StepRun:
    """A step of a workflow run, or one element of its list, as it was when it was read."""

    step_id: str
    index: int | None
    """The place of the element in the list of a step with `for_each`; None for the step itself."""
    phase: StepPhase
    attempt: int
    """How many attempts it has had."""
    started: datetime | None
    ended: datetime | None
    result: Any = field(hash=False)
    error: str | None
    """Why it failed or was skipped."""
    waiting_for: str | None
    """What it waits for: `time`, `event`, `approval`, `retry` or `occurrence`."""
    ready: datetime | None
    """When its wait ends, its approval expires, or its next attempt is due."""
    approval_id: str | None
    """What `approve` and `deny` take."""
    occurrence_id: str | None
    """The occurrence that does its work, where that is one of its own."""

    def __repr__(self) -> str:
        about = {"phase": str(self.phase), "waiting_for": self.waiting_for, "attempt": self.attempt}
        return brief(self, step_id=self.step_id, index=self.index, **about)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From the answer of the operation."""
        return cls(
            step_id=document["step_id"],
            index=document["index"],
            phase=StepPhase(document["phase"]),
            attempt=document["attempt"],
            started=_instant(document["started_at_utc"]),
            ended=_instant(document["ended_at_utc"]),
            result=document["result"],
            error=document["error"],
            waiting_for=document["waiting_for"],
            ready=_instant(document["ready_at_utc"]),
            approval_id=document["approval_id"],
            occurrence_id=document["occurrence_id"],
        )


@frozen(kw_only=True)
class WorkflowRun:
    """A run of a workflow as it was when it was read."""

    id: str
    """The id of the run, which is the id of its occurrence."""
    workflow_id: str
    version: int | None
    phase: Phase
    inputs: dict[str, Any] = field(hash=False)
    started: datetime | None
    ended: datetime | None
    waiting_for: str | None
    """What it waits for while it is pending."""
    steps: tuple[StepRun, ...]
    """In the order of the definition; after a step with `for_each`, its elements."""
    result: Any = field(hash=False)
    """The result of each completed step by its id, once the run has ended."""
    error: str | None
    """Which step failed, and why."""

    def __repr__(self) -> str:
        return brief(self, workflow_id=self.workflow_id, version=self.version, phase=str(self.phase), id=self.id)

    def step(self, step_id: str) -> StepRun:
        """The step with an id; KeyError if there is none."""
        for step in self.steps:
            if step.step_id == step_id and step.index is None:
                return step
        raise KeyError(step_id)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From the answer of the operation."""
        return cls(
            id=document["workflow_run_id"],
            workflow_id=document["workflow_id"],
            version=document["version"],
            phase=Phase(document["phase"]),
            inputs=document["inputs"],
            started=_instant(document["started_at_utc"]),
            ended=_instant(document["ended_at_utc"]),
            waiting_for=document["waiting_for"],
            steps=tuple(StepRun.from_document(step) for step in document["steps"] or ()),
            result=document["result"],
            error=document["error"],
        )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else from_micros(parse_instant(text))


@frozen
class EndedRun:
    """A workflow run that has ended, with what its steps left in this process."""

    occurrence: Occurrence
    definition: Definition
    records: Records
    errors: Mapping[StepKey, BaseException]
    """The exceptions of steps whose functions ran here."""

    def results(self) -> dict[str, Any]:
        """The result of each completed step by its id."""
        return results(self.definition, self.records)

    def phase_of(self, step_id: str) -> StepPhase | None:
        """The phase of a step; None if it never began."""
        record = self.records.get((step_id, None))
        return None if record is None else record.phase

    def error_of(self, step_id: str) -> BaseException:
        """The error of a step that did not complete: its exception, or one that says what is recorded."""
        own = [error for key, error in self.errors.items() if key[0] == step_id]
        record = self.records.get((step_id, None))
        text = None if record is None else record.error
        return own[0] if own else RunFailed(exception_line(text) or "it did not complete", step_id=step_id)


def start_and_wait(
    runtime: Runtime,
    runner: Runner | None,
    new_runner: Callable[[], Runner],
    version: WorkflowVersion,
    start: Callable[[Callable[[str], None]], str],
    look: Callable[[str, Records], None] | None = None,
) -> EndedRun:
    """Start a run and wait for its end, here or in another process; `look` sees its steps from time to time.

    `start` calls its argument with the id of the run before it stores the run. Without a runner, one is made for this
    call.
    """
    definition = restore_definition(dict(version.document))
    check_may_wait(runner)
    if runner is None:
        _check_served(runtime, definition)
    with any_runner(runner, new_runner) as used:
        on_end, ending = used.loop.driver.node.on_end, Ending()
        run_id = start(lambda expected: on_end.update({expected: ending}))

        def go_on() -> None:
            _check_time_passes(runtime, run_id)
            if runner is None:
                _fetch_more(runtime.store, used, run_id)
            if look is not None:
                look(run_id, _records(runtime.store, run_id))

        try:
            ended = wait_for_end(runtime, used, find_occurrence(runtime.store, run_id), ending, go_on)
        finally:
            on_end.pop(run_id, None)
    records = _records(runtime.store, run_id)
    if look is not None:
        look(run_id, records)
    errors = {} if ending.assignment is None else ending.assignment.step_errors or {}
    return EndedRun(ended, definition, records, errors)


def raise_unless_completed(run: EndedRun) -> None:
    """Raise an error that says what became of a run, and which step failed."""
    if run.occurrence.phase is not Phase.COMPLETED:
        _raise(run)


def _raise(run: EndedRun) -> NoReturn:
    workflow_id, run_id = run.definition.workflow_id, run.occurrence.id
    failed = sorted(
        (one for one in run.records.values() if one.phase is StepPhase.FAILED), key=lambda one: one.ended or 0
    )
    what = f"run {run_id} of workflow {workflow_id!r}"
    if run.occurrence.phase is Phase.TIMED_OUT:
        raise TimeoutError(f"{what} took longer than its timeout")
    if run.occurrence.phase is not Phase.FAILED or not failed:
        ended = run.occurrence
        reason = "" if ended.reason is None else f": {reason_sentence(ended.reason, ended.detail)}"
        raise RunFailed(f"{what} ended as {ended.phase}{reason}", result=run.results())
    first = next((one for one in failed if one.index is not None), failed[0])
    place = f"step {first.step_id!r}" if first.index is None else f"step {first.step_id!r}, element {first.index},"
    message = f"{place} failed: {exception_line(first.error) or 'it did not complete'} ({what})"
    raise RunFailed(message, result=run.results(), step_id=first.step_id) from run.errors.get(first.key)


def has_run(record: StepRecord) -> bool:
    """Whether a step has ended after it had begun: it was neither skipped nor cancelled before."""
    return record.has_ended and record.attempt > 0


def _records(store: Store, run_id: str) -> Records:
    stored = store.workflow_run(run_id)
    return {} if stored is None else {record.key: record for record in stored[1]}


def _check_served(runtime: Runtime, definition: Definition) -> None:
    """Refuse a workflow with a step that neither this process nor any other can do."""
    runtime.target.adopt(definition.routes)
    missing = sorted(definition.routes - served_routes(runtime))
    if missing:
        raise not_here(missing[0])


def _check_time_passes(runtime: Runtime, run_id: str) -> None:
    """Refuse to wait for a time that a clock which stands still does not reach."""
    if isinstance(runtime.clock, SystemClock):
        return
    for record in _records(runtime.store, run_id).values():
        if record.is_external or record.has_ended or record.ready is None:
            continue
        if record.ready > runtime.clock.micros():
            raise Conflict(
                f"step {record.step_id!r} goes on at {to_text(record.ready)}, and the clock stands still: use"
                " wait=False, and let ManualDriver run it"
            )


def _fetch_more(store: Store, runner: Runner, run_id: str) -> None:
    """Do what a started node does by itself: claim the children of a run, and match the events that it waits for."""
    for record in list(_open_steps(store, run_id)):
        if record.child is not None:
            child = record.child
            runner.call(lambda loop, child=child: loop.fetch(child))  # type: ignore[misc] # it takes the loop alone
        else:
            runner.call(lambda loop: loop.driver.match_once())
            runner.wake()


def _open_steps(store: Store, run_id: str) -> Iterator[StepRecord]:
    """The steps of a run that others end, and those of the runs that it has started."""
    for record in _records(store, run_id).values():
        if record.awaits_others:
            yield record
            if record.child is not None:
                yield from _open_steps(store, record.child)


def find_occurrence(store: Store, run_id: str) -> Occurrence:
    """The occurrence of a run; NotFound if it was removed."""
    occurrence = store.occurrence(run_id)
    if occurrence is None:
        raise NotFound(f"there is no workflow run {run_id!r}", field="workflow_run_id")
    return occurrence
