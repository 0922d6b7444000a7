"""What a step of a workflow run waits for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.workflows.run import StepPhase

if TYPE_CHECKING:
    from noonmark.core.workflows.definition import Step
    from noonmark.core.workflows.run import StepRecord


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
