"""A workflow run that this node holds: its steps in memory, and what is still to be written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from noonmark.core.admission import loss_reason
from noonmark.core.errors import NoonmarkError
from noonmark.core.frozen import evolve
from noonmark.core.instants import SECOND
from noonmark.core.interruption import interrupted_at
from noonmark.core.lifecycle import FINAL
from noonmark.core.policies.window import EndAction, window_period_at
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, Suspended, settle
from noonmark.core.workflows.progress import (
    Closing,
    decide,
    end_of_compensation,
    end_of_step,
    read_closing,
    result_problem,
    results,
)
from noonmark.core.workflows.run import Compensation, StepPhase, approval_id
from noonmark.core.workflows.state import RunState
from noonmark.ports.workflows import ApprovalRequest, EventWait, StepWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.window import WindowPeriod
    from noonmark.core.targets import Target
    from noonmark.core.workflows.definition import Definition
    from noonmark.core.workflows.progress import Start, Turn
    from noonmark.core.workflows.run import StepKey, StepRecord, WorkflowRun
    from noonmark.ports.target import Assignment
    from noonmark.ports.workflows import WorkflowVersion

STOP_GRACE: Micros = 10 * SECOND
"""How long the run waits for steps to stop."""
LOST_GRACE: Micros = 5 * SECOND
"""The same when the node gives the run up."""


@dataclass(slots=True)
class Commit:
    """What one look at a run leads to: what to write, and what to do once it is written."""

    writes: StepWrites
    starts: list[tuple[StepKey, Assignment]] = field(default_factory=list)
    """Steps to deliver here."""
    dropped: list[str] = field(default_factory=list)
    """The ids of child occurrences that the run no longer waits for."""


class ActiveRun:
    """One run. Only the thread of the runner touches it."""

    def __init__(  # noqa: PLR0913 - what is known of it
        self,
        assignment: Assignment,
        version: WorkflowVersion,
        definition: Definition,
        run: WorkflowRun,
        records: dict[StepKey, StepRecord],
        facts: dict[str, object],
        *,
        clears: bool,
    ) -> None:
        self.assignment, self.version, self.definition, self.run = assignment, version, definition, run
        self.state, self.facts = RunState(definition, records.values()), facts
        self.under_way: dict[StepKey, Assignment] = {}
        self.closing: Closing | None = None if run.closing is None else read_closing(run.closing)
        self.wake_at: Micros | None = None
        self.stopping_since: Micros | None = None
        self.last_progress: Micros = self._started
        self.end: Closing | None = None
        self.is_draining = False
        """Whether no step is to begin: what carries the run out makes a fresh start once none runs."""
        self.undo_attempts: Counter[StepKey] = Counter()
        """How often each step was tried to be undone."""
        self._unwritten: dict[StepKey, StepRecord] = dict(records) if clears else {}
        self._is_run_unwritten = run.attempt == assignment.occurrence.attempt and (clears or not records)
        self._clears = clears
        self._number_ends_of_others(records.values())
        self._looks_again = False
        self._unfinished: Commit | None = None

    @property
    def occurrence(self) -> Occurrence:
        """The occurrence that it is."""
        return self.assignment.occurrence

    @property
    def has_open_externals(self) -> bool:
        """Whether others are to end some of its steps."""
        return bool(self.state.awaiting)

    @property
    def records(self) -> dict[StepKey, StepRecord]:
        """How its steps are."""
        return self.state.records

    @property
    def is_given_up(self) -> bool:
        """Whether the node stops, or has lost the run: another one goes on with it."""
        return self.assignment.stop_reason is Reason.LEASE_LOST

    def take_external(self, ended: list[StepRecord]) -> bool:
        """Take over ends that others have written; whether there are any."""
        news = [one for one in ended if self.records[one.key].awaits_others and not one.awaits_others]
        for record in news:
            self.state.put(record)
        self._number_ends_of_others(news)
        return bool(news)

    def note_end(self, key: StepKey, assignment: Assignment, delivered: Delivered, *, now: Micros) -> None:
        """Take the end of a step that was delivered here."""
        if self.under_way.get(key) is not assignment:
            return
        del self.under_way[key]
        self._note_exception(key, assignment.error)
        record, step = self.records[key], self.definition.step(key[0])
        if delivered.outcome is Outcome.LEASE_LOST:
            return  # the node stops: whoever goes on begins it again
        outcome, error = delivered.outcome, delivered.error
        is_final = delivered.is_final
        if outcome is Outcome.COMPLETED and error is not None:  # its result cannot be stored
            outcome, is_final = Outcome.FAILED, True
        if assignment.traces is not None:
            times = {"started": delivered.started, "ended": delivered.ended}
            assignment.traces.step(assignment.occurrence, outcome, **times)
        if record.compensation is Compensation.RUNNING:
            self.undo_attempts[key] += 1
            changed = end_of_compensation(
                step,
                record,
                outcome=outcome,
                now=now,
                error=error,
                attempt=self.undo_attempts[key],
                occurrence_id=self.occurrence.id,
            )
        else:
            changed = end_of_step(
                step,
                record,
                outcome=outcome,
                now=now,
                result=delivered.result,
                error=error,
                raised=delivered.raised,
                is_final=is_final,
                retry_after=delivered.retry_after,
                sequence=self.state.sequence + 1,
                occurrence_id=self.occurrence.id,
            )
        self._put(changed)

    def _note_exception(self, key: StepKey, error: BaseException | None) -> None:
        errors = self.assignment.step_errors or {}
        errors.pop(key, None)  # of an earlier attempt
        self.assignment.step_errors = errors if error is None else errors | {key: error}

    def look(self, *, now: Micros, deliver: Deliver) -> Commit:
        """Decide what follows, and what to write for it. What could not be written comes first."""
        if self._unfinished is not None:
            commit, self._unfinished = self._unfinished, None
            return commit
        self.closing = self.closing or self._interruption(now)
        turn = decide(
            self.state,
            self.facts,
            now=now,
            under_way=self.under_way,
            closing=self.closing,
            may_start=self._may_start(now),
            compensates=self.closing is None or self._compensates(self.closing, now),
        )
        if turn.closing is not None and self.closing is None and not self._compensates(turn.closing, now):
            # A failure that another attempt follows undoes nothing.
            turn = decide(
                self.state,
                self.facts,
                now=now,
                under_way=self.under_way,
                closing=turn.closing,
                may_start=False,
                compensates=False,
            )
        self.closing = self.closing or turn.closing
        for record in turn.writes.values():
            self._put(record)
        self._stop(turn, now)
        commit = self._commit(turn, now, deliver)
        self.end, self.wake_at = turn.end, now if self._looks_again else self._wake_time(turn, now)
        self._looks_again = False
        return commit

    def _commit(self, turn: Turn, now: Micros, deliver: Deliver) -> Commit:
        starts: list[tuple[StepKey, Assignment]] = []
        children: list[Occurrence] = []
        for start in turn.starts:
            try:
                target = self.definition.parse_target(start.step.id, start.target)
                delivery = deliver(self, start, target)
            except (NoonmarkError, LookupError, ValueError) as error:
                self._put(self._not_started(start, str(error.args[0] if error.args else error), now))
                self._looks_again = True
                continue
            if isinstance(delivery, tuple):
                child, record = delivery
                self._put(record)
                children.append(child)
            else:
                self.under_way[start.record.key] = delivery
                starts.append((start.record.key, delivery))
        undoes = turn.awaits_inner or any(start.is_compensation for start in turn.starts)
        if turn.closing is not None and undoes and self._compensates(turn.closing, now):
            self._note_closing(turn.closing)
        dropped = [record.child for record in turn.dropped if record.child is not None]
        writes = StepWrites(
            occurrence_id=self.occurrence.id,
            fence=self.occurrence.fence,
            run=self.run if self._is_run_unwritten else None,
            steps=tuple(self._unwritten.values()),
            waits=tuple(
                EventWait(step_id=one.step_id, event_types=one.wait.event_types, filters=one.wait.filters)
                for one in turn.event_waits
            ),
            approvals=tuple(
                ApprovalRequest(
                    approval_id=approval_id(self.occurrence.id, one.step_id, self.run.attempt),
                    step_id=one.step_id,
                    message=one.message,
                    expires=one.expires,
                )
                for one in turn.asks
            ),
            children=tuple(children),
            cancelled=tuple(record.step_id for record in turn.dropped),
            clears=self._clears,
        )
        return Commit(writes, starts, dropped)

    def note_written(self, commit: Commit) -> None:
        """What was to be written is; what has happened since is not."""
        for record in commit.writes.steps:
            if self._unwritten.get(record.key) is record:
                del self._unwritten[record.key]
        if commit.writes.run is self.run:
            self._is_run_unwritten = False
        self._clears = False
        if self._unwritten and self.end is None:
            self.wake_at = 0  # look again at once

    def put_off(self, commit: Commit) -> None:
        """It could not be written: the next look tries that again."""
        self._unfinished = commit

    def delivered(self, closing: Closing, *, now: Micros) -> Delivered:
        """The report of its end."""
        result = self.assignment.result = results(self.definition, self.records)
        error = closing.error
        if (problem := result_problem(result)) is not None:
            result = {}  # the steps have it
            if self._is_child and error is None:
                error = f"the result was not stored: {problem}"
        return Delivered(
            outcome=closing.outcome,
            started=self._started,
            ended=now,
            result=result or None,
            error=error,
            own_words=None if error is None else error.rpartition("\n")[2].partition(":")[0],
            reason=closing.reason,
            is_final=closing.is_final,
        )

    def suspension(self, *, now: Micros) -> Suspended:
        """The report that it waits: nothing of it runs here."""
        open_steps = [self.records[key] for key in self.state.awaiting]
        steps = [self.definition.step(record.step_id) for record in open_steps]
        waits_for_people = bool(steps) and all(step.approval is not None for step in steps)
        return Suspended(
            started=self._started,
            ended=now,
            until=self.wake_at,
            waiting_for=Reason.APPROVAL if waits_for_people else Reason.STEP_PENDING,
            open_steps=frozenset(record.key for record in open_steps),
            is_closing=self.run.closing is not None,
        )

    @property
    def progress(self) -> dict[str, object]:
        """How much of it is done, for people."""
        ended, count, part = self.state.ended, len(self.definition.steps), 0.0
        for step_id, elements in self.state.lists.items():
            whole = self.records[step_id, None]
            if step_id in self.state.open and whole.count:
                part += elements.ended / whole.count
        return {"fraction": min(1.0, (ended + part) / count), "message": f"{ended} of {count} steps ended"}

    @property
    def _is_child(self) -> bool:
        """Whether it is a step of another run, which wants its result."""
        overrides = self.occurrence.overrides
        return overrides is not None and overrides.parent is not None

    @property
    def _started(self) -> Micros:
        started = self.assignment.started
        return self.run.started if started is None else started

    def _number_ends_of_others(self, records: Iterable[StepRecord]) -> None:
        """Give steps that others have completed their place in the order of completion."""
        ended = [one for one in records if one.phase is StepPhase.COMPLETED and not one.sequence]
        for record in sorted(ended, key=lambda one: one.ended or 0):
            self._put(evolve(record, sequence=self.state.sequence + 1))

    def _put(self, record: StepRecord) -> None:
        self.state.put(record)
        self._unwritten[record.key] = record

    def _note_closing(self, closing: Closing) -> None:
        if self.run.closing is None:
            self.run = replace(self.run, closing=closing.to_document())
            self._is_run_unwritten = True

    def _not_started(self, start: Start, why: str, now: Micros) -> StepRecord:
        if start.is_compensation:
            return replace(start.record, compensation=Compensation.FAILED, error=why)
        return replace(start.record, phase=StepPhase.FAILED, ended=now, error=why)

    def _interruption(self, now: Micros) -> Closing | None:
        """How it ends if it was asked to stop, or its time is up."""
        declared = self.assignment.schedule.declaration
        if (lost := loss_reason(self.occurrence, declared)) is not None:
            return Closing(outcome=Outcome.DELIVERY_FAILED, reason=lost, error=lost.sentence)
        stop = self.assignment.stop_reason or self.occurrence.stop
        if stop is not None and stop is not Reason.LEASE_LOST:
            return Closing(outcome=Outcome.CANCELLED, reason=stop)
        if declared.timeout is not None and now >= self.run.started + declared.timeout:
            return Closing(outcome=Outcome.TIMED_OUT)
        closes = interrupted_at(self.occurrence, declared)
        if closes is not None and now >= closes:
            return Closing(outcome=Outcome.CANCELLED, reason=Reason.WINDOW_CLOSED)
        if (period := self._window_period(now)) is not None and not period.is_open and period.until is None:
            return Closing(outcome=Outcome.CANCELLED, reason=Reason.WINDOW_CLOSED)
        return None

    def _window_period(self, now: Micros) -> WindowPeriod | None:
        """Whether its window is open, where runs are suspended when it closes."""
        declared = self.assignment.schedule.declaration
        if declared.window is None or declared.window.end_action is not EndAction.PAUSE:
            return None
        return window_period_at(declared.window, declared.trigger, first_due=self.occurrence.first_due, now=now)

    def _may_start(self, now: Micros) -> bool:
        period = self._window_period(now)
        return not self.is_given_up and not self.is_draining and (period is None or period.is_open)

    def _compensates(self, closing: Closing, now: Micros) -> bool:
        """Whether such an end is final: no other attempt of the occurrence follows."""
        if self.run.closing is not None:
            return True
        delivered = Delivered(
            outcome=closing.outcome,
            started=self._started,
            ended=now,
            reason=closing.reason,
            error=closing.error,
            is_final=closing.is_final,
        )
        return settle(self.occurrence, self.assignment.schedule, delivered, node="").phase in FINAL

    def _stop(self, turn: Turn, now: Micros) -> None:
        """Ask steps to stop; those that do not are given up after a while."""
        if not turn.stops:
            self.stopping_since = None
            return
        if self.stopping_since is None:
            self.stopping_since = now
        for key in turn.stops:
            self.under_way[key].stop(Reason.CANCELLED)
        if now - self.stopping_since >= STOP_GRACE:
            self._looks_again = True
            for key in turn.stops:
                self.under_way.pop(key).is_closed = True
                self._put(
                    replace(self.records[key], phase=StepPhase.CANCELLED, ended=now, error="it did not stop in time")
                )

    def _wake_time(self, turn: Turn, now: Micros) -> Micros | None:
        """When to look again by itself."""
        declared = self.assignment.schedule.declaration
        times = [] if turn.wake_at is None else [turn.wake_at]
        if self.closing is None:
            if declared.timeout is not None:
                times.append(self.run.started + declared.timeout)
            if (closes := interrupted_at(self.occurrence, declared)) is not None:
                times.append(closes)
            if (period := self._window_period(now)) is not None and period.until is not None:
                times.append(period.until)
        elif self.stopping_since is not None and self.under_way:
            times.append(self.stopping_since + STOP_GRACE)
        return min(times, default=None)


if TYPE_CHECKING:
    Deliver = Callable[[ActiveRun, Start, Target], Assignment | tuple[Occurrence, StepRecord]]
