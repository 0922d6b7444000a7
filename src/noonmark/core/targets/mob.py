"""Mob targets: a group of agents. A member gets a message, a flow runs, a helper is spawned or forked."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, present
from noonmark.core.frozen import frozen
from noonmark.core.json_values import text_of
from noonmark.core.targets.content import Content, content_document, read_content, read_prompt
from noonmark.core.targets.work import WorkflowTarget

if TYPE_CHECKING:
    from noonmark.core.documents import Reader


MAX_TOOLS = 1_000

_tool = text_of(1, 200)


class RuntimeMode(StrEnum):
    """Whether a helper runs on its own or one turn at a time."""

    AUTONOMOUS_HOST = "autonomous_host"
    TURN_DRIVEN = "turn_driven"


class HelperBackend(StrEnum):
    """Where a helper lives."""

    SESSION = "session"
    EXTERNAL = "external"


class ToolAccess(StrEnum):
    """Which tools a helper may use: its parent's, only those named, or all but those named."""

    INHERIT = "inherit"
    ALLOW_LIST = "allow_list"
    DENY_LIST = "deny_list"


_MODES = named(RuntimeMode)
_BACKENDS = named(HelperBackend)
_ACCESS = named(ToolAccess)


@frozen(kw_only=True)
class ToolAccessPolicy:
    """A kind of access and, unless it is inherited, the tools it speaks of."""

    type: ToolAccess
    tools: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The policy as JSON shows it."""
        inherits = self.type is ToolAccess.INHERIT
        return present(type=str(self.type), value=None if inherits else list(self.tools))


@frozen(kw_only=True)
class HelperOptions:
    """What a helper is; whatever is left out is for the mob to choose."""

    role_name: str | None = None
    runtime_mode: RuntimeMode | None = None
    backend: HelperBackend | None = None
    tool_access_policy: ToolAccessPolicy | None = None

    def to_document(self) -> dict[str, Any]:
        """The options as JSON shows them."""
        access = self.tool_access_policy
        return present(
            role_name=self.role_name,
            runtime_mode=None if self.runtime_mode is None else str(self.runtime_mode),
            backend=None if self.backend is None else str(self.backend),
            tool_access_policy=None if access is None else access.to_document(),
        )


def read_helper_options(reader: Reader) -> HelperOptions:
    """Read the options; none at all is fine."""
    fields = None if reader.raw("options") is None else reader.part("options")
    if fields is None:
        return HelperOptions()
    options = HelperOptions(
        role_name=fields.text("role_name", None),
        runtime_mode=fields.choice("runtime_mode", _MODES, None),
        backend=fields.choice("backend", _BACKENDS, None),
        tool_access_policy=read_tool_access(fields),
    )
    fields.close()
    return options


def read_tool_access(reader: Reader) -> ToolAccessPolicy | None:
    """Read which tools may be used; None if nothing is said."""
    fields = None if reader.raw("tool_access_policy") is None else reader.part("tool_access_policy")
    if fields is None or (kind := fields.variant("type", _ACCESS)) is None:
        return None
    tools = () if kind is ToolAccess.INHERIT else fields.each("value", _tool, high=MAX_TOOLS)
    fields.close()
    return ToolAccessPolicy(type=kind, tools=tools)


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


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class MobFlowTarget:
    """A named flow of a mob is run; its parameters may be any JSON, null included."""

    kind: ClassVar[str] = "mob"
    route: ClassVar[str] = WorkflowTarget.route
    """A flow is a workflow whose steps are prompts to members."""
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


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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
