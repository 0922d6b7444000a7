"""JSON-RPC 2.0 over one HTTP path: a body in, a body out. It blocks on the store, so call it from a thread.

Methods are the names of the operations; params are their arguments, by name or in the order of the registry.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.errors import AnswerTooLarge, InvalidRequest, NoonmarkError, QuotaExceeded
from noonmark.core.json_values import key_path, shown
from noonmark.core.redaction import redact_keys
from noonmark.operations.errors import STATUS, error_document, tool_code
from noonmark.operations.table import CALLS_TOOL, OPERATIONS, SETS_SECRET, perform
from noonmark.server.requests import JSON, ApiResponse
from noonmark.server.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.operations.service import Caller, Service
    from noonmark.server.requests import ApiRequest, Handler

logger = logging.getLogger("noonmark.server")

MAX_CALLS = 100
"""Calls in one batch."""
MAX_ANSWER = 8_388_608
"""Bytes of the answers to a batch; beyond that, the remaining calls are rejected."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INTERNAL_ERROR: "Internal error",
}
"""Messages of the specification; every other error has its own."""
MEMBERS = ("jsonrpc", "method", "params", "id")


class _Call(NamedTuple):
    """A well-formed call; its method may still reject it."""

    method: str
    params: dict[str, Any] | list[Any]
    id: str | float | None
    is_notification: bool


def answer(
    service: Service, caller: Caller, body: bytes, exceeded: Callable[[], str | None] = lambda: None
) -> bytes | None:
    """The response to a body; None if it has only notifications.

    `exceeded` counts each call of a batch after the first one, and says which rate limit refuses it.
    """
    try:
        message = parse(body, repeats=SETS_SECRET.encode() not in body)
    except InvalidRequest as error:
        return _encode(_failure(caller, None, error, PARSE_ERROR))
    if not isinstance(message, list):
        response = _answer_call(service, caller, message)
        return None if response is None else _encode(response)
    if not 1 <= len(message) <= MAX_CALLS:
        wrong_size = InvalidRequest(f"a batch has 1 to {MAX_CALLS} calls, not {len(message)}")
        return _encode(_failure(caller, None, wrong_size, INVALID_REQUEST))
    responses = _answer_batch(service, caller, message, exceeded)
    return b"[%s]" % b",".join(responses) if responses else None


def _answer_batch(
    service: Service, caller: Caller, batch: list[Any], exceeded: Callable[[], str | None]
) -> list[bytes]:
    """The responses to a batch, each encoded, so that no more than the bytes are held.

    Once they are too large together, or a rate limit is reached, no further call is processed. The first rejection
    separates the calls that were processed from those that were not.
    """
    responses: list[bytes] = []
    size = dropped_notifications = 0
    stop: _Stop | None = None
    for number, message in enumerate(batch):
        if stop is None and number:
            stop = _stop_after(size, exceeded)
        if stop is None:
            response = _answer_call(service, caller, message)
        else:
            response = _reject_call(caller, message, stop)
            dropped_notifications += response is None
        if response is not None:
            responses.append(_encode(response))
            size += len(responses[-1])
    if stop is not None and dropped_notifications:
        # A notification has no response, but the client must learn that it was not processed.
        what = f"{dropped_notifications} notifications of this batch were not executed"
        responses.append(_encode(_rejection(caller, None, stop, what)))
    return responses


class _Stop(NamedTuple):
    """Why the remaining calls of a batch are not processed."""

    kind: type[NoonmarkError]
    why: str


def _stop_after(size: int, exceeded: Callable[[], str | None]) -> _Stop | None:
    """Why no further call is processed after answers of that size; None if the next one may be."""
    if size > MAX_ANSWER:
        return _Stop(AnswerTooLarge, f"the answers before it have more than {MAX_ANSWER:,} bytes")
    return None if (why := exceeded()) is None else _Stop(QuotaExceeded, why)


