"""Problem documents: what every route answers when a request fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from starlette.responses import Response

from noonmark.core.errors import InvalidSchedule, NoonmarkError, Problem
from noonmark.operations.errors import STATUS, error_document
from noonmark.server.strict_json import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

PROBLEM = "application/problem+json"
TASK_ROUTES = "/api/v1/"
"""Under it, callers look for the sentence in a member named `error`."""

_TITLES = {
    "unsupported_media_type": "This kind of content is not read",
    "method_not_allowed": "Not by this method",
    "request_timeout": "The body did not come",
    "server_busy": "Too much to do",
}


class HttpError(NoonmarkError):
    """A request that HTTP itself is enough to refuse, with a status of its own."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """The code is one of this surface, or of the tree of errors."""
        super().__init__(message, field=field)
        self.status, self.http_code, self.headers = status, code, dict(headers or {})


def problem(error: NoonmarkError, request: Request) -> Response:
    """The answer that tells of an error."""
    said = error_document(error)
    status, headers = STATUS[error.code].http, {}
    if isinstance(error, HttpError):
        said["code"], status, headers = error.http_code, error.status, error.headers
    code = str(said["code"])
    document = {
        "type": f"urn:noonmark:problem:{code}",
        "title": title_of(code),
        "status": status,
        **said,
        "request_id": request_id_of(request),
    }
    if request.scope["path"].startswith(TASK_ROUTES):
        document["error"] = said["detail"]
    return Response(write_json(document), status, {**headers, "Cache-Control": "no-store"}, media_type=PROBLEM)


def title_of(code: str) -> str:
    """The title that goes with a code."""
    return _TITLES[code] if code in _TITLES else STATUS[code].title


def failure(request: Request) -> Response:
    """The answer when something went wrong that nobody thought of; what it was is in the log, under the same id."""
    return problem(
        NoonmarkError("something went wrong in the server; its log says what, under this request_id"), request
    )


def request_id_of(request: Request) -> str:
    """The id under which a request is logged."""
    return str(request.scope.get("state", {}).get("request_id", ""))


E = TypeVar("E", bound=NoonmarkError)


def renamed(error: E, names: Mapping[str, str]) -> E:
    """The same error, with the fields that the caller knows; what is inside a field keeps its path."""
    error.field = _renamed(error.field, names)
    if isinstance(error, InvalidSchedule):
        error.problems = tuple(Problem(_renamed(one.field, names), one.message, one.code) for one in error.problems)
    return error


def _renamed(field: str, names: Mapping[str, str]) -> str:
    """The longest path that has a name gives way to it."""
    for ours in sorted(names, key=len, reverse=True):
        if field == ours or field.startswith((f"{ours}.", f"{ours}[")):
            return names[ours] + field[len(ours) :]
    return field
