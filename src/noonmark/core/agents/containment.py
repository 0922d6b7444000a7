"""Containment: an agent that may use some tools only cannot make schedules that may use others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.targets.mob import MobForkTarget, MobSpawnTarget, MobType, ToolAccess
from noonmark.core.targets.session import SessionTarget

if TYPE_CHECKING:
    from noonmark.core.targets import Target
    from noonmark.core.targets.mob import ToolAccessPolicy

SOURCE = "session:"
"""The source of a schedule that a session has made begins with this, and goes on with the id of the session."""
HELPERS = frozenset({MobType.SPAWN_HELPER, MobType.FORK_HELPER})


def is_restricted(policy: ToolAccessPolicy | None) -> bool:
    """Whether a session may not use every tool."""
    return policy is not None and policy.type is not ToolAccess.INHERIT


def containment_problem(session_id: str, policy: ToolAccessPolicy | None, target: Target) -> str | None:
    """Why a session must not have a target scheduled; None if it may.

    A session that is restricted may wake itself, and helpers that have exactly its own policy.
    """
    if policy is None or not is_restricted(policy):
        return None
    if isinstance(target, SessionTarget) and target.session_id == session_id:
        return None
    if isinstance(target, MobSpawnTarget | MobForkTarget):
        if target.options.tool_access_policy == policy:
            return None
        return "a session with restricted tools can only schedule helpers with exactly its own tool_access_policy"
    return "a session with restricted tools can only schedule itself, or helpers with its own tool_access_policy"


def with_policy(policy: ToolAccessPolicy | None, target: dict[str, Any]) -> dict[str, Any]:
    """The document of a target, in which a helper without a policy of its own has that of the session."""
    if policy is None or not is_restricted(policy) or target.get("type") not in HELPERS:
        return target
    options = target.get("options") or {}
    if not isinstance(options, dict):
        return target
    requested = options.get("tool_access_policy")
    if requested is not None and requested != {"type": str(ToolAccess.INHERIT)}:
        return target
    return {**target, "options": {**options, "tool_access_policy": policy.to_document()}}
