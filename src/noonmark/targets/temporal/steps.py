"""Steps: a workflow run whose steps are activities, by the same rules as one that a node holds.

Nothing of a run is in memory between two turns. A turn reads the run, takes the ends of steps that the workflow of the
engine has collected, decides what follows, and writes that under the fence of the start. A turn that is repeated
because its answer was lost finds what it has written, and comes to the same answer.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NoonmarkError, StoreUnavailable
from noonmark.core.frozen import evolve
from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.core.workflows.progress import started_target
from noonmark.core.workflows.run import Compensation, StepPhase
from noonmark.ports.target import Assignment
from noonmark.targets.outcomes import undeliverable
from noonmark.targets.temporal.documents import read_delivered, to_document
from noonmark.targets.workflow.deliveries import step_assignment
from noonmark.targets.workflow.runner import WorkflowRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.targets import Target as TargetDocument
    from noonmark.core.workflows.run import StepRecord
    from noonmark.ports.store import Store
    from noonmark.targets.workflow.active_run import ActiveRun

Document = dict[str, Any]


class StepRuns(WorkflowRunner):
    """Takes the turns of workflow runs, one at a time; from any thread."""

    def __init__(
        self, store: Store, routes: Collection[str], now: Callable[[], Micros], *, has_callbacks: bool = False
    ) -> None:
        """Steps with one of the routes become activities; others are occurrences of their own."""
        super().__init__(store, has_callbacks=has_callbacks)
        self._routes, self._now = frozenset(routes), now
        self._turns = threading.Lock()

    def advance(self, assignment: Assignment, given: Mapping[str, Any]) -> Document | None:
        """Take a turn of a run: what to start, to stop and to wait for, or its end. None if the fence is refused."""
        with self._turns:
            self._versions.clear()
            now = self._now()
            try:
                run = self._resume(assignment, given, now)
            except StoreUnavailable:
                raise
            except (NoonmarkError, LookupError, ValueError) as error:
                why = str(error.args[0] if error.args else error)
                return {**to_document(replace(undeliverable(why, now=now), is_final=True)), "memory": {}}
            return self._take_turn(run, now)

    def assignment(self, parent: Assignment, start: Mapping[str, Any]) -> Assignment | None:
        """The delivery of a step; None if its end is on record, or another attempt of it has begun."""
        undoes, now = start["undoes"], self._now()
        with self._turns:
            self._versions.clear()
            run = self._load(parent, now, may_have_begun=True)
        record = run.records.get((start["step_id"], start["index"]))
        if record is None or not _runs(record, start):
            return None
        # It is filled in here: in the history of the engine, many of them would exceed its limits.
        document = started_target(run.state, run.facts, record, undoes=undoes)
        return step_assignment(
            parent,
            run.version.source,
            run.definition.step(record.step_id),
            record,
            run.definition.parse_target(record.step_id, document),
            self._on_report,
            undoes=undoes,
            now=now,
        )

    def _resume(self, assignment: Assignment, given: Mapping[str, Any], now: Micros) -> ActiveRun:
        """The run as the store has it, with what the engine knows of its steps."""
        memory = given["memory"]
        # Workers that were lost count as nodes that were: the same rule gives a run up.
        losses = assignment.occurrence.losses + given["losses"]
        assignment.occurrence = evolve(assignment.occurrence, losses=losses)
        if given["is_cancelled"]:
            assignment.stop_reason = Reason.CANCELLED
        run = self._load(assignment, now, may_have_begun=True)
        run.undo_attempts = Counter({(one, index): count for one, index, count in memory.get("undo_attempts", ())})
        run.stopping_since = memory.get("stopping_since")
        run.is_draining = given["is_draining"]
        for start in given["running"]:
            record = run.records.get((start["step_id"], start["index"]))
            if record is not None and _runs(record, start):
                run.under_way[record.key] = Assignment(assignment.occurrence, assignment.schedule, now)
        for end in given["ends"]:
            self._take_end(run, end, now)
        return run

    def _take_end(self, run: ActiveRun, end: Mapping[str, Any], now: Micros) -> None:
        """Take the end of a step, unless an earlier turn has recorded it."""
        if end["report"] != "delivered":
            return  # its worker was lost: it begins again
        record = run.records.get((end["step_id"], end["index"]))
        if record is None or not _runs(record, end):
            return
        ended = Assignment(run.occurrence, run.assignment.schedule, now)
        run.under_way[record.key] = ended
        run.note_end(record.key, ended, read_delivered(end, now=now), now=now)

    def _take_turn(self, run: ActiveRun, now: Micros) -> Document | None:
        commit = run.look(now=now, deliver=self._prepare)
        if not self._store.commit_steps([commit.writes])[0]:
            return None
        run.note_written(commit)
        memory = {
            "undo_attempts": [[*key, count] for key, count in run.undo_attempts.items()],
            "stopping_since": run.stopping_since,
        }
        if not self._drop(commit.dropped):
            raise StoreUnavailable("child occurrences could not be cancelled")
        if run.end is not None:
            delivered = run.delivered(run.end, now=max(now, self._now()))
            return {**to_document(replace(delivered, usage=self._usage_of_agents(run))), "memory": memory}
        return {
            "report": "goes_on",
            "starts": [_start(run.records[key], one.occurrence.route) for key, one in commit.starts],
            "stops": [list(key) for key, one in run.under_way.items() if one.stop_reason is not None],
            "awaiting": [list(key) for key in run.state.awaiting],
            "seconds": None if run.wake_at is None else max(0, run.wake_at - now) / SECOND,
            "again": run.wake_at is not None and run.wake_at <= now,
            "is_stopping": run.closing is not None or run.occurrence.stop is not None,
            "memory": memory,
        }

    def _is_served(self, target: TargetDocument) -> bool:
        return target.route in self._routes

    def _adopt(self, target: TargetDocument) -> bool:  # noqa: ARG002 - a worker serves what it was told to
        return False


def _start(record: StepRecord, route: str) -> Document:
    """What the worker of a step is told: the rest is in the store."""
    return {
        "step_id": record.step_id,
        "index": record.index,
        "attempt": record.attempt,
        "undoes": record.compensation is Compensation.RUNNING,
        "route": route,
    }


def _runs(record: StepRecord, start: Mapping[str, Any]) -> bool:
    """Whether a step is in the attempt that it was started with."""
    if start["undoes"]:
        return record.compensation is Compensation.RUNNING
    return record.phase is StepPhase.RUNNING and record.attempt == start["attempt"] and not record.is_external
