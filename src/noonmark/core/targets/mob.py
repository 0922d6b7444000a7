"""Mob targets: agents that work as a group. A member is told something, a flow is run, a helper is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, present
from noonmark.core.targets.content import Content, content_document, read_content, read_prompt
from noonmark.core.targets.helper_options import HelperOptions, read_helper_options

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MAX_MESSAGES = 100_000


class MobType(StrEnum):
    """What is asked of a mob."""

    MEMBER = "member"
    FLOW = "flow"
    SPAWN_HELPER = "spawn_helper"
    FORK_HELPER = "fork_helper"


class ForkContext(StrEnum):
    """How much of the conversation a forked helper begins with."""

    FULL_HISTORY = "full_history"
    LAST_MESSAGES = "last_messages"


_TYPES = named(MobType)
_CONTEXTS = named(ForkContext)
_MOB_CHOOSES = HelperOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class MobMemberTarget:
    """A member of a mob is sent content."""

    kind: ClassVar[str] = "mob"
    route: ClassVar[str] = "mob"
    type: ClassVar[MobType] = MobType.MEMBER

    mob_id: str
    member_id: str
    content: Content
    render_metadata: dict[str, Any] = field(default_factory=dict, hash=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        action = present(
            type="send", content=content_document(self.content), render_metadata=self.render_metadata or None
        )
        return {
            "target_kind": self.kind,
            "type": str(self.type),
            "mob_id": self.mob_id,
            "member_id": self.member_id,
            "action": action,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MobFlowTarget:
    """A named flow of a mob is run; its parameters may be any JSON, null included."""

    kind: ClassVar[str] = "mob"
    route: ClassVar[str] = "mob"
    type: ClassVar[MobType] = MobType.FLOW

    mob_id: str
    flow_id: str
    params: Any = field(default=None, hash=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return {
            "target_kind": self.kind,
            "type": str(self.type),
            "mob_id": self.mob_id,
            "flow_id": self.flow_id,
            "params": self.params,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MobSpawnTarget:
    """A helper is made in a mob, and waited for."""

    kind: ClassVar[str] = "mob"
    route: ClassVar[str] = "mob"
    type: ClassVar[MobType] = MobType.SPAWN_HELPER

    mob_id: str
    member_id: str
    prompt: str
    options: HelperOptions = _MOB_CHOOSES

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            type=str(self.type),
            mob_id=self.mob_id,
            member_id=self.member_id,
            prompt=self.prompt,
            options=self.options.to_document() or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MobForkTarget:
    """A helper is forked from a member, with its history or its last messages, and waited for."""

    kind: ClassVar[str] = "mob"
    route: ClassVar[str] = "mob"
    type: ClassVar[MobType] = MobType.FORK_HELPER

    mob_id: str
    source_member_id: str
    member_id: str
    prompt: str
    last_messages: int | None = None
    options: HelperOptions = _MOB_CHOOSES

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        whole = self.last_messages is None
        context = present(
            type=str(ForkContext.FULL_HISTORY if whole else ForkContext.LAST_MESSAGES), count=self.last_messages
        )
        return present(
            target_kind=self.kind,
            type=str(self.type),
            mob_id=self.mob_id,
            source_member_id=self.source_member_id,
            member_id=self.member_id,
            prompt=self.prompt,
            fork_context=context,
            options=self.options.to_document() or None,
        )


MobTarget = MobMemberTarget | MobFlowTarget | MobSpawnTarget | MobForkTarget


def read_mob(reader: Reader) -> MobTarget | None:
    """Read which mob, and what is asked of it."""
    kind = reader.variant("type", _TYPES)
    if kind is None:
        return None
    target: MobTarget
    mob_id = reader.text("mob_id")
    match kind:
        case MobType.MEMBER:
            target = _read_member(reader, mob_id)
        case MobType.FLOW:
            target = MobFlowTarget(mob_id=mob_id, flow_id=reader.text("flow_id"), params=reader.json("params"))
        case MobType.SPAWN_HELPER:
            target = MobSpawnTarget(
                mob_id=mob_id,
                member_id=reader.text("member_id"),
                prompt=read_prompt(reader, "prompt"),
                options=read_helper_options(reader),
            )
        case MobType.FORK_HELPER:
            target = MobForkTarget(
                mob_id=mob_id,
                source_member_id=reader.text("source_member_id"),
                member_id=reader.text("member_id"),
                prompt=read_prompt(reader, "prompt"),
                last_messages=_read_last_messages(reader),
                options=read_helper_options(reader),
            )
        case _:
            assert_never(kind)
    reader.close()
    return target


def _read_member(reader: Reader, mob_id: str) -> MobMemberTarget:
    member_id = reader.text("member_id")
    action = reader.part("action")
    content: Content = ""
    metadata: dict[str, Any] = {}
    if action is not None and action.variant("type", {"send": "send"}) is not None:
        content = read_content(action, "content")
        metadata = action.json_object("render_metadata")
        action.close()
    return MobMemberTarget(mob_id=mob_id, member_id=member_id, content=content, render_metadata=metadata)


def _read_last_messages(reader: Reader) -> int | None:
    context = None if reader.raw("fork_context") is None else reader.part("fork_context")
    if context is None or (kind := context.variant("type", _CONTEXTS)) is None:
        return None
    count = None if kind is ForkContext.FULL_HISTORY else context.integer("count", low=1, high=MAX_MESSAGES)
    context.close()
    return count
