"""Helpers: agents that a mob makes for one turn.

A helper has a session of its own, which is archived when its turn ends. Its name is taken only as long as its turn is
in flight. What it is follows from a member: the one it is forked from, or one with the role that is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import Role, Session, member_session
from noonmark.core.frozen import frozen
from noonmark.core.targets.mob import MobForkTarget, ToolAccess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.agents.session import Message, Mob
    from noonmark.core.targets.mob import MobSpawnTarget, ToolAccessPolicy


@frozen
class Pattern:
    """The member that a helper is made like."""

    member_id: str
    has_role: bool
    """It has the role that was asked for. If not, the helper has its model, but not its system prompt."""


def member(mob: Mob, member_id: str) -> Mapping[str, Any] | None:
    """The member of that id; None if there is none."""
    return next((one for one in mob.document["members"] if one["member_id"] == member_id), None)


def helper_session(mob_id: str, member_id: str, occurrence_id: str) -> str:
    """The id of the session of a helper: unique, also for helpers of one name."""
    return f"{member_session(mob_id, member_id)}:{occurrence_id}"


def pattern_of(mob: Mob, target: MobSpawnTarget | MobForkTarget) -> Pattern:
    """The member that a helper is made like: one with its role, or else its source, or the first of the mob."""
    role, members = target.options.role_name, mob.document["members"]
    for one in members:
        if role is not None and role in (one.get("role"), one["member_id"]):
            return Pattern(one["member_id"], has_role=True)
    if isinstance(target, MobForkTarget):
        return Pattern(target.source_member_id, has_role=role is None)
    return Pattern(members[0]["member_id"], has_role=False)


def new_helper(
    target: MobSpawnTarget | MobForkTarget, pattern: Pattern, like: Session, *, user: str, occurrence_id: str
) -> Session:
    """The session of a helper; `like` is that of its pattern."""
    options = target.options
    spec = like.spec
    if not pattern.has_role:
        prompt = None if options.role_name is None else f"Your role is {options.role_name}."
        spec = replace(spec, system_prompt=prompt, additional_instructions=())
    return Session(
        tenant=like.tenant,
        session_id=helper_session(target.mob_id, target.member_id, occurrence_id),
        user=user,
        spec=spec,
        tool_access_policy=_policy(options.tool_access_policy, like),
        scopes=like.scopes,
        mob_id=target.mob_id,
        member_id=target.member_id,
        role=options.role_name or like.role,
    )


def forked(messages: Sequence[Message], last: int | None) -> tuple[Message, ...]:
    """The messages that a forked helper begins with: all of its source, or the last ones.

    They begin with a prompt or an event, even if that makes a few more than requested, and end with the last answer: a
    turn in flight is not part of them.
    """
    end = next((at for at in range(len(messages), 0, -1) if _is_answer(messages[at - 1])), 0)
    begins = [at for at in range(end) if messages[at].role in (Role.USER, Role.EVENT)]
    start = 0 if last is None else max(0, end - last)
    first = next((at for at in reversed(begins) if at <= start), begins[0] if begins else end)
    return tuple(replace(one, number=0, occurrence_id=None, usage=None) for one in messages[first:end])


def _is_answer(message: Message) -> bool:
    return message.role is Role.ASSISTANT and all(part["type"] != "tool_call" for part in message.parts)


def _policy(requested: ToolAccessPolicy | None, like: Session) -> ToolAccessPolicy | None:
    return like.tool_access_policy if requested is None or requested.type is ToolAccess.INHERIT else requested
