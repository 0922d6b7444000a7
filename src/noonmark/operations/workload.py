"""The workload: what runs, is due, waits, comes next and failed lately, across the schedules of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.instants import HOUR
from noonmark.core.lifecycle import FAILURES, Phase
from noonmark.core.settlement import run_id
from noonmark.operations.halts import halt_document
from noonmark.operations.history import ScheduleReader
from noonmark.operations.serializers import run_document
from noonmark.ports.records import OccurrenceFilter

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import WorkloadQuery
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import OccurrenceGroup

LATELY: Micros = HOUR
"""How long ago a failure may be."""


def get_workload(service: Service, caller: Caller, arguments: WorkloadQuery) -> dict[str, Any]:
    """Get what runs, is due, waits, comes next, is overdue, and failed within the last hour.

    The cost follows what is shown, not what is stored.
    """
    store, tenant = service.store, caller.owner.tenant
    now = store.clock()
    workload = store.workload(now=now, limit=arguments.limit, tenant=tenant)
    user = caller.owner.user if caller.sees_own_only else None
    failures = OccurrenceFilter(phases=FAILURES, user=user, since=now - LATELY)
    failed = store.search(tenant, failures, arguments.limit)
    schedules = ScheduleReader(service)

    def group(part: OccurrenceGroup) -> dict[str, Any]:
        rows, count, is_complete = part.occurrences, part.count, part.is_complete
        if caller.sees_own_only:
            is_complete = is_complete and count == len(rows)
            rows = [row for row in rows if _is_seen(caller, schedules.of(row))]
            count = len(rows)
        return {"count": count, "is_complete": is_complete, "occurrences": schedules.documents(rows)}

    running = [row for row in workload.running.occurrences if _is_seen(caller, schedules.of(row))]
    return {
        "running": group(workload.running),
        "due": group(workload.due),
        "waiting": group(workload.waiting),
        "upcoming": group(workload.upcoming),
        "overdue": group(workload.overdue),
        "failed": schedules.documents(failed.occurrences),
        "runs": [run for row in running if (run := _open_run(service, row)) is not None],
        "halts": [halt_document(halt) for halt in store.halts(tenant)],
    }


def _is_seen(caller: Caller, schedule: Schedule | None) -> bool:
    """Whether a caller sees the occurrences of a schedule; those of an unreadable one have no known owner."""
    return caller.sees(schedule) if schedule is not None else not caller.sees_own_only


def _open_run(service: Service, row: Occurrence) -> dict[str, Any] | None:
    """The run in progress, for its progress; without its output, which may be large."""
    run = service.store.run(run_id(row)) if row.phase is Phase.DISPATCHING else None
    return None if run is None else run_document(run[1], row.schedule_id, row) | {"result": None}
