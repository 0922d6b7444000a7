"""The messages that actions become in a transcript."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import Message, Role
from noonmark.core.targets.session import EventAction

if TYPE_CHECKING:
    from noonmark.core.targets.content import Content
    from noonmark.core.targets.session import SessionAction


def text_part(text: str) -> dict[str, Any]:
    """A part of a message that is plain text."""
    return {"type": "text", "text": text}


def content_parts(content: Content) -> tuple[dict[str, Any], ...]:
    """The parts of a message with some content."""
    if isinstance(content, str):
        return (text_part(content),)
    return tuple(block.to_document() for block in content)


def action_message(action: SessionAction) -> Message:
    """The message that begins a turn: the prompt, or the event."""
    if isinstance(action, EventAction):
        payload = "" if action.payload is None else f":\n{json.dumps(action.payload, ensure_ascii=False)}"
        return Message(role=Role.EVENT, parts=(text_part(f"Event {action.event_type}{payload}"),))
    return Message(role=Role.USER, parts=content_parts(action.prompt))


def message_text(message: Message) -> str:
    """The text of a message, without its tool calls and media."""
    return "\n\n".join(part["text"] for part in message.parts if part.get("type") == "text")
