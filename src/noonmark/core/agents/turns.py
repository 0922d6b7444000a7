"""Turns: which session an occurrence talks in, the key that it holds meanwhile, and what it cannot do without.

Targets are told apart by their kind and type: their classes are not loaded where there are no agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from noonmark.core.agents.helpers import helper_session
from noonmark.core.agents.session import SessionState, member_session, schedule_session, task_session, turn_key
from noonmark.core.agents.tasks import remote_agent
from noonmark.core.ids import HIDDEN
from noonmark.core.policies.limits import KeyLimit
from noonmark.core.reasons import Reason
from noonmark.core.targets import TargetKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.agents.session import Mob, Session
    from noonmark.core.targets import Target
    from noonmark.core.targets.mob import MobFlowTarget, MobForkTarget, MobMemberTarget, MobSpawnTarget, MobTarget
    from noonmark.core.targets.session import OnDemandSessionTarget, SessionTarget
    from noonmark.core.targets.work import TaskTarget

    AgentTarget = SessionTarget | OnDemandSessionTarget | MobTarget
    """What one occurrence at a time may talk to."""

_FLOW = "flow:"
_KINDS = frozenset({TargetKind.SESSION, TargetKind.MOB})


def agent_target(target: Target) -> AgentTarget | None:
    """A target that talks to a session or a mob; None if it is another one."""
    return cast("AgentTarget", target) if target.kind in _KINDS else None


def session_of(target: AgentTarget, uid: str) -> str | None:
    """The id of the session that a target of the schedule `uid` talks in; None for a flow.

    The session of a helper is its own; what is taken is its name in the mob.
    """
    if target.kind == TargetKind.SESSION:
        if target.type == "materialize_on_demand_session":
            return cast("OnDemandSessionTarget", target).bound_session_id or schedule_session(uid)
        return cast("SessionTarget", target).session_id
    if target.type == "flow":
        return None
    member = cast("MobMemberTarget", target)
    return member_session(member.mob_id, member.member_id)


def spoken_session(target: Target, *, uid: str, schedule_id: str, occurrence_id: str) -> str | None:
    """The id of the session in which an occurrence talks; None if it talks to no agent, or runs a flow."""
    if target.kind == TargetKind.TASK:
        return task_session(schedule_id.removeprefix(HIDDEN), occurrence_id)
    agent = agent_target(target)
    if agent is not None and agent.type in ("spawn_helper", "fork_helper"):
        helper = cast("MobForkTarget", agent)
        return helper_session(helper.mob_id, helper.member_id, occurrence_id)
    return None if agent is None else session_of(agent, uid)


def reservation_id(occurrence_id: str, number: int) -> str:
    """The id under which a run at a remote host reserves: that of admission, or the next after one that is settled."""
    return f"{occurrence_id}/{'first' if number == 1 else number}"


def is_helper(target: Target) -> bool:
    """Whether a target makes a session for one turn, which is archived after it."""
    return target.kind == TargetKind.MOB and cast("MobTarget", target).type in ("spawn_helper", "fork_helper")


def asks_for_remote(target: Target) -> bool:
    """Whether a target goes to the remote host, wherever others go: a task for one of its agents, or its helper."""
    if target.kind == TargetKind.TASK:
        return remote_agent(cast("TaskTarget", target).context) is not None
    return is_helper(target) and cast("MobSpawnTarget", target).options.backend == "external"


def turn_limits(declared: Target, uid: str) -> tuple[KeyLimit, ...]:
    """The key that a turn of the schedule `uid` holds, so that a session, a member or a flow has one at a time."""
    target = agent_target(declared)
    if target is None:
        return ()
    session_id = session_of(target, uid)
    if session_id is not None:
        return (KeyLimit(turn_key(session_id), 1, Reason.TARGET_BUSY),)
    flow = cast("MobFlowTarget", target)
    return (KeyLimit(f"{_FLOW}{flow.mob_id}:{flow.flow_id}\n", 1, Reason.TARGET_BUSY),)


def is_flow_key(name: str) -> bool:
    """Whether a concurrency key is that of a flow: no schedule can name it."""
    return name.startswith(_FLOW) and name.endswith("\n")


def needed_session(target: AgentTarget) -> str | None:
    """The id of the session that has to be there; one on demand and one of a helper are created."""
    is_created = target.type in ("materialize_on_demand_session", "spawn_helper", "fork_helper")
    return None if is_created else session_of(target, "")


def needed_mob(target: AgentTarget) -> str | None:
    """The id of the mob that has to be there."""
    return cast("MobTarget", target).mob_id if target.kind == TargetKind.MOB else None


def missing(target: AgentTarget, session: Session | None, mob: Mob | None) -> Mapping[str, str] | None:
    """What a target lacks, given what it needs, as far as that exists; None if it lacks nothing."""
    if target.kind == TargetKind.MOB:
        return _missing_of_mob(target, session, mob)
    session_id = needed_session(target)
    if session_id is None:
        return None
    if session is None:
        return {"session": session_id}
    is_gone = session.state is SessionState.ARCHIVED and target.type == "exact_session"
    return {"session": session_id, "state": str(session.state)} if is_gone else None


def _missing_of_mob(target: AgentTarget, session: Session | None, mob: Mob | None) -> Mapping[str, str] | None:
    mob_id = cast("MobTarget", target).mob_id
    if mob is None:
        return {"mob": mob_id}
    members = {one["member_id"] for one in mob.document["members"]}
    match target.type:
        case "member":
            member_id = cast("MobMemberTarget", target).member_id
            return None if member_id in members and session is not None else {"mob": mob_id, "member": member_id}
        case "fork_helper":
            source = cast("MobForkTarget", target).source_member_id
            return None if source in members else {"mob": mob_id, "member": source}
        case "flow":
            flow_id = cast("MobFlowTarget", target).flow_id
            return None if flow_id in (mob.document.get("flows") or {}) else {"mob": mob_id, "flow": flow_id}
        case _:
            return None
