"""Hidden schedules: what carries runs that no schedule asked for, of workflows and of sessions, and single steps.

Their ids begin with a character that callers cannot choose. They have a trigger that never fires, and each occurrence
brings its own target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.ids import HIDDEN, STEPS, TRUSTED_STEPS
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.misfire import Skip
from noonmark.core.policies.overlap import Allow
from noonmark.core.schedule import TRUSTED, Declaration, Owner, Schedule
from noonmark.core.targets import WorkflowTarget
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.targets import Target

RUNS = f"{HIDDEN}workflow:"
TURNS = f"{HIDDEN}session:"


def runs_id(workflow_id: str) -> str:
    """The id of the schedule that carries the runs of a workflow without a schedule."""
    return f"{RUNS}{workflow_id}"


def steps_id(workflow_id: str, source: str) -> str:
    """The id of the schedule that carries the steps of a workflow which run as occurrences of their own."""
    return f"{TRUSTED_STEPS if source == TRUSTED else STEPS}{workflow_id}"


def turns_id(session_id: str) -> str:
    """The id of the schedule that carries the messages which callers send to a session."""
    return f"{TURNS}{session_id}"


def hidden_schedule(
    schedule_id: str, *, uid: str, owner: Owner, source: str, now: Micros, target: Target | None = None
) -> Schedule:
    """A new hidden schedule, of a workflow unless another target is given."""
    workflow_id = schedule_id.partition(":")[2]
    declaration = Declaration(
        target=target or WorkflowTarget(workflow_id=workflow_id),
        trigger=EventTrigger("noonmark.hidden", {"never": []}),
        overlap_policy=Allow(),
        misfire_policy=Skip(),
    )
    return Schedule(
        uid=uid,
        schedule_id=schedule_id,
        owner=owner,
        declaration=declaration,
        revision=1,
        phase=SchedulePhase.ACTIVE,
        source=source,
        created=now,
        updated=now,
    )
