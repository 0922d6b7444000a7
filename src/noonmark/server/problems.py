"""Problem documents: the answer of every route to a request that fails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import Response

from noonmark.core.errors import InvalidSchedule, NoonmarkError, Problem, QuotaExceeded
from noonmark.operations.errors import STATUS, error_document, tool_code
from noonmark.server.strict_json import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

PROBLEM = "application/problem+json"
TASK_ROUTES = "/api/v1/"
"""Clients of these routes read the message from a member named `error`."""
TOOL_CALLS = "/schedule/call"
"""Errors of this route have the number that JSON-RPC has for them."""
E = TypeVar("E", bound=NoonmarkError)

_TITLES = {
    "unsupported_media_type": "Unsupported media type",
    "method_not_allowed": "Method not allowed",
    "request_timeout": "Request timeout",
    "server_busy": "Server busy",
}


class HttpError(NoonmarkError):
    """An error of HTTP itself, with its own status, code and headers."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """The code is one of the titles here, or the code of a Noonmark error."""
        super().__init__(message, field=field)
        self.status, self.http_code, self.headers = status, code, dict(headers or {})


def problem_response(error: NoonmarkError, request: Request) -> Response:
    """The problem document of an error, as a response."""
    details = error_document(error)
    status, headers = STATUS[error.code].http, {}
    if isinstance(error, HttpError):
        details["code"], status, headers = error.http_code, error.status, error.headers
    if isinstance(error, QuotaExceeded) and error.wait is not None:
        headers = {"Retry-After": str(math.ceil(error.wait))}
    code = str(details["code"])
    document = {
        "type": f"urn:noonmark:problem:{code}",
        "title": title_of(code),
        "status": status,
        **details,
        "request_id": request_id_of(request),
    }
    if request.scope["path"].startswith(TASK_ROUTES):
        document["error"] = details["detail"]
    if request.scope["path"] == TOOL_CALLS and code in STATUS:
        document["tool_code"] = tool_code(code)
    return Response(write_json(document), status, {**headers, "Cache-Control": "no-store"}, media_type=PROBLEM)


def internal_error_response(request: Request) -> Response:
    """The response to an unexpected error; the log has the cause, under the same request id."""
    return problem_response(
        NoonmarkError("internal error; the server log has the cause under this request_id"), request
    )


def title_of(code: str) -> str:
    """The title that goes with a code."""
    return _TITLES[code] if code in _TITLES else STATUS[code].title


def request_id_of(request: Request) -> str:
    """The id under which a request is logged."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def rename_fields(error: E, names: Mapping[str, str]) -> E:
    """The same error with the field names of another document format; the path inside a field stays."""
    error.field = _rename(error.field, names)
    if isinstance(error, InvalidSchedule):
        error.problems = tuple(Problem(_rename(one.field, names), one.message, one.code) for one in error.problems)
    return error


def _rename(field: str, names: Mapping[str, str]) -> str:
    """Replace the longest prefix that has another name."""
    for ours in sorted(names, key=len, reverse=True):
        if field == ours or field.startswith((f"{ours}.", f"{ours}[")):
            return names[ours] + field[len(ours) :]
    return field
