"""The REST routes, made from the table of operations, and the handler that serves them."""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import Scope
from noonmark.core.errors import InvalidRequest, RevisionConflict
from noonmark.core.frozen import frozen
from noonmark.core.run import output_text
from noonmark.operations.models import fields
from noonmark.operations.models.answers import CreatedWorkflow, Mob, Schedule, Session
from noonmark.operations.table import CREATES_SCHEDULE, OPERATIONS, SETS_SECRET, Body, check_access
from noonmark.server.problems import HttpError
from noonmark.server.requests import ApiResponse, CreatingHandler, ParameterType, ReadingHandler, read_if_match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.creations import Creation
    from noonmark.operations.table import Operation
    from noonmark.server.requests import ApiRequest, Handler


_CREATED: Mapping[type, str] = {
    Schedule: "schedule_id",
    CreatedWorkflow: "workflow_id",
    Session: "session_id",
    Mob: "mob_id",
}
"""The field of each answer that has the id of what was created."""


@frozen(kw_only=True)
class Route:
    """How one operation is called over HTTP. A variable of the path is an argument of that name."""

    operation: str
    method: str
    path: str
    status: int = 200
    query: Mapping[str, ParameterType] = field(default_factory=dict)
    body: Body = Body.NONE
    key: str | None = None
    """The argument that an Idempotency-Key header gives."""
    is_schedule: bool = False
    """Whether it answers with one schedule, whose revision is its ETag."""
    is_conditional: bool = False
    """Whether an If-Match header must name the present revision."""
    creates: str | None = None
    """The field of the answer with the id of what it has created."""


def _routes(operation: Operation) -> list[Route]:
    """The routes of an operation: one, or two."""
    return [_route(operation, route) for route in (operation.route, operation.other_route) if route is not None]


def _route(operation: Operation, route: str) -> Route:
    method, _, path = route.partition(" ")
    has_body = method not in ("GET", "DELETE")
    body = operation.body or (Body.OPTIONAL if has_body else Body.NONE)
    return Route(
        operation=operation.name,
        method=method,
        path=path,
        status=operation.status,
        query={} if has_body else _query(operation, path),
        body=Body.REQUIRED if route == operation.other_route else body,
        key=operation.key if operation.has_key_header else None,
        is_schedule=operation.answer is Schedule,
        is_conditional=operation.is_conditional,
        creates=_CREATED.get(operation.answer) if operation.status == HTTPStatus.CREATED else None,
    )


def _query(operation: Operation, path: str) -> dict[str, ParameterType]:
    """The arguments that a query can give: all but those in the path, and objects."""
    kinds: dict[str, ParameterType] = {}
    for name, argument in operation.arguments.fields().items():
        schema = argument.kind.schema if isinstance(argument.kind, fields.Kind) else {"type": "object"}
        if f"{{{name}}}" not in path and schema.get("type") != "object":
            kinds[name] = _kind(name, schema)
    if "owner" in kinds:
        kinds["user_id"] = ParameterType.TEXT
    return kinds


def _kind(name: str, schema: Mapping[str, Any]) -> ParameterType:
    if name == "label":
        return ParameterType.SEVERAL
    if schema.get("format") == "date-time":
        return ParameterType.INSTANT
    return {"integer": ParameterType.INTEGER, "boolean": ParameterType.BOOLEAN}.get(
        schema.get("type", ""), ParameterType.TEXT
    )


OUTPUT = "/runs/{run_id}/output"
TEXT = "text/plain; charset=utf-8"
ROUTES: tuple[Route, ...] = tuple(route for operation in OPERATIONS.values() for route in _routes(operation))


def handlers() -> dict[tuple[str, str], Handler]:
    """The handler of every canonical route, by its method and path."""
    canonical: dict[tuple[str, str], Handler] = {(route.method, route.path): _handler(route) for route in ROUTES}
    return canonical | {("GET", OUTPUT): _output}


def _handler(route: Route) -> Handler:
    if route.operation == CREATES_SCHEDULE:
        return CreatingHandler(partial(_creation, route))
    return with_quick_calls(route, partial(handle, route))


def with_quick_calls(route: Route, handler: Handler) -> Handler:
    """The handler of a route, which says which of its calls are quick if the operation has any."""
    quick = OPERATIONS[route.operation].quick
    return handler if quick is None else ReadingHandler(handler, quick)


