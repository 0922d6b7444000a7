"""Workflows: their versions, the steps that a node writes, and decisions about approvals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.errors import Conflict
from noonmark.core.filters.index import NONE, value_discriminator
from noonmark.core.filters.match import filter_problems
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.workflows.run import StepPhase
from noonmark.ports.workflows import OF_OCCURRENCE, Approval, ApprovalState, UsedKind
from noonmark.stores.rules import completion, plan_writes, slots, step_ends
from noonmark.stores.rules.records import DELIVERING, UNSTARTED
from noonmark.stores.rules.workflow_records import StepWait

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.filters.index import Discriminator
    from noonmark.core.workflows.run import StepRecord
    from noonmark.ports.workflows import EventWait, StepWrites, WorkflowVersion
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork
    from noonmark.stores.rules.workflow_records import StepPlace

MAX_USERS = 100
"""How many schedules that name a workflow are listed at most."""


def put_version(
    uow: UnitOfWork, version: WorkflowVersion, number: int | None, most: int | None
) -> WorkflowVersion | None:
    """Store a version, or find the equal one; None if there are too many workflows."""
    records, tenant, workflow_id = uow.workflows, version.tenant, version.workflow_id
    newest = records.version(tenant, workflow_id)
    version_record = newest if number is None else records.version(tenant, workflow_id, number, deleted=True)
    if version_record is not None and version_record.digest == version.digest and version_record.deleted is None:
        return version_record
    if version_record is not None and number is not None and version_record.digest != version.digest:
        raise Conflict(f"version {number} of workflow {workflow_id} is another definition", field="version")
    if newest is None and most is not None and records.count(tenant) >= most:
        return None
    if version_record is not None and number is not None:
        stored = replace(version_record, deleted=None)
    else:
        last = records.version(tenant, workflow_id, deleted=True)
        following = 1 if last is None else last.version + 1
        stored = replace(version, version=following if number is None else number, deleted=None)
    records.put_version(stored)
    return stored


def delete(uow: UnitOfWork, tenant: str, workflow_id: str) -> list[str] | None:
    """Delete a workflow, unless schedules name it; None if it is unknown."""
    if uow.workflows.version(tenant, workflow_id) is None:
        return None
    users = uow.workflows.schedules_using(tenant, UsedKind.WORKFLOW, workflow_id, MAX_USERS)
    if not users:
        uow.workflows.delete_versions(tenant, workflow_id)
    return users


def commit_steps(uow: UnitOfWork, writes: Sequence[StepWrites], done: Collection[int] = ()) -> list[bool]:
    """Write steps, in their order, besides those at the places that a fast path has written."""
    own = [one for place, one in enumerate(writes) if place not in done]
    if not own:
        return [True] * len(writes)
    children = [child for one in own for child in one.children]
    states = uow.load_states({child.uid for child in children}) if children else {}
    uow.load_rows(child.id for child in children)  # before their parents: whoever ends a child locks it first
    uow.load_rows(one.occurrence_id for one in own)
    if children:
        uow.reserve({child.id for child in children if uow.loaded_row(child.id) is None})
    uow.workflows.load_steps(_in_question(uow, own))
    rows = [uow.loaded_row(one.occurrence_id) for one in own]
    tenants = uow.tenants_of({row.schedule for row in rows if row is not None})
    return [place in done or _commit(uow, one, states, tenants) for place, one in enumerate(writes)]


def may_be_stale(record: StepRecord) -> bool:
    """Whether somebody else may have ended a step since its node looked."""
    return record.is_external and (not record.has_ended or record.is_being_stopped)


def is_stale(record: StepRecord, stored: StepRecord | None) -> bool:
    """Whether somebody has ended an external step that its node still takes for open."""
    was_ended = stored is not None and stored.is_external and stored.has_ended and not stored.awaits_others
    return was_ended and may_be_stale(record)


def decide_approval(
    uow: UnitOfWork, tenant: str, approval_id: str, *, approved: bool, by: str, comment: str | None
) -> Approval | None:
    """Decide an approval and end its step; one that is not pending any more is left as it is."""
    approval = uow.workflows.approval(tenant, approval_id)
    if approval is None or approval.state is not ApprovalState.PENDING:
        return approval
    row, now = uow.row(approval.occurrence_id), uow.now()
    if approval.step_id == OF_OCCURRENCE:
        return _decide_start(uow, row, approval, approved=approved, by=by, comment=comment)
    state, ended = (ApprovalState.APPROVED if approved else ApprovalState.DENIED), False
    if row is not None and now < approval.expires:
        place = (row.key, approval.step_id, None)
        uow.workflows.load_steps([place])
        if approved:
            result = {"approved": True, "by": by, "comment": comment}
            ended = step_ends.end_external_step(uow, row, place, StepPhase.COMPLETED, result=result)
        else:
            error = f"denied by {by}" if comment is None else f"denied by {by}: {comment}"
            ended = step_ends.end_external_step(uow, row, place, StepPhase.FAILED, error=error)
    if ended:
        decided = replace(approval, state=state, by=by, comment=comment, decided=now)
    else:
        is_expired = now >= approval.expires
        decided = replace(approval, state=ApprovalState.EXPIRED if is_expired else ApprovalState.CANCELLED, decided=now)
    uow.workflows.put_approval(decided)
    return decided


def _decide_start(
    uow: UnitOfWork, row: Row | None, approval: Approval, *, approved: bool, by: str, comment: str | None
) -> Approval:
    """Decide whether an occurrence may go beyond its budget; too late if it waits no longer."""
    now = uow.now()
    waits = row is not None and row.phase in UNSTARTED and row.waiting_for == Reason.APPROVAL and not row.has_begun
    if row is None or not waits or now >= approval.expires:
        state = ApprovalState.EXPIRED if now >= approval.expires else ApprovalState.CANCELLED
        decided = replace(approval, state=state, decided=now)
    elif approved:
        decided = replace(approval, state=ApprovalState.APPROVED, by=by, comment=comment, decided=now)
        if row.phase == Phase.PENDING:
            slots.wake(uow, row)
    else:
        decided = replace(approval, state=ApprovalState.DENIED, by=by, comment=comment, decided=now)
        facts = {"by": by} if comment is None else {"by": by, "comment": comment}
        row.fence += 1
        completion.end(uow, row, Phase.SKIPPED, Reason.APPROVAL_DENIED, completion.to_detail(facts))
        completion.complete_if_done(uow, uow.state_of(row))
    uow.workflows.put_approval(decided)
    return decided


def _in_question(uow: UnitOfWork, writes: Sequence[StepWrites]) -> list[StepPlace]:
    """The steps that somebody may have ended since their node looked."""
    rows = ((uow.loaded_row(one.occurrence_id), one) for one in writes if not one.clears)
    return [
        (row.key, step.step_id, step.index)
        for row, one in rows
        if row is not None
        for step in one.steps
        if may_be_stale(step)
    ]


def _commit(
    uow: UnitOfWork, writes: StepWrites, states: Mapping[str, ScheduleState], tenants: Mapping[int, str]
) -> bool:
    row = uow.loaded_row(writes.occurrence_id)
    if row is None or row.phase not in DELIVERING or row.fence != writes.fence:
        return False
    records, tenant = uow.workflows, tenants.get(row.schedule, "")
    if writes.clears:
        records.clear(row)
    if writes.cancelled:
        records.drop(row, writes.cancelled)
    if writes.run is not None:
        records.put_run(row, tenant, writes.run)
    steps = [one for one in writes.steps if not _is_stale(uow, row, one)]
    if steps:
        records.put_steps(row, steps)
    for child in writes.children:
        plan_writes.add(uow, states.get(child.uid), child)
    _add_waits(uow, row, tenant, writes)
    if row.losses and any(one.ended is not None for one in steps):
        row.losses = 0
        uow.changed(row)
    return True


def _is_stale(uow: UnitOfWork, row: Row, record: StepRecord) -> bool:
    if not may_be_stale(record):
        return False
    return is_stale(record, uow.workflows.step((row.key, record.step_id, record.index)))


def _discriminator(wait: EventWait) -> Discriminator:
    """What an event must have to match; filters that make no sense match none, whatever it has."""
    return NONE if filter_problems(wait.filters) else value_discriminator(wait.filters)


def _add_waits(uow: UnitOfWork, row: Row, tenant: str, writes: StepWrites) -> None:
    if writes.waits:
        after = uow.newest_moment(tenant)
        uow.workflows.add_waits(
            [
                StepWait(row.key, row.id, one.step_id, tenant, event_type, one.filters, after, _discriminator(one))
                for one in writes.waits
                for event_type in one.event_types
            ]
        )
    if writes.approvals:
        uow.workflows.add_approvals(
            row,
            [
                Approval(
                    approval_id=one.approval_id,
                    tenant=tenant,
                    occurrence_id=row.id,
                    step_id=one.step_id,
                    message=one.message,
                    requested=uow.now(),
                    expires=one.expires,
                )
                for one in writes.approvals
            ],
        )
