"""Workflow records: what the rules ask of a store about workflows, besides its unit of work.

Steps, waits and approvals belong to a workflow run, and are written while the row of its occurrence is locked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import TYPE_CHECKING, Any

from noonmark.core.filters.index import NONE, Discriminator
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.workflows import Approval, UsedKind, WorkflowVersion
    from noonmark.stores.rules.records import Row

    Topic = tuple[str, str]
    """A tenant and an event type."""
    WaitQuestion = tuple[Topic, Discriminator]
    StepPlace = tuple[int, str, int | None]
    """The key of a row, the id of a step, and an element of a `for_each` step."""
    TargetUse = tuple[UsedKind, str]
    """What a target names."""


@frozen
class StepWait:
    """A step that waits for events of one type."""

    key: int
    """The row of its run."""
    occurrence_id: str
    step_id: str
    tenant: str
    event_type: str
    filters: Mapping[str, Any] = field(hash=False)
    after: Micros
    """Events that were emitted later count."""
    own: Discriminator = NONE
    """What an event must have to match."""


class WorkflowRecords(ABC):
    """Finds and stores; a finder sees what was put before."""

    # Runs and steps

    @abstractmethod
    def put_run(self, row: Row, tenant: str, run: WorkflowRun) -> None:
        """Store a run, in place of what is stored."""

    @abstractmethod
    def load_steps(self, places: Collection[StepPlace]) -> None:
        """Read steps in bulk."""

    @abstractmethod
    def step(self, place: StepPlace) -> StepRecord | None:
        """A step of a run."""

    @abstractmethod
    def put_steps(self, row: Row, steps: Sequence[StepRecord]) -> None:
        """Store steps, each in place of what is stored."""

    @abstractmethod
    def clear(self, row: Row) -> None:
        """Forget all steps of a run."""

    @abstractmethod
    def close(self, row: Row) -> None:
        """The run has ended: what is pending or running is cancelled, and nothing waits any more."""

    # Waits and approvals

    @abstractmethod
    def wait_fields(self, topics: Collection[Topic]) -> dict[Topic, list[str]]:
        """The fields of the discriminators of all waits for events of some types; types without any are left out."""

    @abstractmethod
    def waits(self, questions: Collection[WaitQuestion]) -> list[StepWait]:
        """The waits with these discriminators, in the order of their runs and steps."""

    @abstractmethod
    def add_waits(self, waits: Sequence[StepWait]) -> None:
        """Store waits, each in place of the same one."""

    @abstractmethod
    def add_approvals(self, row: Row, approvals: Sequence[Approval]) -> None:
        """Store pending approvals; one whose id is known stays as it is."""

    @abstractmethod
    def drop(self, row: Row, step_ids: Sequence[str]) -> None:
        """Steps wait for nothing any more: their waits are deleted, their approvals cancelled, or expired in time."""

    @abstractmethod
    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        """An approval."""

    @abstractmethod
    def put_approval(self, approval: Approval) -> None:
        """Store an approval that has changed."""

    # Versions, and who uses them

    @abstractmethod
    def version(
        self, tenant: str, workflow_id: str, number: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        """A version, or the newest; with `deleted`, also one that was deleted."""

    @abstractmethod
    def count(self, tenant: str) -> int:
        """How many workflows of a tenant are not deleted."""

    @abstractmethod
    def put_version(self, version: WorkflowVersion) -> None:
        """Store a version, in place of the one with its number."""

    @abstractmethod
    def delete_versions(self, tenant: str, workflow_id: str) -> None:
        """Delete the versions of a workflow."""

    @abstractmethod
    def put_uses(self, schedule: int, tenant: str, uses: Sequence[TargetUse], *, is_new: bool) -> None:
        """Store what the target of a schedule names, in place of what is stored of a schedule that is not new."""

    @abstractmethod
    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        """The ids of the schedules that name a workflow or a bundle, in order."""


def is_expired(approval: Approval, now: Micros) -> bool:
    """Whether it is too late to decide."""
    return now >= approval.expires
