"""Lineage: what makes a schedule that a caller creates, and what agents may create."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import QuotaExceeded
from noonmark.core.instants import SECOND
from noonmark.core.lineage import Parent, check_depth, descend, fingerprint, stamp, with_end
from noonmark.operations.service import cause_of_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.lineage import AgentLimits, Lineage
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.service import Caller, Service


def with_default_end(service: Service, caller: Caller, document: Mapping[str, Any], *, now: Micros) -> dict[str, Any]:
    """The document that declares a schedule; what an agent declares without an end gets the default one."""
    if not caller.acts_as_agent or document.get("trigger") is None:
        return dict(document)
    return {**document, "trigger": with_end(document["trigger"], service.agent_limits, now=now)}


def lineage_of(service: Service, caller: Caller, declaration: Declaration) -> Lineage | None:
    """The lineage of a schedule that a caller creates; None if nothing needs to be known about it.

    It is known if an agent or a run of a schedule makes it, or somebody who may only propose. Conflict if an agent
    makes it at the end of too long a chain.
    """
    parent = _parent(service, caller)
    if parent is None and not caller.acts_as_agent and caller.granted is None:
        return None
    lineage = _descended(caller, parent)
    if not caller.acts_as_agent:
        return lineage
    check_depth(lineage, service.agent_limits)
    return stamp(lineage, declaration.to_document())


def lineage_of_change(caller: Caller, before: Declaration, after: Declaration) -> Lineage | None:
    """The lineage of a proposed change: the scopes of its author and, for an agent, the fingerprint of the result."""
    if not caller.acts_as_agent and caller.granted is None:
        return None
    lineage, document = _descended(caller, None), after.to_document()
    is_other = caller.acts_as_agent and fingerprint(before.to_document()) != fingerprint(document)
    return stamp(lineage, document) if is_other else lineage


def _descended(caller: Caller, parent: Parent | None) -> Lineage:
    session, granted = caller.session, caller.granted
    lineage = descend(
        parent,
        session_id=None if session is None else session.session_id,
        tool_call_id=None if session is None else session.tool_call_id,
    )
    scopes = None if granted is None else tuple(sorted(granted))
    return replace(lineage, scopes=scopes, agent=_agent(caller, parent))


def _agent(caller: Caller, parent: Parent | None) -> str | None:
    """The agent whose hourly limit counts: that of the key, or the one at the beginning of the chain.

    Where that begins with a schedule of a person, all sessions that it makes are one agent.
    """
    if not caller.acts_as_agent:
        return None if parent is None or parent.lineage is None else parent.lineage.agent
    if caller.key_id is not None:
        return f"key {caller.key_id}"
    if parent is not None:
        return (parent.lineage.agent if parent.lineage else None) or f"schedule {parent.uid}"
    return None if caller.session is None else f"session {caller.session.session_id}"


def limits_for(service: Service, caller: Caller) -> AgentLimits | None:
    """The limits of what a caller makes or changes, if it is an agent."""
    return service.agent_limits if caller.acts_as_agent else None


def count_new(service: Service, caller: Caller, lineage: Lineage | None) -> None:
    """Count a new schedule of an agent; QuotaExceeded if it has created too many within an hour.

    Its descendants count too, so that the limit does not grow with every session that they create.
    """
    if lineage is None or not caller.acts_as_agent:
        return
    limits = service.agent_limits
    name = f"new schedules {caller.owner.tenant} {lineage.agent}"
    tokens = service.store.take_tokens(name, limits.rate, 1) if limits.per_hour else None
    if tokens is None or not tokens.granted:
        seconds = 0 if tokens is None else -(-tokens.wait // SECOND)
        raise QuotaExceeded(
            f"an agent may create {limits.per_hour:,} schedules an hour, and has"
            + (f"; try again in {seconds:,} s" if seconds else ""),
            limit={"name": "new_schedules", "scope": "agent", "value": limits.per_hour, "used": limits.per_hour},
            wait=seconds or None,
        )


def _parent(service: Service, caller: Caller) -> Parent | None:
    """The schedule whose run makes the request: this process knows it, or the request proves it."""
    if caller.session is not None:
        uid = caller.session.schedule_uid
        stored = None if uid is None else service.store.find_uid(uid)
        schedule = None if stored is None else stored.schedule
    else:
        cause = cause_of_request(service, caller)
        schedule = None if cause is None else _asked_for(service, *cause)
    if schedule is None:
        return None
    return Parent(uid=schedule.uid, schedule_id=schedule.schedule_id, lineage=schedule.lineage)


def _asked_for(service: Service, occurrence: Occurrence, schedule: Schedule) -> Schedule:
    """The schedule that an occurrence is for: of a step of a workflow, that of the outermost run.

    The hidden schedule that carries steps has no lineage: agents could begin a new chain by means of it.
    """
    while occurrence.overrides is not None and (parent := occurrence.overrides.parent) is not None:
        above = service.store.occurrence(parent.occurrence_id)
        snapshot = None if above is None else service.store.snapshot(above.uid)
        if above is None or snapshot is None:  # it was pruned
            break
        occurrence, schedule = above, snapshot.schedule
    return schedule