def _reject_call(caller: Caller, message: object, stop: _Stop) -> dict[str, Any] | None:
    """The response to a call beyond a limit; None for a notification."""
    try:
        call = _parse_call(message)
    except InvalidRequest as error:
        return _failure(caller, _id_of(message), error, INVALID_REQUEST)
    return None if call.is_notification else _rejection(caller, call.id, stop, "it was not executed")


def _rejection(caller: Caller, call_id: str | float | None, stop: _Stop, what: str) -> dict[str, Any]:
    error = stop.kind(f"{stop.why}: {what}; send another batch")
    return _failure(caller, call_id, error, STATUS[error.code].jsonrpc)


def _answer_call(service: Service, caller: Caller, message: object) -> dict[str, Any] | None:
    """The response to one call; None for a notification, even if it fails."""
    try:
        call = _parse_call(message)
    except InvalidRequest as error:
        return _failure(caller, _id_of(message), error, INVALID_REQUEST)
    try:
        result = perform(service, caller, call.method, _arguments(call))
        response: dict[str, Any] = {"jsonrpc": "2.0", "result": result, "id": call.id}
    except NoonmarkError as error:
        number = tool_code(error.code) if call.method == CALLS_TOOL else STATUS[error.code].jsonrpc
        response = _failure(caller, call.id, error, number)
    except Exception:
        logger.exception("%s failed (request %s)", call.method, caller.request_id)
        internal = NoonmarkError("internal error; the server log has the cause under this request_id")
        response = _failure(caller, call.id, internal, INTERNAL_ERROR)
    return None if call.is_notification else response


def _parse_call(message: object) -> _Call:
    """A call as the specification defines it; InvalidRequest for anything else."""
    if not isinstance(message, dict):
        raise InvalidRequest(f"a call is an object, not {shown(message)}")
    if unknown := [one for one in message if one not in MEMBERS]:
        raise InvalidRequest(f"unknown member; a call has {', '.join(MEMBERS)}", field=key_path(unknown[0]))
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest('must be "2.0"', field="jsonrpc")
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise InvalidRequest("must be the name of a method", field="method")
    if not isinstance(params, dict | list):
        raise InvalidRequest("must be an object or an array, or absent", field="params")
    if not _is_id(message.get("id")):
        raise InvalidRequest("must be text, a number or null", field="id")
    return _Call(method, params, message.get("id"), is_notification="id" not in message)


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def _id_of(message: object) -> Any:
    """The id for the response to a malformed call; null if it has none."""
    call_id = message.get("id") if isinstance(message, dict) else None
    return call_id if _is_id(call_id) else None


def _arguments(call: _Call) -> dict[str, Any]:
    """The arguments of a call, by name."""
    if isinstance(call.params, dict):
        return call.params
    # An unknown method is rejected by its name, before its params are read.
    operation = OPERATIONS.get(call.method)
    if operation is None:
        return {}
    if len(call.params) > len(operation.parameters):
        maximum = len(operation.parameters)
        raise InvalidRequest(f"{call.method} takes at most {maximum} arguments, not {len(call.params)}", field="params")
    return dict(zip(operation.parameters, call.params, strict=False))


def _failure(caller: Caller, call_id: str | float | None, error: NoonmarkError, code: int) -> dict[str, Any]:
    message = MESSAGES.get(code) or redact_keys(str(error))
    data = {**error_document(error), "request_id": caller.request_id}
    return {"jsonrpc": "2.0", "error": {"code": code, "message": message, "data": data}, "id": call_id}


def _encode(response: object) -> bytes:
    return json.dumps(response, separators=(",", ":")).encode()


PATH = "/rpc"


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of the JSON-RPC path."""
    return {("POST", PATH): _call}


def _call(request: ApiRequest) -> ApiResponse:
    """Answer a call or a batch; notifications alone get an empty answer."""
    request.query({})
    caller = replace(request.caller, source="jsonrpc")
    response = answer(request.service, caller, request.body, request.exceeded)
    return ApiResponse(status=204, raw=(b"", JSON)) if response is None else ApiResponse(raw=(response, JSON))
