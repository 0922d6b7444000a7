"""The bounds of a turn: the size of a request, how much of a history is sent, and when an agent goes in circles."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from noonmark.core.agents.session import Message

SAME_CALLS = 5
"""The same tool with the same arguments, asked for so often in a row, ends a run."""
SAME_ERRORS = 3
"""The same error of tools, so often in a row, ends a run."""

BYTES_PER_TOKEN = 3
"""Fewer than any tokenizer needs for text on the average, so that an estimate is too high rather than too low."""
MESSAGE_TOKENS = 16
"""What a message or a tool takes besides its text."""
IMAGE_TOKENS = 3_000
VIDEO_TOKENS_PER_SECOND = 300
UNKNOWN_VIDEO_SECONDS = 60


def text_tokens(text: str) -> int:
    """The tokens of a text, estimated from above."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def json_tokens(value: Any) -> int:
    """The tokens of a tool, or of anything else that is sent as JSON."""
    return MESSAGE_TOKENS + text_tokens(_canonical(value))


def message_tokens(message: Message) -> int:
    """The tokens of a message, estimated from above. Images and video count by fixed numbers, not by their bytes."""
    sent = json_tokens(message.data) if message.data is not None else 0
    return max(sent, MESSAGE_TOKENS + sum(_part_tokens(part) for part in message.parts))


def _part_tokens(part: Mapping[str, Any]) -> int:
    match part.get("type"):
        case "image":
            return IMAGE_TOKENS
        case "video":
            seconds = -(-int(part.get("duration_ms") or UNKNOWN_VIDEO_SECONDS * 1_000) // 1_000)
            return seconds * VIDEO_TOKENS_PER_SECOND
        case "text":
            return text_tokens(str(part.get("text", "")))
        case _:
            return json_tokens(part)


def recent_messages(messages: Sequence[Message], *, most: int, occurrence_id: str) -> list[Message]:
    """The messages of a session that a turn sends: its own, and as many before them as fit into so many tokens.

    What is sent begins with what the agent was told, never in the middle of an exchange with a tool.
    """
    own = next((at for at, message in enumerate(messages) if message.occurrence_id == occurrence_id), len(messages))
    start, left = own, most
    for at in range(own - 1, -1, -1):
        left -= message_tokens(messages[at])
        if left < 0:
            break
        if messages[at].role in (Role.USER, Role.EVENT):
            start = at
    return list(messages[start:])


def tool_calls(messages: Iterable[Message]) -> Iterator[Mapping[str, Any]]:
    """The tool calls that the agent has asked for, in their order."""
    return (
        part
        for message in messages
        if message.role is Role.ASSISTANT
        for part in message.parts
        if part["type"] == "tool_call"
    )


def tool_results(messages: Iterable[Message]) -> Iterator[Mapping[str, Any]]:
    """The results of tools that the agent was given, in their order."""
    return (
        part
        for message in messages
        if message.role is Role.TOOL
        for part in message.parts
        if part["type"] == "tool_result"
    )


def tool_loop(messages: Sequence[Message]) -> str | None:
    """In which way the agent of a turn goes in circles, if it does."""
    calls = list(tool_calls(messages))
    if len(calls) >= SAME_CALLS:
        last = [(call["name"], _canonical(call.get("arguments"))) for call in calls[-SAME_CALLS:]]
        if len(set(last)) == 1:
            return f"the agent called the tool {last[0][0]} {SAME_CALLS} times in a row with the same arguments"
    results = list(tool_results(messages))
    if len(results) >= SAME_ERRORS:
        ends = [(one["name"], _canonical(one.get("content"))) for one in results[-SAME_ERRORS:] if one.get("is_error")]
        if len(ends) == SAME_ERRORS and len(set(ends)) == 1:
            return f"the tool {ends[0][0]} failed {SAME_ERRORS} times in a row with the same error"
    return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
