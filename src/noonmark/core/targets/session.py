"""Session targets: an agent's session that is sent a prompt or an event, made on demand if need be."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, present
from noonmark.core.frozen import frozen
from noonmark.core.json_values import event_type, identifier, json_copy, json_problem, text_of
from noonmark.core.targets.content import MAX_TEXT, Content, content_document, read_content

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MAX_SKILLS = 100
MAX_INSTRUCTIONS = 100

_instruction = text_of(1, MAX_TEXT, multiline=True)
_skill_name = text_of(1, 200)


class ActionType(StrEnum):
    """What a session is sent."""

    PROMPT = "prompt"
    EVENT = "event"


_ACTION_TYPES = named(ActionType)


@frozen(kw_only=True)
class PromptAction:
    """A turn of the conversation; a skill is named by its name or by an object that identifies it."""

    type: ClassVar[ActionType] = ActionType.PROMPT

    prompt: Content
    system_prompt: str | None = None
    render_metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    skill_refs: tuple[Any, ...] = field(default=(), hash=False)
    additional_instructions: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The action as JSON shows it."""
        return present(
            type=str(self.type),
            prompt=content_document(self.prompt),
            system_prompt=self.system_prompt,
            render_metadata=self.render_metadata or None,
            skill_refs=list(self.skill_refs) or None,
            additional_instructions=list(self.additional_instructions) or None,
        )


@frozen(kw_only=True)
class EventAction:
    """An event inside one session; it is not matched against event triggers."""

    type: ClassVar[ActionType] = ActionType.EVENT

    event_type: str
    payload: Any = field(default=None, hash=False)
    render_metadata: dict[str, Any] = field(default_factory=dict, hash=False)

    def to_document(self) -> dict[str, Any]:
        """The action as JSON shows it."""
        return present(
            type=str(self.type),
            event_type=self.event_type,
            payload=self.payload,
            render_metadata=self.render_metadata or None,
        )


SessionAction = PromptAction | EventAction


def read_action(reader: Reader, name: str) -> SessionAction | None:
    """Read a prompt or an event."""
    fields = reader.part(name)
    if fields is None or (kind := fields.variant("type", _ACTION_TYPES)) is None:
        return None
    action: SessionAction
    match kind:
        case ActionType.PROMPT:
            action = read_prompt_action(fields)
        case ActionType.EVENT:
            action = EventAction(
                event_type=fields.read("event_type", event_type),
                payload=fields.json("payload"),
                render_metadata=fields.json_object("render_metadata"),
            )
        case _:
            assert_never(kind)
    fields.close()
    return action


def read_prompt_action(fields: Reader) -> PromptAction:
    """Read a turn of the conversation; the caller closes the reader."""
    return PromptAction(
        prompt=read_content(fields, "prompt"),
        system_prompt=read_system_prompt(fields),
        render_metadata=fields.json_object("render_metadata"),
        skill_refs=read_skills(fields, "skill_refs"),
        additional_instructions=read_instructions(fields),
    )


def read_system_prompt(reader: Reader) -> str | None:
    """Read the words that set an agent's role."""
    text: str | None = reader.text("system_prompt", None, low=0, high=MAX_TEXT, multiline=True)
    return text


def read_instructions(reader: Reader) -> tuple[str, ...]:
    """Read further instructions, each a text of its own."""
    return reader.each("additional_instructions", _instruction, high=MAX_INSTRUCTIONS)


def read_skills(reader: Reader, name: str) -> tuple[Any, ...]:
    """Read references to skills."""
    return reader.each(name, _skill, high=MAX_SKILLS)


def _skill(value: object) -> Any:
    if not isinstance(value, dict):
        return _skill_name(value)
    if (problem := json_problem(value)) is not None:
        raise ValueError(problem)
    return json_copy(value)


class SessionType(StrEnum):
    """Which session receives the action."""

    EXACT = "exact_session"
    RESUMABLE = "resumable_session"
    ON_DEMAND = "materialize_on_demand_session"


