"""The REST routes: one table from operations to methods and paths, and the handler that serves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest, RevisionConflict
from noonmark.operations.table import SETS_SECRET
from noonmark.server.problems import HttpError
from noonmark.server.requests import ApiResponse, Kind, read_if_match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.server.requests import ApiRequest, Handler

TEXT, INTEGER, BOOLEAN, INSTANT, SEVERAL = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.INSTANT, Kind.SEVERAL


class Body(StrEnum):
    """Whether a route reads one."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one operation is called over HTTP. A variable of the path is an argument of that name."""

    operation: str
    method: str
    path: str
    status: int = 200
    query: Mapping[str, Kind] = field(default_factory=dict)
    body: Body = Body.NONE
    key: str | None = None
    """The argument that an Idempotency-Key header gives."""
    is_schedule: bool = False
    """Whether it answers with one schedule, whose revision is its ETag."""
    is_conditional: bool = False
    """Whether an If-Match header must name the present revision."""


_PAGE = {"limit": INTEGER, "cursor": TEXT}
_FILTERS = {
    "phase": TEXT,
    "kind": TEXT,
    "label": SEVERAL,
    "owner": TEXT,
    "text": TEXT,
    "name": TEXT,
    "route": TEXT,
    "include_deleted": BOOLEAN,
}
_LIST = {
    **_FILTERS,
    "user_id": TEXT,
    "workflow_id": TEXT,
    "newest_first": BOOLEAN,
    "limit": INTEGER,
    "offset": INTEGER,
    "cursor": TEXT,
}
_TRIGGERS = {
    "event_type": TEXT,
    **{name: kind for name, kind in _FILTERS.items() if name != "kind"},
    "user_id": TEXT,
    "newest_first": BOOLEAN,
    "offset": INTEGER,
    **_PAGE,
}
_PREVIEW = {"after": INSTANT, "count": INTEGER}
_OCCURRENCES = {"include_terminal": BOOLEAN, "phase": TEXT, **_PAGE}
_ONE, _SOME, _SECRET = "/schedules/{schedule_id}", "/occurrences/{occurrence_id}", "/secrets/{name}"


def _get(operation: str, path: str, query: Mapping[str, Kind] | None = None, *, is_schedule: bool = False) -> Route:
    return Route(operation=operation, method="GET", path=path, query=query or {}, is_schedule=is_schedule)


def _post(operation: str, path: str, body: Body = Body.OPTIONAL, *, status: int = 200, key: str | None = None) -> Route:
    return Route(operation=operation, method="POST", path=path, body=body, status=status, key=key)


def _steer(operation: str, path: str) -> Route:
    return Route(
        operation=operation, method="POST", path=path, body=Body.OPTIONAL, is_schedule=True, is_conditional=True
    )


