"""Workflows in a store: their versions, their runs step by step, what their steps wait for, and approvals.

A *workflow run* is an occurrence whose target is a workflow. The node that holds the occurrence's lease, or the engine
that has accepted it, writes its steps with `commit_steps`, on condition that the fence is still this one. The end of an
*external* step is written by others: by the end of a child occurrence, in the same transaction; by an event that the
step waits for, when that is matched; or by the decision about an approval. If the run is suspended then, it becomes
claimable at once. A run that suspends checks, under the lock of its row, whether one of its open steps has ended
meanwhile, so no wake-up is lost.

A suspended run is in flight: a pause does not hold it, the deletion of its schedule does not end it, and to cancel it
is to make it claimable with a request to stop.

The ids of *hidden* schedules begin with `~`. They and their occurrences are found by their ids, and are in no list, no
count, no quota, no search and no workload.

What a run has left goes with its occurrence when that is pruned.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import AuditEntry
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.records import PageKey


class UsedKind(StrEnum):
    """What a schedule's target may name."""

    WORKFLOW = "workflow"
    BUNDLE = "bundle"
    SESSION = "session"
    MOB = "mob"


OF_OCCURRENCE = ""
"""The step id of an approval that an occurrence waits for, which is no workflow run."""


class ApprovalState(StrEnum):
    """Whether somebody has decided."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    """Its run does not wait for it any more."""


@frozen(kw_only=True)
class WorkflowVersion:
    """One version of a workflow. What it says never changes."""

    tenant: str
    workflow_id: str
    version: int = 0
    """1 and more; the store numbers a new one."""
    document: Mapping[str, Any] = field(hash=False)
    """The definition, without the version."""
    digest: str
    """The same for equal definitions."""
    source: str
    """Who created it: its steps run with this trust."""
    created: Micros
    user: str
    deleted: Micros | None = None


@frozen(kw_only=True)
class EventWait:
    """A step that waits for an event."""

    step_id: str
    event_types: tuple[str, ...]
    filters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """As of an event trigger, with all values filled in."""


@frozen(kw_only=True)
class ApprovalRequest:
    """A step that waits for somebody's decision."""

    approval_id: str
    step_id: str
    message: str
    expires: Micros


@frozen(kw_only=True)
class Approval:
    """A requested decision, and what became of it."""

    approval_id: str
    tenant: str
    occurrence_id: str
    """The workflow run, or the occurrence that goes beyond a budget."""
    step_id: str
    """`OF_OCCURRENCE` if it is not of a workflow run."""
    message: str
    requested: Micros
    expires: Micros
    state: ApprovalState = ApprovalState.PENDING
    by: str | None = None
    comment: str | None = None
    decided: Micros | None = None


@frozen(kw_only=True)
class StepWrites:
    """What the node that delivers a workflow run writes about it, on condition that the fence is still this one."""

    occurrence_id: str
    fence: int
    run: WorkflowRun | None = None
    """The run itself, when it begins or changes."""
    steps: Sequence[StepRecord] = ()
    waits: Sequence[EventWait] = ()
    approvals: Sequence[ApprovalRequest] = ()
    children: Sequence[Occurrence] = ()
    """Occurrences to add; their overrides name the steps that they are for."""
    cancelled: Sequence[str] = ()
    """The ids of steps that wait for nothing any more: their waits and approvals are dropped."""
    clears: bool = False
    """Forget all earlier steps first: the run begins anew."""


class WorkflowStore(Protocol):
    """The verbs about workflows. As everywhere, each is one transaction, and a lost race is an ordinary answer."""

    def put_workflow(
        self,
        version: WorkflowVersion,
        *,
        version_number: int | None = None,
        most: int | None = None,
        note: AuditEntry | None = None,
    ) -> WorkflowVersion | None:
        """Store a version and an audit entry; returns it as stored.

        It gets the next number, or the given one. A definition that is equal to the newest version, or to the one of
        the given number, is that version: nothing is written, but a deleted one is there again. Conflict if another
        definition has that number. None, with nothing written, if the id is new and the tenant has `most` workflows.
        """

    def workflow(
        self, tenant: str, workflow_id: str, version: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        """A version, or the newest; with `deleted`, also one that was deleted."""

    def workflows(self, tenant: str, limit: int, *, after: str | None = None) -> list[WorkflowVersion]:
        """The newest version of each workflow that is not deleted, by id; `after` continues after an id."""

    def workflow_versions(
        self, tenant: str, workflow_id: str, limit: int, *, before: int | None = None
    ) -> list[WorkflowVersion]:
        """The versions of a workflow that are not deleted, newest first; `before` continues below a number."""

    def delete_workflow(self, tenant: str, workflow_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        """Delete all versions of a workflow, and store an audit entry; an empty list if that is done.

        None if the workflow is unknown. The ids of the schedules that name it, if there are any: then nothing is
        deleted. Deleted versions are found for runs that began with them; `prune` deletes them after the last of these.
        Numbers go on after the highest one.
        """

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        """The ids of the schedules whose target names a workflow or a bundle, in order; not of deleted schedules."""

    def commit_steps(self, writes: Sequence[StepWrites]) -> list[bool]:
        """Write steps of workflow runs; False where the occurrence is not delivered with this fence.

        A step replaces the one with its id and index. If somebody has ended an external step, a node that still takes
        it for pending or running does not undo that. A child whose id is known stays as it is, and so does an approval.
        An event ends a wait if it is emitted after the wait was stored. The end of a step sets the occurrence's losses
        back to 0.
        """

    def workflow_run(self, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
        """A workflow run with its steps, by id and index; None if the occurrence is not one.

        One that a schedule plans is not there before it begins. One that somebody has asked for, with a version, is
        there from the moment on when its occurrence is added. A step whose record is damaged has failed.
        """

    def open_steps(self, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
        """The external steps of these runs that have ended, by run; runs without any are left out."""

    def workflow_runs(
        self,
        tenant: str,
        limit: int,
        *,
        workflow_id: str | None = None,
        phases: Collection[Phase] = (),
        before: PageKey | None = None,
    ) -> list[tuple[WorkflowRun, Occurrence]]:
        """The tenant's workflow runs, latest start first, then highest id; `before` is a start and an id."""

    def approvals(
        self, tenant: str, limit: int, *, state: ApprovalState | None = None, before: PageKey | None = None
    ) -> list[Approval]:
        """The tenant's approvals, latest request first, then highest id; `before` is a request and an id."""

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        """The tenant's approval with that id."""

    def decide_approval(
        self, tenant: str, approval_id: str, *, approved: bool, by: str, comment: str | None = None
    ) -> Approval | None:
        """Decide a pending approval, end its step and wake its run; returns the approval as it is then.

        An occurrence that waits for it can start if it is approved, and else ends as skipped/approval_denied.

        One that has been decided, has expired, or whose step does not wait any more, is not changed by the decision.
        None if it is unknown.
        """
