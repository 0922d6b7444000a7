"""Progress: what follows for a workflow run from how far its steps have come.

`decide` looks at the steps in the order of the graph, so that what follows from one step is seen by the next one. It
says what to write, what to start and stop, and how the run ends; the node writes first, then starts. A step begins when
all that it depends on has ended and at least one of it has completed: what was skipped does not hold back what joins
two branches. When a run fails, is stopped or times out, its running steps are stopped, the rest is cancelled, and
completed steps are compensated, the last one first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import evolve, frozen
from noonmark.core.instants import parse_instant
from noonmark.core.policies.retry import TIMEOUT, next_attempt
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.workflows.definition import MAX_RESULT, OnFailure
from noonmark.core.workflows.run import Compensation, StepPhase, StepRecord
from noonmark.core.workflows.state import Elements
from noonmark.core.workflows.steps import CONCURRENCY, WAIT_TIMEOUT
from noonmark.core.workflows.substitution import fill_compensation, fill_text, fill_wait, holds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.policies.retry import RetryPolicy
    from noonmark.core.workflows.definition import Definition
    from noonmark.core.workflows.run import StepKey
    from noonmark.core.workflows.state import RunState
    from noonmark.core.workflows.steps import Step, Wait

COMPENSATION_ATTEMPTS = 3
"""How often the compensation of a step is tried, unless its retry policy allows more."""
_BEHIND_FAILURE = "a step that it depends on failed"
"""Why steps are skipped that depend on a failed one, directly or through others."""
MAX_ERROR = 2_000
"""Characters of the error of a step that its run repeats."""


@frozen(kw_only=True)
class Closing:
    """How a run ends, once its steps have stopped and what is to be undone is undone."""

    outcome: Outcome
    reason: Reason | None = None
    error: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether no other attempt may follow: its lease was lost."""
        return self.outcome is Outcome.DELIVERY_FAILED

    def to_document(self) -> dict[str, Any]:
        """The end as it is stored."""
        return {"outcome": str(self.outcome), "reason": self.reason and str(self.reason), "error": self.error}


def read_closing(document: Mapping[str, Any]) -> Closing:
    """Read the document that `to_document` writes."""
    reasons = {str(reason): reason for reason in Reason}
    return Closing(
        outcome=Outcome(document["outcome"]), reason=reasons.get(document["reason"]), error=document["error"]
    )


@frozen(kw_only=True)
class Start:
    """A step, or an element of its list, that begins now; its record says that it runs."""

    step: Step
    record: StepRecord
    target: dict[str, Any] = field(hash=False)
    """The target document, filled in."""
    is_compensation: bool = False


@frozen(kw_only=True)
class Ask:
    """An approval that is asked for."""

    step_id: str
    message: str
    expires: Micros


@frozen(kw_only=True)
class AwaitEvent:
    """An event that a step waits for."""

    step_id: str
    wait: Wait


