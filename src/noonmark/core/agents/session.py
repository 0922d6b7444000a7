"""Sessions: conversations with an agent, and the messages in them."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import Usage
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from noonmark.core.api_key import Scope
    from noonmark.core.instants import Micros
    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.core.targets.session import SessionSpec


class SessionState(StrEnum):
    """Whether a session can take a turn."""

    IDLE = "idle"
    ACTIVE = "active"
    """A turn of it is in flight."""
    SUSPENDED = "suspended"
    """Its last turn was interrupted before the agent had answered. The next turn goes on from there."""
    ARCHIVED = "archived"
    """Its transcript is kept. An exact target does not find it; a resumable one revives it."""


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    EVENT = "event"


@frozen(kw_only=True)
class Session:
    """A session as it is stored."""

    tenant: str
    session_id: str
    user: str
    spec: SessionSpec
    """Its model, system prompt, labels and everything else it was created with."""
    tool_access_policy: ToolAccessPolicy | None = None
    scopes: frozenset[Scope] | None = None
    """What its own tools may do at most, since its maker could not do more; None if that is not narrowed."""
    state: SessionState = SessionState.IDLE
    """`active` is not stored: it follows from the turn."""
    schedule_id: str | None = None
    """The schedule that created it and is bound to it."""
    mob_id: str | None = None
    """The mob that it is a member of."""
    member_id: str | None = None
    role: str | None = None
    turn: str | None = None
    """The id of the occurrence whose turn was the last to begin."""
    messages: int = 0
    """How many messages it has had; the highest number of one."""
    bytes: int = 0
    """The size of the messages that are stored."""
    usage: Usage = field(default_factory=Usage)
    created: Micros = 0
    updated: Micros = 0


@frozen(kw_only=True)
class Message:
    """One message of a transcript."""

    role: Role
    parts: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    """For people: `{"type": "text", "text"}`, `{"type": "tool_call", "id", "name", "arguments"}`,
    `{"type": "tool_result", "id", "name", "content", "is_error"?}`, and blocks of images or video.
    """
    data: Any = field(default=None, hash=False)
    """For the host that wrote it: what it needs to go on. Not shown."""
    number: int = 0
    """1 and more within its session; the store numbers it."""
    at: Micros = 0
    occurrence_id: str | None = None
    """The occurrence whose turn it belongs to."""
    usage: Usage | None = None
    """Of the call of a model that it answers."""


@frozen(kw_only=True)
class Mob:
    """A named group of agents. Each member is a session; each flow is a workflow of prompts to members."""

    tenant: str
    mob_id: str
    user: str
    document: dict[str, Any] = field(hash=False)
    """`{"members": [{"member_id", "model", "role"?, "system_prompt"?, ..}], "flows"?: {flow_id: {"steps": [..]}}}`."""
    created: Micros = 0
    updated: Micros = 0


STEP = "step:"


def member_session(mob_id: str, member_id: str) -> str:
    """The id of the session of a member of a mob."""
    return f"mob:{mob_id}:{member_id}"


def schedule_session(uid: str) -> str:
    """The id of the session that a schedule creates on demand, and uses from then on."""
    return f"schedule:{uid}"


def task_session(schedule_id: str, occurrence_id: str) -> str:
    """The id of the session of one task."""
    return f"schedule:{schedule_id}:{occurrence_id}"


def step_session(occurrence_id: str) -> str:
    """The id of the session that one step of one workflow run creates on demand."""
    return f"{STEP}{occurrence_id}"


def turn_key(session_id: str) -> str:
    """The concurrency key that a turn of a session holds; no schedule can name it."""
    return f"session:{session_id}\n"
