"""What a session is sent: a prompt, which is a turn of its conversation, or an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, present
from noonmark.core.json_values import event_type, json_copy, json_problem, text_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
            action = PromptAction(
                prompt=read_content(fields, "prompt"),
                system_prompt=read_system_prompt(fields),
                render_metadata=fields.json_object("render_metadata"),
                skill_refs=read_skills(fields, "skill_refs"),
                additional_instructions=read_instructions(fields),
            )
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


def _skill(value: object) -> Any:  # noqa: ANN401 - a name or a JSON object
    if not isinstance(value, dict):
        return _skill_name(value)
    if (problem := json_problem(value)) is not None:
        raise ValueError(problem)
    return json_copy(value)
