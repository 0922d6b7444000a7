"""JSON-RPC 2.0 over one HTTP path: a body in, a body out. It blocks on the store, so call it from a thread.

Methods are the names of the operations; params are their arguments, by name or in the order of the registry.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.errors import AnswerTooLarge, InvalidRequest, NoonmarkError
from noonmark.core.json_values import key_path, shown
from noonmark.operations.errors import STATUS, error_document
from noonmark.operations.table import OPERATIONS, SETS_SECRET, perform
from noonmark.server.requests import JSON, ApiResponse
from noonmark.server.strict_json import parse

if TYPE_CHECKING:
    from noonmark.operations.service import Caller, Service
    from noonmark.server.requests import ApiRequest, Handler

logger = logging.getLogger("noonmark.server")

MAX_CALLS = 100
"""So many calls may come in one batch."""
MAX_ANSWER = 8_388_608
"""When the answers of a batch have so many bytes, the calls that follow are refused."""
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
"""The words of the specification; other errors speak for themselves."""
MEMBERS = ("jsonrpc", "method", "params", "id")


class _Call(NamedTuple):
    """A call that is sound, whatever its method makes of it."""

    method: str
    params: dict[str, Any] | list[Any]
    id: str | float | None
    is_notification: bool


def answer(service: Service, caller: Caller, body: bytes) -> bytes | None:
    """What to send back; None if nothing but notifications came, which nobody answers."""
    try:
        asked = parse(body, repeats=SETS_SECRET.encode() not in body)
    except InvalidRequest as error:
        return _text(_failure(caller, None, error, PARSE_ERROR))
    if not isinstance(asked, list):
        one = _answer_one(service, caller, asked)
        return None if one is None else _text(one)
    if not 1 <= len(asked) <= MAX_CALLS:
        refused = InvalidRequest(f"a batch has 1 to {MAX_CALLS} calls, not {len(asked)}")
        return _text(_failure(caller, None, refused, INVALID_REQUEST))
    given = _answer_several(service, caller, asked)
    return b"[%s]" % b",".join(given) if given else None


def _answer_several(service: Service, caller: Caller, asked: list[Any]) -> list[bytes]:
    """The responses to a batch, each as text, so that nothing else of it is held.

    Once they are too large together, nothing more is carried out: whoever asked knows which calls were, and which were
    not, because the first refusal divides them.
    """
    given: list[bytes] = []
    size = unheard = 0
    for one in asked:
        if size <= MAX_ANSWER:
            response = _answer_one(service, caller, one)
        else:
            response = _refuse_rest(caller, one)
            unheard += response is None
        if response is not None:
            given.append(_text(response))
            size += len(given[-1])
    if unheard:
        # Nobody answers a notification, but that it was not carried out has to be said.
        given.append(_text(_too_large(caller, None, f"{unheard} notifications of this batch were not carried out")))
    return given


def _refuse_rest(caller: Caller, asked: object) -> dict[str, Any] | None:
    """The response to a call that comes after the limit; None for a notification."""
    try:
        call = _read(asked)
    except InvalidRequest as error:
        return _failure(caller, _id_of(asked), error, INVALID_REQUEST)
    return None if call.is_notification else _too_large(caller, call.id, "it was not carried out")


def _too_large(caller: Caller, call_id: str | float | None, what: str) -> dict[str, Any]:
    refused = AnswerTooLarge(f"the answers before it have more than {MAX_ANSWER:,} bytes: {what}; ask in another batch")
    return _failure(caller, call_id, refused, STATUS[refused.code].jsonrpc)


def _answer_one(service: Service, caller: Caller, asked: object) -> dict[str, Any] | None:
    """The response to one call of a body; None for a notification, even for one that failed."""
    try:
        call = _read(asked)
    except InvalidRequest as error:
        return _failure(caller, _id_of(asked), error, INVALID_REQUEST)
    try:
        result = perform(service, caller, call.method, _arguments(call))
        response: dict[str, Any] = {"jsonrpc": "2.0", "result": result, "id": call.id}
    except NoonmarkError as error:
        response = _failure(caller, call.id, error, STATUS[error.code].jsonrpc)
    except Exception:
        logger.exception("%s went wrong (request %s)", call.method, caller.request_id)
        hidden = NoonmarkError("something went wrong in the server; its log says what, under the same request_id")
        response = _failure(caller, call.id, hidden, INTERNAL_ERROR)
    return None if call.is_notification else response


def _read(asked: object) -> _Call:
    """A call as the specification has it; InvalidRequest for anything else."""
    if not isinstance(asked, dict):
        raise InvalidRequest(f"a call is an object, not {shown(asked)}")
    if unknown := [one for one in asked if one not in MEMBERS]:
        raise InvalidRequest(f"unknown member; a call has {', '.join(MEMBERS)}", field=key_path(unknown[0]))
    if asked.get("jsonrpc") != "2.0":
        raise InvalidRequest('must be "2.0"', field="jsonrpc")
    method, params = asked.get("method"), asked.get("params", {})
    if not isinstance(method, str):
        raise InvalidRequest("must be the name of a method", field="method")
    if not isinstance(params, dict | list):
        raise InvalidRequest("must be an object or an array, or absent", field="params")
    if not _is_id(asked.get("id")):
        raise InvalidRequest("must be text, a number or null", field="id")
    return _Call(method, params, asked.get("id"), is_notification="id" not in asked)


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def _id_of(asked: object) -> Any:  # noqa: ANN401 - whatever the caller took for one
    """The id under which a call that is not sound is answered; null if it has none."""
    found = asked.get("id") if isinstance(asked, dict) else None
    return found if _is_id(found) else None


def _arguments(call: _Call) -> dict[str, Any]:
    """The arguments of a call by name."""
    if isinstance(call.params, dict):
        return call.params
    # An unknown method is refused by its name, whatever is asked of it.
    operation = OPERATIONS.get(call.method)
    if operation is None:
        return {}
    if len(call.params) > len(operation.parameters):
        most = len(operation.parameters)
        raise InvalidRequest(f"{call.method} takes at most {most} arguments, not {len(call.params)}", field="params")
    return dict(zip(operation.parameters, call.params, strict=False))


def _failure(caller: Caller, call_id: str | float | None, error: NoonmarkError, code: int) -> dict[str, Any]:
    message = MESSAGES.get(code) or str(error)
    data = {**error_document(error), "request_id": caller.request_id}
    return {"jsonrpc": "2.0", "error": {"code": code, "message": message, "data": data}, "id": call_id}


def _text(response: object) -> bytes:
    return json.dumps(response, separators=(",", ":")).encode()


PATH = "/rpc"


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of the one path."""
    return {("POST", PATH): _call}


def _call(asked: ApiRequest) -> ApiResponse:
    """Answer a call or a batch; notifications alone get an empty answer."""
    asked.query({})
    said = answer(asked.service, replace(asked.caller, source="jsonrpc"), asked.body)
    return ApiResponse(status=204, raw=(b"", JSON)) if said is None else ApiResponse(raw=(said, JSON))
