"""Approvals: steps of workflows, and occurrences beyond a budget, that wait for somebody's decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, NotAllowed, NotFound
from noonmark.core.ids import is_hidden, shown_name
from noonmark.core.occurrence import in_force
from noonmark.core.targets import WorkflowTarget
from noonmark.operations.history import ScheduleReader
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import read_page, text, visible
from noonmark.operations.service import record_audit_entry
from noonmark.ports.workflows import ApprovalState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import ApprovalQuery, Decision
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.workflows import Approval


def list_approvals(service: Service, caller: Caller, arguments: ApprovalQuery) -> dict[str, Any]:
    """List the approvals that are pending, or in another state, latest request first."""
    runs = _Runs(service)

    def read(count: int, start: tuple[int, str] | None) -> Sequence[Approval]:
        return service.store.approvals(caller.owner.tenant, count, state=arguments.state, before=start)

    def serialize(page: Sequence[Approval]) -> list[dict[str, Any]]:
        return [runs.document(approval) for approval in page]

    fetch = visible(read, _place, lambda approval: runs.are_seen(caller, approval), arguments.cursor)
    entries, end = read_page(arguments.limit, fetch, serialize)
    return {"approvals": entries, "next_cursor": None if end is None else write_cursor(*_place(end))}


def _place(approval: Approval) -> tuple[int, str]:
    return approval.requested, approval.approval_id


def approve(service: Service, caller: Caller, arguments: Decision) -> dict[str, Any]:
    """Approve: the occurrence starts, or the step completes and what depends on it starts.

    The same decision again changes nothing.
    """
    return _decide(service, caller, arguments, approved=True)


def deny(service: Service, caller: Caller, arguments: Decision) -> dict[str, Any]:
    """Deny: the occurrence is skipped, or the step fails. The same decision again changes nothing."""
    return _decide(service, caller, arguments, approved=False)


def _decide(service: Service, caller: Caller, arguments: Decision, *, approved: bool) -> dict[str, Any]:
    if caller.is_agent:
        raise NotAllowed("a person decides; the key of an agent cannot")
    approval_id, tenant, runs = arguments.approval_id, caller.owner.tenant, _Runs(service)
    approval = service.store.approval(tenant, approval_id)
    if approval is None or not runs.are_seen(caller, approval):
        raise NotFound(f"there is no approval {approval_id!r}", field="approval_id")
    decided = service.store.decide_approval(
        tenant, approval_id, approved=approved, by=caller.name, comment=arguments.comment
    )
    if decided is None or decided.state is not (ApprovalState.APPROVED if approved else ApprovalState.DENIED):
        raise Conflict(f"it is {approval.state if decided is None else decided.state} already", field="approval_id")
    if approval.state is ApprovalState.PENDING:
        service.wake(None)
        of_step = f"step {decided.step_id}, run {decided.occurrence_id}"
        about = f"approval {approval_id} of {of_step if decided.step_id else decided.occurrence_id}"
        record_audit_entry(service, caller, about if arguments.comment is None else f"{about}: {arguments.comment}")
    return runs.document(decided)


class _Runs:
    """The occurrences of approvals, and their schedules; each is read once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._schedules = ScheduleReader(service)
        self._known: dict[str, tuple[Schedule | None, str | None]] = {}

    def are_seen(self, caller: Caller, approval: Approval) -> bool:
        """Whether the caller sees the occurrence of an approval."""
        schedule, _ = self._of(approval)
        return schedule is not None and caller.sees(schedule)

    def document(self, approval: Approval) -> dict[str, Any]:
        """An approval."""
        schedule, workflow_id = self._of(approval)
        named = None if schedule is None or is_hidden(schedule.schedule_id) else schedule
        name = None if named is None else named.declaration.name
        if schedule is not None and named is None and workflow_id is None:
            name = shown_name(schedule.schedule_id)
        return {
            "approval_id": approval.approval_id,
            "occurrence_id": approval.occurrence_id,
            "schedule_id": None if named is None else named.schedule_id,
            "schedule_name": name,
            "workflow_run_id": approval.occurrence_id if approval.step_id else None,
            "workflow_id": workflow_id,
            "step_id": approval.step_id or None,
            "message": approval.message,
            "state": str(approval.state),
            "requested_at_utc": text(approval.requested),
            "expires_at_utc": text(approval.expires),
            "decided_at_utc": text(approval.decided),
            "by": approval.by,
            "comment": approval.comment,
        }

    def _of(self, approval: Approval) -> tuple[Schedule | None, str | None]:
        if approval.occurrence_id not in self._known:
            occurrence = self._service.store.occurrence(approval.occurrence_id)
            schedule = None if occurrence is None else self._schedules.of(occurrence)
            target = (
                None if occurrence is None or schedule is None else in_force(schedule, occurrence).declaration.target
            )
            workflow_id = target.workflow_id if isinstance(target, WorkflowTarget) else None
            self._known[approval.occurrence_id] = schedule, workflow_id
        return self._known[approval.occurrence_id]