def _creation(route: Route, request: ApiRequest) -> Creation[ApiResponse]:
    return to_response(route, (yield from request.perform_in_steps(route.operation, read_arguments(route, request))))


def _output(request: ApiRequest) -> ApiResponse:
    """What a run left, as plain text."""
    check_access(OPERATIONS["run/get"], request.caller)
    request.query({})
    run = request.perform("run/get", dict(request.path))
    return ApiResponse(raw=(output_text(run["result"], run["error"]).encode(errors="replace"), TEXT))


def handle(route: Route, request: ApiRequest) -> ApiResponse:
    """Run the operation of a canonical route."""
    return execute(route, request, read_arguments(route, request))


def read_arguments(route: Route, request: ApiRequest) -> dict[str, Any]:
    """The arguments of the operation, from path, query, headers and body, if the caller may call it."""
    check_access(OPERATIONS[route.operation], request.caller)
    arguments = _rename_parameters(request.query(route.query))
    if route.body is not Body.NONE:
        document = request.document(required=route.body is Body.REQUIRED, repeats=route.operation != SETS_SECRET)
        if repeated := [name for name in document if name in arguments]:
            raise InvalidRequest("is also given as a parameter", field=repeated[0])
        arguments |= document
    _add_idempotency_key(arguments, route, request)
    if repeated := [name for name in request.path if name in arguments]:
        raise InvalidRequest("is already given in the path", field=repeated[0])
    return arguments | dict(request.path)


def execute(route: Route, request: ApiRequest, arguments: Mapping[str, Any]) -> ApiResponse:
    """Run the operation of a route, if its If-Match header holds."""
    expected = read_if_match(request.headers.get("if-match")) if route.is_conditional else None
    if expected is None:
        return to_response(route, request.perform(route.operation, arguments))
    # Who may change a schedule may compare its revision, also without the scope read.
    reader = replace(request, caller=replace(request.caller, scopes=request.caller.scopes | {Scope.READ}))
    current = reader.perform("schedule/get", dict(request.path))
    revision, tag = current["revision"], _tag(current)
    # A revision alone ignores edits of the name or the description, which keep the revision.
    if tag not in expected and str(revision) not in expected:
        raise _precondition_failed(f'the schedule is now "{tag}", which If-Match does not name')
    if arguments.get("expected_revision", revision) != revision:
        raise InvalidRequest("is not the revision that If-Match names", field="expected_revision")
    condition = {"expected_revision": revision}
    if tag in expected:
        condition["expected_updated_at_utc"] = current["updated_at_utc"]
    try:
        document = request.perform(route.operation, {**arguments, **condition})
    except RevisionConflict as error:
        raise _precondition_failed(error.message) from None
    return to_response(route, document)


def to_response(route: Route, document: dict[str, Any]) -> ApiResponse:
    """The answer of an operation, with the status and headers of its route."""
    headers: dict[str, str] = {}
    if route.is_schedule:
        headers["ETag"] = f'"{_tag(document)}"'
    if route.status == 201 and route.creates is not None:
        headers["Location"] = f"{route.path}/{document[route.creates]}"
    return ApiResponse(document=document, status=route.status, headers=headers)


def _tag(schedule: Mapping[str, Any]) -> str:
    """The ETag of a schedule: it changes with every edit."""
    return f"{schedule['revision']}-{schedule['updated_at_utc']}"


def _precondition_failed(message: str) -> HttpError:
    return HttpError(412, RevisionConflict.code, message, field="If-Match")


def _add_idempotency_key(arguments: dict[str, Any], route: Route, request: ApiRequest) -> None:
    """Add the Idempotency-Key header to the arguments."""
    if route.key is None or (key := request.headers.get("idempotency-key")) is None:
        return
    if arguments.setdefault(route.key, key) != key:
        raise InvalidRequest("differs from the Idempotency-Key header", field=route.key)


def _rename_parameters(query: dict[str, Any]) -> dict[str, Any]:
    """Translate the parameters that have another name or form than the argument."""
    if (labels := query.pop("label", None)) is not None:
        pairs = [label.partition("=") for label in labels]
        query["labels"] = {name: value for name, _, value in pairs}
    if (user := query.pop("user_id", None)) is not None and query.setdefault("owner", user) != user:
        raise InvalidRequest("differs from owner", field="user_id")
    return query
