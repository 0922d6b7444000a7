"""Transcripts: messages as they are stored, and as a model is sent them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
    repair_messages,
)

from noonmark.core.agents.messages import text_part
from noonmark.core.agents.session import Message, Role
from noonmark.core.targets.content import MediaSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.budgets.spend import Usage

DATA = "pydantic_ai"
"""Names the library whose message the data of a message is."""
_DROPPED = {"usage", "timestamp", "kind", "run_id", "conversation_id", "metadata", "failed_attempts", "state"}
"""What a response has that the model does not need to go on."""
_RESPONSES: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


def corrected(text: str) -> Message:
    """A message by which the host asks for another answer."""
    return Message(role=Role.SYSTEM, parts=(text_part(text),))


def answered(response: ModelResponse, usage: Usage) -> Message:
    """The message with the answer of a model."""
    parts: list[dict[str, Any]] = []
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            parts.append(text_part(part.content))
        elif isinstance(part, ToolCallPart):
            call = {"type": "tool_call", "id": part.tool_call_id, "name": part.tool_name, "arguments": _arguments(part)}
            parts.append(call)
    dumped = _RESPONSES.dump_python(response, mode="json", exclude=_DROPPED, exclude_none=True)
    return Message(role=Role.ASSISTANT, parts=tuple(parts), data={DATA: dumped}, usage=usage)


def tool_result(call: Mapping[str, Any], content: object, *, is_error: bool = False) -> Message:
    """The message with the result of a tool."""
    part = {"type": "tool_result", "id": call["id"], "name": call["name"], "content": content}
    return Message(role=Role.TOOL, parts=(part | ({"is_error": True} if is_error else {}),))


def to_model(messages: Sequence[Message]) -> list[ModelMessage]:
    """What a model is sent. Tool calls that an interrupted turn left open get a result that says so."""
    sent: list[ModelMessage] = []
    for message in messages:
        if message.role is Role.ASSISTANT:
            response = _response(message)
            if response.parts:
                sent.append(response)
        elif message.role is Role.TOOL:
            sent.append(ModelRequest(parts=[_return(part) for part in message.parts if part["type"] == "tool_result"]))
        else:
            sent.append(ModelRequest(parts=[UserPromptPart(content=_content(message.parts))]))
    return repair_messages(sent)


def _arguments(part: ToolCallPart) -> Any:
    """The arguments as JSON; as text if the model has written something else."""
    if not isinstance(part.args, str):
        return part.args
    try:
        return json.loads(part.args) if part.args else None
    except ValueError:
        return part.args


def _response(message: Message) -> ModelResponse:
    """The answer as the library had it, or else as it is shown: another host may have written it."""
    if isinstance(message.data, dict) and isinstance(message.data.get(DATA), dict):
        try:
            return _RESPONSES.validate_python(message.data[DATA])
        except ValidationError:
            pass  # an earlier release of the library wrote it
    parts: list[ModelResponsePart] = []
    for part in message.parts:
        if part["type"] == "text":
            parts.append(TextPart(part["text"]))
        elif part["type"] == "tool_call":
            parts.append(ToolCallPart(part["name"], part.get("arguments"), tool_call_id=part["id"]))
    return ModelResponse(parts=parts)


def _return(part: Mapping[str, Any]) -> ToolReturnPart:
    outcome = "failed" if part.get("is_error") else "success"
    return ToolReturnPart(part["name"], part["content"], tool_call_id=part["id"], outcome=outcome)  # type: ignore[arg-type]


def _content(parts: Sequence[Mapping[str, Any]]) -> str | list[UserContent]:
    content = [_item(part) for part in parts]
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content


def _item(part: Mapping[str, Any]) -> UserContent:
    if part["type"] == "text":
        return str(part["text"])
    match part["source"]:
        case MediaSource.INLINE:
            return BinaryContent(base64.b64decode(part["data"]), media_type=part["media_type"])
        case MediaSource.URI:
            kind = ImageUrl if part["type"] == "image" else VideoUrl
            return kind(part["uri"], media_type=part["media_type"])
        case _:
            raise ValueError("a blob is known to remote hosts alone; give the bytes of the block, or its address")
