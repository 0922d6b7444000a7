"""The audit log: who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NotAllowed
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import audit_document

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import AuditQuery
    from noonmark.operations.service import Caller, Service


def list_audit_entries(service: Service, caller: Caller, arguments: AuditQuery) -> dict[str, Any]:
    """List the entries of the audit log, newest first."""
    if caller.sees_own_only:
        if arguments.schedule_id is None:
            raise NotAllowed("name one of your schedules: you see your own only", field="schedule_id")
        stored = service.store.find(caller.owner.tenant, arguments.schedule_id, deleted=True)
        if stored is None or not caller.sees(stored.schedule):
            return {"entries": [], "next_cursor": None}
    limit = arguments.limit
    before = None if arguments.cursor is None else arguments.cursor[0]
    found = service.store.notes(caller.owner.tenant, limit + 1, before=before, schedule_id=arguments.schedule_id)
    page = found[:limit]
    following = write_cursor(page[-1].key or 0) if len(found) > limit else None
    return {"entries": [audit_document(entry) for entry in page], "next_cursor": following}


def record(service: Service, caller: Caller, reason: str | None = None, *, schedule: Schedule | None = None) -> None:
    """Record a request that leaves its schedule as it is, or concerns none."""
    entry = caller.audit(reason)(schedule, schedule, now=service.store.clock())
    service.store.note(caller.owner.tenant, [entry])