ROUTES: tuple[Route, ...] = (
    Route(
        operation="schedule/create",
        method="POST",
        path="/schedules",
        status=201,
        body=Body.REQUIRED,
        key="idempotency_key",
        is_schedule=True,
    ),
    _get("schedule/list", "/schedules", _LIST),
    _get("schedule/count", "/schedules/count", {**_FILTERS, "user_id": TEXT}),
    Route(operation="schedule/upsert", method="POST", path="/schedules/upsert", body=Body.REQUIRED, is_schedule=True),
    _post("schedule/preview", "/schedules/preview", Body.REQUIRED),
    _get("schedule/get", _ONE, {"include_deleted": BOOLEAN}, is_schedule=True),
    Route(
        operation="schedule/update",
        method="PATCH",
        path=_ONE,
        body=Body.REQUIRED,
        is_schedule=True,
        is_conditional=True,
    ),
    Route(
        operation="schedule/delete",
        method="DELETE",
        path=_ONE,
        query={"reason": TEXT, "expected_revision": INTEGER, "expected_updated_at_utc": INSTANT},
        body=Body.OPTIONAL,
        is_schedule=True,
        is_conditional=True,
    ),
    _steer("schedule/pause", f"{_ONE}/pause"),
    _steer("schedule/resume", f"{_ONE}/resume"),
    _post("schedule/run", f"{_ONE}/run", status=202, key="key"),
    _post("schedule/backfill", f"{_ONE}/backfill", Body.REQUIRED, key="key"),
    _get("schedule/occurrences", f"{_ONE}/occurrences", _OCCURRENCES),
    _get("schedule/runs", f"{_ONE}/runs", _PAGE),
    _get("schedule/preview", f"{_ONE}/preview", _PREVIEW),
    _get("schedule/explain", f"{_ONE}/explain", {"at": INSTANT}),
    _get("occurrence/get", _SOME),
    _get("occurrence/runs", f"{_SOME}/runs"),
    _get("occurrence/explain", f"{_SOME}/explain"),
    _post("occurrence/complete", f"{_SOME}/complete"),
    _post("occurrence/fail", f"{_SOME}/fail"),
    _post("occurrence/cancel", f"{_SOME}/cancel"),
    _get("run/get", "/runs/{run_id}"),
    _post("event/emit", "/events", Body.REQUIRED, status=202),
    _get("event/list", "/events", {"event_type": TEXT, **_PAGE}),
    Route(operation="secret/set", method="PUT", path=_SECRET, body=Body.REQUIRED),
    _get("secret/list", "/secrets"),
    Route(operation="secret/delete", method="DELETE", path=_SECRET),
    _get("signing/key", "/signing-key"),
    _post("event/match", "/events/match", Body.REQUIRED),
    _get("trigger/list", "/triggers", _TRIGGERS),
    _get("upload/list", "/uploads", _PAGE),
    Route(operation="upload/delete", method="DELETE", path="/uploads/{upload_id}"),
    _get("node/list", "/nodes"),
    _get("doctor", "/doctor", {"rows": INTEGER}),
    _get("audit/list", "/audit", {"schedule_id": TEXT, **_PAGE}),
    _post("worker/start", "/worker/start"),
    _post("worker/stop", "/worker/stop"),
    _post("worker/confirm-time", "/worker/confirm-time"),
    _get("worker/status", "/worker/status"),
)


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of every canonical route, by its method and path."""
    return {(route.method, route.path): partial(handle, route) for route in ROUTES}


def handle(route: Route, request: ApiRequest) -> ApiResponse:
    """Do what a canonical route asks for."""
    return execute(route, request, read_arguments(route, request))


def read_arguments(route: Route, request: ApiRequest) -> dict[str, Any]:
    """Everything a request says, under the names of the operation."""
    said = _translated(request.query(route.query))
    if route.body is not Body.NONE:
        document = request.document(required=route.body is Body.REQUIRED, repeats=route.operation != SETS_SECRET)
        if twice := [name for name in document if name in said]:
            raise InvalidRequest("is given as a parameter, too", field=twice[0])
        said |= document
    _take_key(said, route, request)
    if inside := [name for name in request.path if name in said]:
        raise InvalidRequest("stands in the path: leave it out", field=inside[0])
    return said | dict(request.path)


def execute(route: Route, request: ApiRequest, arguments: Mapping[str, Any]) -> ApiResponse:
    """Perform the operation of a route, on the conditions of its headers; the answer has its status and headers."""
    expected = read_if_match(request.headers.get("if-match")) if route.is_conditional else None
    if expected is None:
        return to_response(route, request.perform(route.operation, arguments))
    present = request.perform("schedule/get", dict(request.path))
    revision, tag = present["revision"], _tag(present)
    # Who names the revision alone does not mind what people read of it, which keeps the revision.
    if tag not in expected and str(revision) not in expected:
        raise _failed(f'the schedule is now "{tag}", which is not what If-Match names')
    if arguments.get("expected_revision", revision) != revision:
        raise InvalidRequest("is not the revision that If-Match names", field="expected_revision")
    read = {"expected_revision": revision}
    if tag in expected:
        read["expected_updated_at_utc"] = present["updated_at_utc"]
    try:
        document = request.perform(route.operation, {**arguments, **read})
    except RevisionConflict as error:
        raise _failed(error.message) from None
    return to_response(route, document)


def to_response(route: Route, document: dict[str, Any]) -> ApiResponse:
    """An operation's document as the answer of a route."""
    headers: dict[str, str] = {}
    if route.is_schedule:
        headers["ETag"] = f'"{_tag(document)}"'
    if route.status == 201:
        headers["Location"] = f"/schedules/{document['schedule_id']}"
    return ApiResponse(document=document, status=route.status, headers=headers)


def _tag(schedule: Mapping[str, Any]) -> str:
    """What tells this state of a schedule from every other."""
    return f"{schedule['revision']}-{schedule['updated_at_utc']}"


def _failed(message: str) -> HttpError:
    return HttpError(412, RevisionConflict.code, message, field="If-Match")


def _take_key(said: dict[str, Any], route: Route, request: ApiRequest) -> None:
    """Put the key of a request among its arguments."""
    if route.key is None or (key := request.headers.get("idempotency-key")) is None:
        return
    if said.setdefault(route.key, key) != key:
        raise InvalidRequest("is not the key in the Idempotency-Key header", field=route.key)


def _translated(query: dict[str, Any]) -> dict[str, Any]:
    """The parameters of lists that have another name or form as arguments."""
    if (labels := query.pop("label", None)) is not None:
        parted = [one.partition("=") for one in labels]
        query["labels"] = {name: value for name, _, value in parted}
    if (user := query.pop("user_id", None)) is not None and query.setdefault("owner", user) != user:
        raise InvalidRequest("is another one than owner", field="user_id")
    return query
