"""Lineage: what makes a schedule that a caller creates, and what agents may create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import QuotaExceeded
from noonmark.core.instants import SECOND
from noonmark.core.lineage import Parent, check_depth, descend, stamp, with_end
from noonmark.operations.service import cause_of_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.lineage import Lineage
    from noonmark.core.schedule import Declaration
    from noonmark.operations.service import Caller, Service


def with_default_end(service: Service, caller: Caller, document: Mapping[str, Any], *, now: Micros) -> dict[str, Any]:
    """The document that declares a schedule; what an agent declares without an end gets the default one."""
    if not caller.acts_as_agent or document.get("trigger") is None:
        return dict(document)
    return {**document, "trigger": with_end(document["trigger"], service.agent_limits, now=now)}


def lineage_of(service: Service, caller: Caller, declaration: Declaration) -> Lineage | None:
    """The lineage of a schedule that a caller creates; None if neither an agent nor a run of a schedule does.

    Conflict if an agent makes it at the end of too long a chain.
    """
    parent = _parent(service, caller)
    if parent is None and not caller.acts_as_agent:
        return None
    lineage = descend(parent, session_id=caller.session_id, tool_call_id=caller.tool_call_id)
    if not caller.acts_as_agent:
        return lineage
    check_depth(lineage, service.agent_limits)
    return stamp(lineage, declaration.to_document())


def max_children(service: Service, caller: Caller) -> int | None:
    """How many schedules the runs of one schedule may make, if an agent asks."""
    return service.agent_limits.max_children if caller.acts_as_agent else None


def count_new(service: Service, caller: Caller) -> None:
    """Count a new schedule of an agent; QuotaExceeded if it has created too many within an hour."""
    if not caller.acts_as_agent:
        return
    limits = service.agent_limits
    agent = f"session {caller.session_id}" if caller.key_id is None else f"key {caller.key_id}"
    name = f"new schedules {caller.owner.tenant} {caller.owner.user} {agent}"
    taken = service.store.take_tokens(name, limits.rate, 1) if limits.per_hour else None
    if taken is None or not taken.granted:
        seconds = 0 if taken is None else -(-taken.wait // SECOND)
        raise QuotaExceeded(
            f"an agent may create {limits.per_hour:,} schedules an hour, and has"
            + (f"; try again in {seconds:,} s" if seconds else ""),
            limit={"name": "new_schedules", "scope": "agent", "value": limits.per_hour, "used": limits.per_hour},
            wait=seconds or None,
        )


def _parent(service: Service, caller: Caller) -> Parent | None:
    """The schedule whose run makes the request: this process knows it, or the request proves it."""
    if caller.parent_uid is not None:
        stored = service.store.find_uid(caller.parent_uid)
        schedule = None if stored is None else stored.schedule
    else:
        cause = cause_of_request(service, caller)
        schedule = None if cause is None else cause[1]
    if schedule is None:
        return None
    return Parent(uid=schedule.uid, schedule_id=schedule.schedule_id, lineage=schedule.lineage)