class Provider(StrEnum):
    """Whose model a session runs on."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"
    OTHER = "other"


_SESSION_TYPES = named(SessionType)
_PROVIDERS = named(Provider)


@frozen(kw_only=True)
class SessionSpec:
    """How to make a session that does not exist yet."""

    model: str
    system_prompt: str | None = None
    max_tokens: int | None = None
    provider: Provider | None = None
    output_schema: dict[str, Any] = field(default_factory=dict, hash=False)
    structured_output_retries: int = 0
    provider_params: dict[str, Any] = field(default_factory=dict, hash=False)
    comms_name: str | None = None
    peer_meta: dict[str, Any] = field(default_factory=dict, hash=False)
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    preload_skills: tuple[Any, ...] = field(default=(), hash=False)
    additional_instructions: tuple[str, ...] = ()
    realm_id: str | None = None
    instance_id: str | None = None
    backend: str | None = None
    config_generation: int | None = None
    keep_alive: bool = False
    enable_schedule: bool = False
    """Whether its agent has the tools with which it makes schedules of its own."""
    app_context: Any = field(default=None, hash=False)

    def to_document(self) -> dict[str, Any]:
        """The specification as JSON shows it."""
        return present(
            model=self.model,
            system_prompt=self.system_prompt,
            max_tokens=self.max_tokens,
            provider=None if self.provider is None else str(self.provider),
            output_schema=self.output_schema or None,
            structured_output_retries=self.structured_output_retries or None,
            provider_params=self.provider_params or None,
            comms_name=self.comms_name,
            peer_meta=self.peer_meta or None,
            labels=dict(self.labels) or None,
            preload_skills=list(self.preload_skills) or None,
            additional_instructions=list(self.additional_instructions) or None,
            realm_id=self.realm_id,
            instance_id=self.instance_id,
            backend=self.backend,
            config_generation=self.config_generation,
            keep_alive=self.keep_alive or None,
            enable_schedule=self.enable_schedule or None,
            app_context=self.app_context,
        )


@frozen(kw_only=True)
class SessionTarget:
    """A session that exists: exactly this one as it runs, or one that may have to be resumed."""

    kind: ClassVar[str] = "session"
    route: ClassVar[str] = "session"

    type: SessionType
    session_id: str
    action: SessionAction

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return {
            "target_kind": self.kind,
            "type": str(self.type),
            "session_id": self.session_id,
            "action": self.action.to_document(),
        }


@frozen(kw_only=True)
class OnDemandSessionTarget:
    """A session made at the first fire and reused from then on; `bound_session_id` names it once it is made."""

    kind: ClassVar[str] = "session"
    route: ClassVar[str] = "session"
    type: ClassVar[SessionType] = SessionType.ON_DEMAND

    create: SessionSpec
    action: SessionAction
    bound_session_id: str | None = None

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            type=str(self.type),
            create=self.create.to_document(),
            action=self.action.to_document(),
            bound_session_id=self.bound_session_id,
        )


def read_session(reader: Reader) -> SessionTarget | OnDemandSessionTarget | None:
    """Read the session and its action."""
    kind = reader.variant("type", _SESSION_TYPES)
    if kind is None:
        return None
    action = read_action(reader, "action")
    match kind:
        case SessionType.EXACT | SessionType.RESUMABLE:
            session_id = reader.read("session_id", identifier)
            reader.close()
            return None if action is None else SessionTarget(type=kind, session_id=session_id, action=action)
        case SessionType.ON_DEMAND:
            create = _read_create(reader)
            bound = reader.read("bound_session_id", identifier, None)
            reader.close()
            if create is None or action is None:
                return None
            return OnDemandSessionTarget(create=create, action=action, bound_session_id=bound)
        case _:
            assert_never(kind)


def _read_create(reader: Reader) -> SessionSpec | None:
    fields = reader.part("create")
    if fields is None:
        return None
    spec = read_spec(fields)
    fields.close()
    return spec


def read_spec(fields: Reader) -> SessionSpec:
    """Read what a session is created with; the caller closes the reader."""
    return SessionSpec(
        model=fields.text("model"),
        system_prompt=read_system_prompt(fields),
        max_tokens=fields.integer("max_tokens", None, low=1),
        provider=fields.choice("provider", _PROVIDERS, None),
        output_schema=fields.json_object("output_schema"),
        structured_output_retries=fields.integer("structured_output_retries", 0, high=100),
        provider_params=fields.json_object("provider_params"),
        comms_name=fields.text("comms_name", None),
        peer_meta=fields.json_object("peer_meta"),
        labels=fields.labels("labels"),
        preload_skills=read_skills(fields, "preload_skills"),
        additional_instructions=read_instructions(fields),
        realm_id=fields.text("realm_id", None),
        instance_id=fields.text("instance_id", None),
        backend=fields.text("backend", None),
        config_generation=fields.integer("config_generation", None, high=2**63 - 1),
        keep_alive=fields.boolean("keep_alive", default=False),
        enable_schedule=fields.boolean("enable_schedule", default=False),
        app_context=fields.json("app_context"),
    )
