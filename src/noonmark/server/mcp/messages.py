"""Errors for malformed messages: short, with what is wrong and where, over every transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from pydantic_core import ErrorDetails

_PROBLEMS = {
    "missing": "is required",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be text",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "literal_error": "must be {expected}",
}
"""Problems by their type in pydantic; others have its message."""
OF_A_KIND = 2
"""Length of the path of a member: the kind of message, and the member."""
_UNSPECIFIC = "Invalid request parameters"
"""The library's only message for a request that comes before `initialize`."""


def refusal(body: bytes) -> JSONRPCError | None:
    """The error for a body that is not a message; None for a message."""
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError as error:
        return _refusal(error)
    return None


async def answer_malformed(
    read: ReadStream[SessionMessage | Exception],
    write: WriteStream[SessionMessage],
    messages: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass on what a transport reads, and answer the malformed messages, which the library would drop."""
    async with messages:
        async for message in read:
            if not isinstance(message, ValidationError):
                await messages.send(message)
            elif not _is_blank(message):
                await write.send(SessionMessage(_refusal(message)))


async def name_problems(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Say what is wrong with a request where the library would not."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        problem = error.errors()[0]
        raise MCPError(INVALID_PARAMS, f"Invalid params: {_in_words(problem['loc'], problem)}") from None
    except MCPError as error:
        if error.error.message != _UNSPECIFIC:
            raise
        raise MCPError(INVALID_REQUEST, "Invalid Request: the first request must be initialize") from None


def _is_blank(error: ValidationError) -> bool:
    line = error.errors()[0]["input"]
    return isinstance(line, str) and not line.strip()


def _refusal(error: ValidationError) -> JSONRPCError:
    problems = error.errors()
    if problems[0]["type"] == "json_invalid":
        return _error(None, PARSE_ERROR, f"Parse error: {problems[0]['ctx']['error']}")
    # The message was compared with every kind of message. Where a member is missing, the input is the whole of it.
    lacking = (one["input"] for one in problems if one["type"] == "missing" and len(one["loc"]) == OF_A_KIND)
    message: dict[str, Any] = next(lacking, {})
    kind = "JSONRPCResponse" if "result" in message else "JSONRPCError" if "error" in message else "JSONRPCRequest"
    problem = next(one for one in problems if one["loc"][0] == kind)
    call_id = message.get("id")
    call_id = call_id if isinstance(call_id, str | int) and not isinstance(call_id, bool) else None
    path = problem["loc"][1:] or ("the message",)
    in_words = "id must be text or an integer" if path[0] == "id" else _in_words(path, problem)
    return _error(call_id, INVALID_REQUEST, f"Invalid Request: {in_words}")


def _error(call_id: str | int | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=call_id, error=ErrorData(code=code, message=message))


def _in_words(path: tuple[str | int, ...], problem: ErrorDetails) -> str:
    own = _PROBLEMS.get(problem["type"])
    in_words = problem["msg"] if own is None else own.format(**problem.get("ctx", {}))
    return f"{'.'.join(map(str, path))} {in_words}"
