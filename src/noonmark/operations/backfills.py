"""Backfills: list, get, pause, resume and cancel."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, NotFound
from noonmark.core.ids import backfill
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.schedule import Pause
from noonmark.operations import occurrences, schedule_edits
from noonmark.operations.models.arguments import Cancellation
from noonmark.operations.serializers import text
from noonmark.operations.service import record_audit_entry
from noonmark.ports.records import BackfillChange

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import BackfillAction, OneBackfill, OneSchedule
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import BackfillProgress


def list_backfills(service: Service, caller: Caller, arguments: OneSchedule) -> dict[str, Any]:
    """List the backfills of a schedule, the last one requested first."""
    schedule = _schedule(service, caller, arguments.schedule_id)
    return {"backfills": [_document(schedule, one) for one in service.store.backfills(schedule.uid)]}


def get_backfill(service: Service, caller: Caller, arguments: OneBackfill) -> dict[str, Any]:
    """Get a backfill, and how far it is."""
    schedule = _schedule(service, caller, arguments.schedule_id)
    return _document(schedule, _find(service, schedule, arguments.backfill_id))


def pause_backfill(service: Service, caller: Caller, arguments: BackfillAction) -> dict[str, Any]:
    """Pause a backfill: what runs is finished, and nothing more of it starts until it is resumed."""
    return _change(service, caller, arguments, BackfillChange.HOLD)


def resume_backfill(service: Service, caller: Caller, arguments: BackfillAction) -> dict[str, Any]:
    """Resume a paused backfill."""
    return _change(service, caller, arguments, BackfillChange.RELEASE)


def cancel_backfill(service: Service, caller: Caller, arguments: BackfillAction) -> dict[str, Any]:
    """Cancel a backfill: what waits never runs, and what runs is asked to stop."""
    return _change(service, caller, arguments, BackfillChange.CANCEL)


def _change(service: Service, caller: Caller, arguments: BackfillAction, change: BackfillChange) -> dict[str, Any]:
    schedule = _schedule(service, caller, arguments.schedule_id)
    before = _find(service, schedule, arguments.backfill_id)
    if change is not BackfillChange.CANCEL and not _is_live(before):
        raise Conflict(f"all {_count(before):,} occurrences of the backfill have ended")
    why = Pause(at=service.store.clock(), by=caller.name, reason=arguments.reason)
    service.store.change_backfill(schedule.uid, arguments.backfill_id, change, why)
    if change is BackfillChange.CANCEL:
        _cancel_accepted(service, caller, schedule, arguments)
    record_audit_entry(service, caller, arguments.reason, schedule=schedule)
    service.check_stop_requests()
    service.wake(None)
    return _document(schedule, _find(service, schedule, arguments.backfill_id))


def _cancel_accepted(service: Service, caller: Caller, schedule: Schedule, arguments: BackfillAction) -> None:
    """Cancel what targets have accepted: no node runs it."""
    origin = backfill(arguments.backfill_id)
    for occurrence in service.store.occurrences(schedule.uid, phases=(Phase.AWAITING_COMPLETION,)):
        if occurrence.origin == origin:
            with suppress(Conflict):  # it has ended a moment ago
                cancellation = Cancellation.read({"occurrence_id": occurrence.id, "reason": arguments.reason})
                occurrences.cancel(service, caller, cancellation)


def _schedule(service: Service, caller: Caller, schedule_id: str) -> Schedule:
    return schedule_edits.find_for(caller, service.store, schedule_id, deleted=True).schedule


def _find(service: Service, schedule: Schedule, backfill_id: str) -> BackfillProgress:
    for progress in service.store.backfills(schedule.uid):
        if progress.backfill_id == backfill_id:
            return progress
    raise NotFound(f"there is no backfill {backfill_id!r}", field="backfill_id")


def _count(progress: BackfillProgress) -> int:
    return sum(progress.phases.values())


def _is_live(progress: BackfillProgress) -> bool:
    return any(phase not in FINAL for phase in progress.phases)


def _document(schedule: Schedule, progress: BackfillProgress) -> dict[str, Any]:
    phase = "paused" if progress.held else "active" if _is_live(progress) else "completed"
    return {
        "backfill_id": progress.backfill_id,
        "schedule_id": schedule.schedule_id,
        "phase": phase,
        "requested_at_utc": text(progress.requested),
        "from_utc": text(progress.first),
        "to_utc": text(progress.last),
        "count": _count(progress),
        "ended": sum(count for phase, count in progress.phases.items() if phase in FINAL),
        "phases": {str(phase): count for phase, count in sorted(progress.phases.items())},
    }