@dataclass(slots=True, kw_only=True)
class Turn:
    """What follows now."""

    writes: dict[StepKey, StepRecord] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    event_waits: list[AwaitEvent] = field(default_factory=list)
    stops: list[StepKey] = field(default_factory=list)
    """Steps that run on the node and are asked to stop."""
    dropped: list[StepRecord] = field(default_factory=list)
    """Steps that others would have ended, and that are to stop."""
    awaits_inner: bool = False
    """The run ends, and an inner workflow has not ended yet: it has steps of its own to undo."""
    wake_at: Micros | None = None
    """When to look again, even if nothing has ended until then."""
    closing: Closing | None = None
    """How it will end: completed steps are being compensated."""
    end: Closing | None = None
    """How it ends now."""

    def wake(self, at: Micros) -> None:
        """Look again at that time at the latest."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def decide(  # noqa: PLR0913 - what is known of the run
    state: RunState,
    facts: Mapping[str, Any],
    *,
    now: Micros,
    under_way: Collection[StepKey] = (),
    closing: Closing | None = None,
    may_start: bool = True,
    compensates: bool = True,
) -> Turn:
    """Decide what follows for a run.

    `facts` has those of the occurrence and the inputs. `under_way` are the steps that run on this node: others whose
    record says so were lost with another node, and begin again. With `closing`, the run is to end like that. Without
    `may_start`, its window is closed, and no step begins. It `compensates` unless another attempt follows.
    """
    return _Decision(state, facts, now, under_way, may_start=may_start).take(closing, compensates=compensates)


def started_target(state: RunState, facts: Mapping[str, Any], record: StepRecord, *, undoes: bool) -> dict[str, Any]:
    """The target document of a step that was started, or of what undoes it, filled in again from the state."""
    step_facts = {**facts, "steps": _StepFacts(state.definition, state.records.get)}
    return _fill(state, step_facts, record, undoes=undoes)


def _fill(state: RunState, facts: Mapping[str, Any], record: StepRecord, *, undoes: bool) -> dict[str, Any]:
    step = state.definition.step(record.step_id)
    if record.index is not None:
        facts = {**facts, "item": state.items(step, facts)[record.index], "index": record.index}
    return fill_compensation(step, facts) if undoes else state.definition.fill_target(step, facts)


class _Decision:
    """One look at a run."""

    def __init__(
        self,
        state: RunState,
        facts: Mapping[str, Any],
        now: Micros,
        under_way: Collection[StepKey],
        *,
        may_start: bool,
    ) -> None:
        self._state, self._definition, self._now = state, state.definition, now
        self._under_way, self._may_start = under_way, may_start
        self._turn = Turn()
        self._writes = self._turn.writes
        self._facts = {**facts, "steps": _StepFacts(self._definition, self._record)}
        self._sequence, self._ended = state.sequence, state.ended
        self._failed = list(state.failed.values())
        self._pending: list[int] = []
        """The places of steps to look at, as a heap: each after those that it depends on."""

    def take(self, closing: Closing | None, *, compensates: bool) -> Turn:
        if closing is None:
            self._advance_all()
            closing = self._failure()
            if closing is None:
                if self._is_over():
                    self._turn.end = Closing(outcome=Outcome.COMPLETED)
                return self._turn
        self._close(closing, compensates=compensates)
        return self._turn

    def _record(self, key: StepKey) -> StepRecord | None:
        """How a step is after what was decided so far."""
        return self._writes.get(key) or self._state.records.get(key)

    def _records(self) -> dict[StepKey, StepRecord]:
        return self._state.records | self._writes

    # A run that goes on

    def _advance_all(self) -> None:
        """Look at the steps that have begun or can begin, and at those that follow from what is decided."""
        order, place = self._definition.order, self._definition.place
        self._pending = sorted(map(place, (*self._state.open, *self._state.next)))
        last = -1
        while self._pending:
            at = heappop(self._pending)
            if at != last:
                self._advance(order[at])
                last = at

    def _advance(self, step: Step) -> None:
        record = self._record((step.id, None))
        if record is None:
            self._begin(step)
        elif record.has_ended:
            return
        elif step.wait is not None or step.approval is not None:
            self._await(step, record)
        elif record.count is not None:
            self._advance_elements(step, record)
        else:
            self._go_on(step, record)

    def _begin(self, step: Step) -> None:
        """Begin a step whose upstreams have ended, or skip it."""
        if not self._is_next(step) or not self._may_start:
            return
        try:
            if step.when is not None and not holds(step.when, self._facts):
                self._write(_record(step, StepPhase.SKIPPED, ended=self._now, error="its condition does not hold"))
            elif step.wait is not None:
                self._begin_wait(step, fill_wait(step.wait, self._facts))
            elif step.approval is not None:
                expires, message = self._now + step.approval.expires, fill_text(step.approval.message, self._facts)
                self._turn.asks.append(Ask(step_id=step.id, message=message, expires=expires))
                self._open(step, ready=expires, is_external=True)
            elif step.for_each is not None:
                opened = _record(
                    step,
                    StepPhase.RUNNING,
                    started=self._now,
                    count=len(self._state.items(step, self._facts)),
                    attempt=1,
                )
                self._write(opened)
                self._advance_elements(step, opened)
            else:
                self._start(step, _record(step, StepPhase.RUNNING, started=self._now, attempt=1))
        except ValueError as error:
            self._fail(step, str(error))

    def _is_next(self, step: Step) -> bool:
        """Whether nothing holds a step back; one that will never run is skipped."""
        upstreams = [self._record((upstream, None)) for upstream in step.depends_on]
        if any(upstream is None or not upstream.has_ended for upstream in upstreams):
            return False
        phases = {upstream.phase for upstream in upstreams if upstream is not None}
        if not any(_is_behind_failure(upstream) for upstream in upstreams if upstream is not None):
            if phases != {StepPhase.SKIPPED}:
                return True
            why = "all that it depends on was skipped"
        elif self._definition.on_failure is OnFailure.STOP:
            return False  # the run ends, and cancels it
        else:
            why = _BEHIND_FAILURE
        self._write(_record(step, StepPhase.SKIPPED, ended=self._now, error=why))
        return False

    def _begin_wait(self, step: Step, wait: Wait) -> None:
        if wait.event_types:
            self._turn.event_waits.append(AwaitEvent(step_id=step.id, wait=wait))
            self._open(step, ready=self._now + (wait.timeout or WAIT_TIMEOUT), is_external=True)
            return
        until = self._now + (wait.seconds or 0) if wait.until is None else parse_instant(wait.until)
        self._await(step, self._open(step, ready=until))

    def _open(self, step: Step, *, ready: Micros, is_external: bool = False) -> StepRecord:
        record = _record(step, StepPhase.RUNNING, started=self._now, attempt=1, ready=ready, is_external=is_external)
        self._write(record)
        self._turn.wake(ready)
        return record

    def _await(self, step: Step, record: StepRecord) -> None:
        """End a wait whose time has come; an event that never came, or an approval that expired, is a failure."""
        ready = record.ready or self._now
        if ready > self._now:
            self._turn.wake(ready)
        elif not record.is_external:
            self._complete(record, None)
        else:
            what = "no matching event came in time" if step.approval is None else "the approval expired"
            self._turn.dropped.append(record)
            self._write(replace(record, phase=StepPhase.FAILED, ended=self._now, error=what, ready=None))

    def _go_on(self, step: Step, record: StepRecord) -> None:
        """Begin the next attempt when it is due, or what was lost with its node."""
        if record.phase is StepPhase.PENDING:
            if record.ready is not None and record.ready > self._now:
                self._turn.wake(record.ready)
            elif self._may_start:
                self._start_again(step, replace(record, attempt=record.attempt + 1))
        elif not record.is_external and record.key not in self._under_way and self._may_start:
            self._start_again(step, record)

    def _start_again(self, step: Step, record: StepRecord) -> None:
        begun = replace(
            record, phase=StepPhase.RUNNING, started=self._now, ended=None, error=None, ready=None, child=None
        )
        try:
            self._start(step, begun)
        except ValueError as error:
            self._write(replace(begun, phase=StepPhase.FAILED, ended=self._now, error=str(error)))

    def _start(self, step: Step, record: StepRecord) -> None:
        target = _fill(self._state, self._facts, record, undoes=False)
        self._write(record)
        self._turn.starts.append(Start(step=step, record=record, target=target))

    def _advance_elements(self, step: Step, record: StepRecord) -> None:
        """Begin elements as long as fewer run than may, and end the step with its last element."""
        elements = self._state.lists.get(step.id) or Elements()
        ended, failed = elements.ended, elements.failed
        for index in elements.open:
            self._go_on(step, self._state.records[step.id, index])
            if (step.id, index) in self._writes and self._writes[step.id, index].has_ended:
                ended, failed = ended + 1, failed + 1  # it could not be filled in
        running = len(elements.open) - (ended - elements.ended)
        unfilled = self._begin_elements(step, record.count or 0, elements, running, failed)
        ended, failed = ended + unfilled, failed + unfilled
        if failed and (ended == record.count or self._stops_at(failed)):
            error = f"{failed:,} of {record.count:,} elements failed"
            self._write(evolve(record, phase=StepPhase.FAILED, ended=self._now, error=error))
        elif ended == record.count:
            self._complete(record, None)

    def _begin_elements(self, step: Step, count: int, elements: Elements, running: int, failed: int) -> int:
        """Begin elements that have not begun, as far as they may; returns how many could not be filled in."""
        most, unfilled = step.concurrency or CONCURRENCY, 0
        for index in range(elements.next, count):
            if not self._may_start or self._stops_at(failed + unfilled) or running >= most:
                break
            if index in elements.beyond:
                continue
            element = _record(step, StepPhase.RUNNING, started=self._now, attempt=1, index=index)
            try:
                target = _fill(self._state, self._facts, element, undoes=False)
            except ValueError as error:
                self._write(evolve(element, phase=StepPhase.FAILED, ended=self._now, error=str(error)))
                unfilled += 1
            else:
                self._write(element)
                self._turn.starts.append(Start(step=step, record=element, target=target))
                running += 1
        return unfilled

    def _stops_at(self, failed: int) -> bool:
        """Whether so many failed elements end their list."""
        return failed > 0 and self._definition.on_failure is OnFailure.STOP

    def _complete(self, record: StepRecord, result: Any) -> None:
        self._sequence += 1
        self._write(
            replace(
                record,
                phase=StepPhase.COMPLETED,
                ended=self._now,
                result=result,
                ready=None,
                sequence=self._sequence,
            )
        )

    def _fail(self, step: Step, error: str) -> None:
        self._write(_record(step, StepPhase.FAILED, started=self._now, ended=self._now, error=error, attempt=1))

    def _write(self, record: StepRecord) -> None:
        """Note how a step is; one that ends is followed by those that depend on it."""
        self._put(record)
        if record.index is None and record.has_ended:
            self._ended += 1
            if record.phase is StepPhase.FAILED:
                self._failed.append(record)
            for later in self._definition.dependents(record.step_id):
                heappush(self._pending, self._definition.place(later.id))

    def _put(self, record: StepRecord) -> None:
        self._writes[record.key] = record

    def _is_over(self) -> bool:
        return self._ended == len(self._definition.steps)

    def _failure(self) -> Closing | None:
        """How a run fails: at its first failure, or when nothing is left to do."""
        if not self._failed:
            return None
        if self._definition.on_failure is OnFailure.CONTINUE and not self._is_over():
            return None
        return Closing(outcome=Outcome.FAILED, error=_failure_text(self._definition, self._record, self._failed))

    # A run that ends

    def _close(self, closing: Closing, *, compensates: bool) -> None:
        """Stop what runs, cancel the rest, undo what completed, and end."""
        # What would have begun in this turn does not.
        self._turn.starts, self._turn.asks, self._turn.event_waits = [], [], []
        self._turn.wake_at = None
        self._turn.closing = closing
        is_busy = False
        records = self._records()
        for record in records.values():
            if record.is_being_stopped:  # asked again: the node that was to ask may have been lost
                self._turn.awaits_inner = True
                self._turn.dropped.append(record)
                continue
            if record.has_ended:
                continue
            if record.key in self._under_way:
                is_busy = True
                self._turn.stops.append(record.key)
                continue
            cancelled = replace(record, phase=StepPhase.CANCELLED, ended=self._now, ready=None)
            if record.is_external:
                self._turn.dropped.append(record)
                if record.child is not None and self._definition.step(record.step_id).kind == "workflow":
                    self._turn.awaits_inner = True
                    cancelled = replace(cancelled, compensation=Compensation.ELSEWHERE)
            self._put(cancelled)
        for step in self._definition.steps:
            if (step.id, None) not in records:
                self._put(_record(step, StepPhase.CANCELLED, ended=self._now))
        is_busy = is_busy or self._turn.awaits_inner
        if not is_busy and not (compensates and self._compensate()):
            self._turn.end, self._turn.closing = replace(closing, error=self._with_compensation(closing.error)), None

    def _compensate(self) -> bool:
        """Go on with the compensation, one step at a time; whether there is more to do."""
        for record in self._to_compensate():
            step = self._definition.step(record.step_id)
            if record.compensation is Compensation.ELSEWHERE or record.key in self._under_way:
                return True
            if record.ready is not None and record.ready > self._now:
                self._turn.wake(record.ready)
                return True
            begun = replace(record, compensation=Compensation.RUNNING, ready=None, child=None)
            try:
                target = _fill(self._state, self._facts, begun, undoes=True)
            except ValueError as error:
                self._put(replace(begun, compensation=Compensation.FAILED, error=str(error)))
                continue
            self._put(begun)
            self._turn.starts.append(Start(step=step, record=begun, target=target, is_compensation=True))
            return True
        return False

    def _to_compensate(self) -> Iterator[StepRecord]:
        """Completed steps that can be undone and are not yet, the last one first."""
        completed = [
            record
            for record in self._records().values()
            if record.phase is StepPhase.COMPLETED
            and record.compensation is not Compensation.FAILED
            and record.count is None
            and self._definition.step(record.step_id).compensate is not None
        ]
        yield from sorted(completed, key=lambda record: record.sequence, reverse=True)

    def _with_compensation(self, error: str | None) -> str | None:
        """The error of a run, with the steps whose compensation failed."""
        failed = [_named(record) for record in self._records().values() if record.compensation is Compensation.FAILED]
        if not failed:
            return error
        text = f"could not be undone: {', '.join(failed)}"
        return text if error is None else f"{error}; {text}"


def end_of_step(  # noqa: PLR0913 - what is known of the delivery
    step: Step,
    record: StepRecord,
    *,
    outcome: Outcome,
    now: Micros,
    result: Any = None,
    error: str | None = None,
    raised: tuple[str, ...] = (),
    is_final: bool = False,
    retry_after: Micros = 0,
    sequence: int,
    occurrence_id: str,
) -> StepRecord:
    """The record of a step whose delivery has ended: its end, or when the next attempt is due."""
    if outcome is Outcome.COMPLETED:
        if (problem := result_problem(result)) is not None:
            return evolve(record, phase=StepPhase.FAILED, ended=now, ready=None, error=problem)
        return evolve(
            record,
            phase=StepPhase.COMPLETED,
            ended=now,
            ready=None,
            result=result,
            error=None,
            sequence=sequence,
        )
    if outcome is Outcome.CANCELLED:
        return evolve(record, phase=StepPhase.CANCELLED, ended=now, ready=None, error=error)
    decision = next_attempt(
        step.retry,
        attempt=record.attempt,
        failed_at=now,
        occurrence_id=f"{occurrence_id}/{step.id}/{record.index}",
        least=retry_after,
        raised=TIMEOUT if outcome is Outcome.TIMED_OUT else raised,
    )
    text = error if error is not None or outcome is not Outcome.TIMED_OUT else "it took longer than its timeout"
    if is_final or decision.retry_at is None:
        return evolve(record, phase=StepPhase.FAILED, ended=now, ready=None, error=text)
    return replace(record, phase=StepPhase.PENDING, ended=None, error=text, ready=decision.retry_at)


def end_of_compensation(  # noqa: PLR0913 - likewise
    step: Step,
    record: StepRecord,
    *,
    outcome: Outcome,
    now: Micros,
    error: str | None,
    attempt: int,
    occurrence_id: str,
) -> StepRecord:
    """The record of a step after an attempt to undo it."""
    if outcome is Outcome.COMPLETED:
        return replace(record, phase=StepPhase.COMPENSATED, compensation=None, ready=None, error=None)
    decision = next_attempt(
        compensation_policy(step),
        attempt=attempt,
        failed_at=now,
        occurrence_id=f"{occurrence_id}/{step.id}/{record.index}/undo",
    )
    if decision.retry_at is None:
        return replace(record, compensation=Compensation.FAILED, ready=None, error=error)
    return replace(record, compensation=Compensation.RUNNING, ready=decision.retry_at, error=error)


def compensation_policy(step: Step) -> RetryPolicy:
    """How often the compensation of a step is tried, and when."""
    attempts = max(step.retry.max_attempts, COMPENSATION_ATTEMPTS)
    return replace(step.retry, max_attempts=attempts, on=(), not_on=())


def result_problem(result: Any) -> str | None:
    """Why a result cannot be stored with its step, if it cannot."""
    if result is None:
        return None
    size = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    if size <= MAX_RESULT:
        return None
    return f"its result has {size:,} bytes as JSON; a step may have at most {MAX_RESULT:,}"


def results(definition: Definition, records: Mapping[StepKey, StepRecord]) -> dict[str, Any]:
    """The result of each completed step, by its id; of a list, those of its elements in order."""
    facts = _StepFacts(definition, records.get)
    return {
        step.id: facts[step.id]["result"]
        for step in definition.steps
        if (record := records.get((step.id, None))) is not None and record.phase is StepPhase.COMPLETED
    }


def for_next_attempt(records: Mapping[StepKey, StepRecord]) -> dict[StepKey, StepRecord] | None:
    """What another attempt of a run keeps: its completed steps; None if some were undone, so that it begins anew."""
    if any(record.phase is StepPhase.COMPENSATED or record.compensation is not None for record in records.values()):
        return None
    kept = {key: record for key, record in records.items() if record.phase is StepPhase.COMPLETED}
    # An element is kept with its list, which goes on with the others.
    lists = {
        key: replace(record, phase=StepPhase.RUNNING, ended=None, error=None)
        for key, record in records.items()
        if record.count is not None and key not in kept
    }
    return kept | lists


class _StepFacts(dict[str, Any]):
    """What placeholders see of the steps, put together when it is asked for."""

    def __init__(self, definition: Definition, find: Callable[[StepKey], StepRecord | None]) -> None:
        super().__init__()
        self._definition, self._find = definition, find

    def __missing__(self, step_id: str) -> dict[str, Any]:
        record = self._find((step_id, None))
        phase = StepPhase.PENDING if record is None else record.phase
        if record is None or record.count is None:
            return {"result": None if record is None else record.result, "phase": str(phase)}
        elements = [self._find((step_id, index)) for index in range(record.count)]
        return {"result": [None if one is None else one.result for one in elements], "phase": str(phase)}

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._definition


def _record(step: Step, phase: StepPhase, **fields: Any) -> StepRecord:
    return StepRecord(step_id=step.id, phase=phase, **fields)


def _is_behind_failure(record: StepRecord) -> bool:
    """Whether an ended step failed, or was skipped because of one that did."""
    if record.phase is StepPhase.SKIPPED:
        return record.error == _BEHIND_FAILURE
    return record.phase is not StepPhase.COMPLETED


def _named(record: StepRecord) -> str:
    return f"'{record.step_id}'" if record.index is None else f"'{record.step_id}' (element {record.index})"


def _failure_text(
    definition: Definition, find: Callable[[StepKey], StepRecord | None], failed: list[StepRecord]
) -> str:
    """What failed first, in the order of time, and how many others did; on the last line, below a traceback."""
    first = min(failed, key=lambda record: (record.ended or 0, record.step_id))
    what, error = "", _lines(first)
    if first.count is not None:
        element = next(
            (
                one
                for index in range(first.count)
                if (one := find((first.step_id, index))) is not None and one.phase is StepPhase.FAILED
            ),
            None,
        )
        if element is not None:
            what, error = f"{error[-1]}; element {element.index}: ", _lines(element)
    others = len(failed) - 1
    more = "" if not others else f" (and {others} more of {len(definition.steps)} steps)"
    traceback = "\n".join(error)[-MAX_ERROR:] + "\n" if len(error) > 1 else ""
    return f"{traceback}step {_named(first)} failed{more}: {what}{error[-1][-MAX_ERROR:]}"


def _lines(record: StepRecord) -> list[str]:
    return (record.error or "").strip().splitlines() or ["it failed"]
