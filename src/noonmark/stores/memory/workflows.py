"""Workflows, their runs with all steps, what these wait for, and approvals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING

from noonmark.core.workflows.run import StepPhase
from noonmark.ports.workflows import ApprovalState
from noonmark.stores.rules import workflow_records as rules
from noonmark.stores.rules.workflow_records import is_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.filters.index import Discriminator
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.records import PageKey
    from noonmark.ports.workflows import Approval, UsedKind, WorkflowVersion
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.workflow_records import StepPlace, StepWait, TargetUse, Topic, WaitQuestion

    StepKey = tuple[str, int | None]


class WorkflowRecords(rules.WorkflowRecords):
    """Everything about workflows, by the keys of rows where it belongs to a run."""

    def __init__(
        self, now: Callable[[], Micros], rows: Mapping[int, Row], schedule_id_of: Callable[[int], str]
    ) -> None:
        """There is nothing yet; the rows are those of the store, by key."""
        self._now, self._rows, self._schedule_id_of = now, rows, schedule_id_of
        self._versions: dict[tuple[str, str], dict[int, WorkflowVersion]] = {}
        self._runs: dict[int, tuple[str, WorkflowRun]] = {}
        """With the tenant of each."""
        self._steps: defaultdict[int, dict[StepKey, StepRecord]] = defaultdict(dict)
        self._waits: dict[Topic, dict[Discriminator, dict[tuple[int, str], StepWait]]] = {}
        self._waits_of: defaultdict[int, list[StepWait]] = defaultdict(list)
        """By the key of their row."""
        self._approvals: dict[tuple[str, str], tuple[int, Approval]] = {}
        """By tenant and id, each with the key of its row."""
        self._uses: dict[int, tuple[str, list[TargetUse]]] = {}

    # Runs and steps

    def put_run(self, row: Row, tenant: str, run: WorkflowRun) -> None:
        self._runs[row.key] = (tenant, run)

    def load_steps(self, places: Collection[StepPlace]) -> None:
        """All of them are loaded."""

    def step(self, place: StepPlace) -> StepRecord | None:
        key, step_id, index = place
        return self._steps[key].get((step_id, index)) if key in self._steps else None

    def put_steps(self, row: Row, steps: Sequence[StepRecord]) -> None:
        self._steps[row.key].update({(one.step_id, one.index): one for one in steps})

    def clear(self, row: Row) -> None:
        self._steps.pop(row.key, None)
        self._drop(row, None)

    def close(self, row: Row) -> None:
        open_steps = [one for one in self._steps.get(row.key, {}).values() if not one.has_ended]
        now = self._now()
        self.put_steps(row, [replace(one, phase=StepPhase.CANCELLED, ended=now) for one in open_steps])
        self._drop(row, None)

    def forget(self, row: Row) -> None:
        """Delete what is stored about a row."""
        if self._runs.pop(row.key, None) is not None:
            self._drop(row, None)
            self._steps.pop(row.key, None)
        self._approvals = {name: one for name, one in self._approvals.items() if one[0] != row.key}

    def run(self, row: Row) -> tuple[WorkflowRun, list[StepRecord]] | None:
        """A run with its steps."""
        workflow_run = self._runs.get(row.key)
        return None if workflow_run is None else (workflow_run[1], _ordered(self._steps.get(row.key, {}).values()))

    def ended_elsewhere(self, row: Row) -> list[StepRecord]:
        """The external steps of a run that have ended."""
        steps = self._steps.get(row.key, {}).values()
        return _ordered(one for one in steps if one.is_external and one.ended is not None)

    def runs(
        self, tenant: str, limit: int, workflow_id: str | None, phases: Collection[Phase], before: PageKey | None
    ) -> list[tuple[WorkflowRun, Row]]:
        """The runs of a tenant with their rows, latest start first."""
        listed = []
        for key, (owner, run) in self._runs.items():
            row = self._rows.get(key)
            is_next = before is None or (run.started, run.occurrence_id) < before
            is_wanted = owner == tenant and workflow_id in (None, run.workflow_id) and is_next
            if row is not None and is_wanted and (not phases or row.phase in phases):
                listed.append((run, row))
        return nlargest(limit, listed, key=lambda one: (one[0].started, one[0].occurrence_id))

    # Waits and approvals

    def has_waits(self, topic: Topic) -> bool:
        """Whether a step waits for events of a type."""
        return bool(self._waits.get(topic))

    def waiting_tenants(self, event_type: str) -> set[str]:
        """The tenants in which a step waits for events of a type."""
        return {tenant for tenant, one in self._waits if one == event_type}

    def wait_fields(self, topics: Collection[Topic]) -> dict[Topic, list[str]]:
        return {topic: [*{own.fields for own in self._waits[topic]}] for topic in topics if topic in self._waits}

    def waits(self, questions: Collection[WaitQuestion]) -> list[StepWait]:
        waits = [wait for topic, own in questions for wait in self._waits.get(topic, {}).get(own, {}).values()]
        return sorted(waits, key=lambda wait: (wait.key, wait.step_id))

    def add_waits(self, waits: Sequence[StepWait]) -> None:
        for wait in waits:
            place = (wait.step_id, wait.event_type)
            self._drop_waits([one for one in self._waits_of[wait.key] if (one.step_id, one.event_type) == place])
            topic = self._waits.setdefault((wait.tenant, wait.event_type), {})
            topic.setdefault(wait.own, {})[wait.key, wait.step_id] = wait
            self._waits_of[wait.key].append(wait)

    def _drop_waits(self, waits: Sequence[StepWait]) -> None:
        for wait in waits:
            self._waits_of[wait.key].remove(wait)
            topic = self._waits[wait.tenant, wait.event_type]
            del topic[wait.own][wait.key, wait.step_id]
            if not topic[wait.own]:
                del topic[wait.own]
            if not topic:
                del self._waits[wait.tenant, wait.event_type]

    def add_approvals(self, row: Row, approvals: Sequence[Approval]) -> None:
        for approval in approvals:
            self._approvals.setdefault((approval.tenant, approval.approval_id), (row.key, approval))

    def drop(self, row: Row, step_ids: Sequence[str]) -> None:
        self._drop(row, step_ids)

    def _drop(self, row: Row, step_ids: Sequence[str] | None) -> None:
        waits = self._waits_of.get(row.key, ())
        self._drop_waits([wait for wait in waits if step_ids is None or wait.step_id in step_ids])
        if step_ids is None:
            self._waits_of.pop(row.key, None)
        now = self._now()
        for name, (key, approval) in self._approvals.items():
            is_meant = key == row.key and (step_ids is None or approval.step_id in step_ids)
            if is_meant and approval.state is ApprovalState.PENDING:
                state = ApprovalState.EXPIRED if is_expired(approval, now) else ApprovalState.CANCELLED
                self._approvals[name] = (key, replace(approval, state=state, decided=now))

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        approval = self._approvals.get((tenant, approval_id))
        return None if approval is None else approval[1]

    def put_approval(self, approval: Approval) -> None:
        name = (approval.tenant, approval.approval_id)
        self._approvals[name] = (self._approvals[name][0], approval)

    def approvals(self, tenant: str, limit: int, state: ApprovalState | None, before: PageKey | None) -> list[Approval]:
        """The approvals of a tenant, latest request first."""
        approvals = [
            one
            for (owner, _), (_, one) in self._approvals.items()
            if owner == tenant
            and state in (None, one.state)
            and (before is None or (one.requested, one.approval_id) < before)
        ]
        return nlargest(limit, approvals, key=lambda one: (one.requested, one.approval_id))

    # Versions, and who uses them

    def version(
        self, tenant: str, workflow_id: str, number: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        versions = self._versions.get((tenant, workflow_id), {}).values()
        matching = [one for one in versions if number in (None, one.version) and (deleted or one.deleted is None)]
        return max(matching, key=lambda one: one.version, default=None)

    def count(self, tenant: str) -> int:
        return len(self.newest(tenant, len(self._versions), None))

    def newest(self, tenant: str, limit: int, after: str | None) -> list[WorkflowVersion]:
        """The newest version of each workflow of a tenant, by id."""
        ids = sorted(one for owner, one in self._versions if owner == tenant and (after is None or one > after))
        versions = (self.version(tenant, one) for one in ids)
        return [one for one in versions if one is not None][:limit]

    def versions(self, tenant: str, workflow_id: str, limit: int, before: int | None) -> list[WorkflowVersion]:
        """The versions of a workflow, newest first."""
        stored = self._versions.get((tenant, workflow_id), {}).values()
        listed = [one for one in stored if one.deleted is None and (before is None or one.version < before)]
        return nlargest(limit, listed, key=lambda one: one.version)

    def put_version(self, version: WorkflowVersion) -> None:
        self._versions.setdefault((version.tenant, version.workflow_id), {})[version.version] = version

    def delete_versions(self, tenant: str, workflow_id: str) -> None:
        now, versions = self._now(), self._versions.get((tenant, workflow_id), {})
        versions.update({one.version: replace(one, deleted=now) for one in versions.values() if one.deleted is None})

    def prune(self, before: Micros, limit: int) -> None:
        """Delete deleted versions that no run began with, but not the highest of a workflow."""
        used = {(tenant, run.workflow_id, run.version) for tenant, run in self._runs.values()}
        for (tenant, workflow_id), versions in self._versions.items():
            for number, one in sorted(versions.items())[:-1]:
                is_old = one.deleted is not None and one.deleted < before
                if limit and is_old and (tenant, workflow_id, number) not in used:
                    del versions[number]
                    limit -= 1

    def put_uses(self, schedule: int, tenant: str, uses: Sequence[TargetUse], *, is_new: bool) -> None:  # noqa: ARG002 - both alike
        self._uses.pop(schedule, None)
        if uses:
            self._uses[schedule] = (tenant, list(uses))

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        keys = [key for key, (owner, uses) in self._uses.items() if owner == tenant and (kind, name) in uses]
        return sorted(self._schedule_id_of(key) for key in keys)[:limit]


def _ordered(steps: Iterable[StepRecord]) -> list[StepRecord]:
    return sorted(steps, key=lambda one: (one.step_id, -1 if one.index is None else one.index))
