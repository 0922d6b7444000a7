"""Workflow runs: how far the steps of an occurrence have come, as it is stored."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import fast_frozen, frozen

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.workflows.definition import Step

StepKey = tuple[str, int | None]
"""The id of a step, and the index of an element of its list; None for the step itself."""


class StepPhase(StrEnum):
    """The phase of a step, or of one element of its list."""

    __hash__ = str.__hash__

    PENDING = "pending"
    """It waits for its upstreams, or for another attempt."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its condition did not hold, or what it depends on did not complete."""
    CANCELLED = "cancelled"
    COMPENSATED = "compensated"
    """It completed, and what undoes it completed too."""


ENDED = frozenset(StepPhase) - {StepPhase.PENDING, StepPhase.RUNNING}
"""Phases in which a step stays, unless it is compensated."""


class Compensation(StrEnum):
    """How far the compensation of a completed step has come; one that is done shows in the phase."""

    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    """A child occurrence does it, and its end is written to the step; for a cancelled step, the inner workflow."""
    FAILED = "failed"


@fast_frozen
@frozen(kw_only=True)
class StepRecord:
    """A step of a run, or one element of its list."""

    step_id: str
    phase: StepPhase
    index: int | None = None
    attempt: int = 0
    started: Micros | None = None
    ended: Micros | None = None
    result: Any = field(default=None, hash=False)
    error: str | None = None
    is_external: bool = False
    """Something else than the node that holds the run ends it: a child occurrence, an event, a person."""
    ready: Micros | None = None
    """When its next attempt is due, its wait is over, or its approval expires."""
    sequence: int = 0
    """Its place in the order in which steps of the run completed."""
    count: int | None = None
    """The number of elements of its list."""
    child: str | None = None
    """The id of the occurrence that does its work."""
    compensation: Compensation | None = None

    @property
    def key(self) -> StepKey:
        """What tells it apart from others of the run."""
        return self.step_id, self.index

    @property
    def has_ended(self) -> bool:
        """Whether its phase is one of those that last."""
        return self.phase in ENDED

    @property
    def awaits_others(self) -> bool:
        """Whether somebody else is to end it, or to undo it."""
        return (self.is_external and not self.has_ended) or self.compensation is Compensation.ELSEWHERE

    @property
    def is_being_stopped(self) -> bool:
        """Whether it is an inner workflow that was asked to stop, and that undoes its own steps first."""
        return self.phase is StepPhase.CANCELLED and self.compensation is Compensation.ELSEWHERE


NOT_BEGUN = 0
"""The attempt of a workflow run that was asked for, and that no node has begun."""


@frozen(kw_only=True)
class WorkflowRun:
    """What an occurrence of a workflow runs: the version that it began with, and its inputs."""

    occurrence_id: str
    workflow_id: str
    version: int
    inputs: dict[str, Any] = field(hash=False)
    started: Micros
    """When its current attempt first began, or is due; a suspended run goes on with the same attempt."""
    attempt: int = 1
    """The attempt of the occurrence that began then."""
    closing: dict[str, Any] | None = field(default=None, hash=False)
    """The outcome that is reported as soon as completed steps are compensated."""

    @property
    def has_begun(self) -> bool:
        """Whether a node has begun it."""
        return self.attempt != NOT_BEGUN


class WaitingFor(StrEnum):
    """What ends the wait of a step."""

    APPROVAL = "approval"
    EVENT = "event"
    TIME = "time"
    RETRY = "retry"
    OCCURRENCE = "occurrence"
    """A child occurrence, which runs elsewhere."""


def waits_for(step: Step, record: StepRecord) -> WaitingFor | None:
    """What a step waits for; None if it does not wait, or only for its upstreams."""
    if record.phase is StepPhase.PENDING:
        return WaitingFor.RETRY if record.attempt > 0 and record.ready is not None else None
    if record.phase is not StepPhase.RUNNING:
        return None
    if step.approval is not None:
        return WaitingFor.APPROVAL
    if step.wait is not None:
        return WaitingFor.EVENT if step.wait.event_types else WaitingFor.TIME
    return None if record.child is None else WaitingFor.OCCURRENCE


def approval_id(occurrence_id: str, step_id: str, attempt: int) -> str:
    """The id of the approval that a step of a run waits for. Another attempt of the run asks anew."""
    return f"{occurrence_id}:{step_id}" if attempt == 1 else f"{occurrence_id}:{step_id}:{attempt}"
