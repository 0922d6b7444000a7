"""Halts: stop all schedules of a tenant, or those with some labels or a lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from noonmark.core.halt import MAX_HALTS, Halt
from noonmark.operations.models.fields import ArgumentReader
from noonmark.operations.serializers import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.models.arguments import HaltQuery, HaltRequest, LiftRequest
    from noonmark.operations.service import Caller, Service


def set_halt(service: Service, caller: Caller, arguments: HaltRequest) -> dict[str, Any]:
    """Halt: running occurrences are cancelled, and nothing starts, schedules created later included."""
    _check(caller, "halt")
    store, now = service.store, service.store.clock()
    halt = Halt(
        halt_id=f"halt_{service.fresh_id()}",
        tenant=caller.owner.tenant,
        at=now,
        by=caller.name,
        reason=arguments.reason,
        labels=_labels(arguments),
        lineage=arguments.lineage,
    )
    if halt.labels and halt.lineage is not None:
        raise InvalidRequest("name labels or a lineage, not both", field="lineage")
    note = caller.audit(_about(halt, arguments.reason))(None, None, now=now)
    stopped = store.set_halt(halt, most=MAX_HALTS, note=note)
    if stopped is None:
        raise Conflict(f"there are {MAX_HALTS} halts already; lift some of them")
    service.check_stop_requests()
    service.wake(None)
    return {**halt_document(halt), "stopped": stopped}


def lift_halt(service: Service, caller: Caller, arguments: LiftRequest) -> dict[str, Any]:
    """Lift a halt, or all with these labels or this lineage. Skipped fires stay skipped."""
    _check(caller, "lift a halt")
    if caller.is_agent:
        raise NotAllowed("a person lifts halts; the key of an agent cannot")
    store, tenant, now = service.store, caller.owner.tenant, service.store.clock()
    labels, lineage = _labels(arguments), arguments.lineage
    field = "labels" if lineage is None else "lineage"
    if sum((arguments.halt_id is not None, bool(labels), lineage is not None)) > 1:
        raise InvalidRequest("name one of a halt, labels and a lineage", field=field)
    lifted = []
    for halt in store.halts(tenant):
        is_same = halt.labels == labels and halt.lineage == lineage
        is_named = is_same if arguments.halt_id is None else halt.halt_id == arguments.halt_id
        note = caller.audit(_about(halt, arguments.reason))(None, None, now=now)
        if is_named and store.lift_halt(tenant, halt.halt_id, note=note) is not None:
            lifted.append(halt)
    if not lifted and arguments.halt_id is not None:
        raise NotFound(f"there is no halt {arguments.halt_id!r}", field="halt_id")
    if not lifted:
        raise NotFound(f"there is no halt of {_selection(labels, lineage)}", field=field)
    service.wake(None)
    return {"lifted": [halt_document(halt) for halt in lifted]}


def list_halts(service: Service, caller: Caller, arguments: HaltQuery) -> dict[str, Any]:  # noqa: ARG001 - it has none
    """List the halts of the tenant, oldest first."""
    return {"halts": [halt_document(halt) for halt in service.store.halts(caller.owner.tenant)]}


def halt_document(halt: Halt) -> dict[str, Any]:
    """A halt as answers have it."""
    return {
        "halt_id": halt.halt_id,
        "labels": dict(halt.labels),
        "lineage": halt.lineage,
        "halted_by": halt.by,
        "halted_at_utc": text(halt.at),
        "reason": halt.reason,
    }


def _check(caller: Caller, what: str) -> None:
    """Refuse a user who sees only their own schedules: a halt stops those of others too."""
    if caller.sees_own_only:
        raise NotAllowed(f"only an administrator of the tenant may {what}: it concerns the schedules of others")


def _labels(arguments: HaltRequest | LiftRequest) -> dict[str, str]:
    reader = ArgumentReader({"labels": arguments.labels})
    labels = reader.labels("labels")
    reader.done()
    return labels


def _about(halt: Halt, reason: str | None) -> str:
    return f"{halt.halt_id}, {_selection(halt.labels, halt.lineage)}{'' if reason is None else f': {reason}'}"


def _selection(labels: Mapping[str, str], lineage: str | None) -> str:
    if lineage is not None:
        return f"the lineage of {lineage}"
    return " ".join(f"{name}={value}" for name, value in labels.items()) or "the whole tenant"
