"""The OpenAPI document: every route with its parameters, bodies and answers, and examples that a test sends."""

from __future__ import annotations

import re
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import Scope
from noonmark.core.frozen import frozen
from noonmark.core.uploads import MAX_PATH
from noonmark.operations.models import answers
from noonmark.operations.models.arguments import MAX_KEY, OneRun
from noonmark.operations.models.fields import Kind
from noonmark.operations.models.schemas import SchemaRegistry
from noonmark.operations.table import OPERATIONS, Body
from noonmark.operations.uploads import MAX_KEY as MAX_UPLOAD_KEY
from noonmark.server import bundles, jsonrpc, pings, uploads
from noonmark.server.dialects import cron_service, models, tasks
from noonmark.server.mcp import endpoint as mcp
from noonmark.server.problems import PROBLEM
from noonmark.server.requests import ParameterType
from noonmark.server.routes import OUTPUT, ROUTES
from noonmark.server.web import sign_in, stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.models.fields import Arguments
    from noonmark.server.routes import Route


NOON = {"type": "cron", "expression": "0 12 * * *", "timezone": "Europe/Stockholm"}
USED = {
    "model": "gpt-5-mini",
    "provider": "openai",
    "input_tokens": 1_200,
    "output_tokens": 300,
    "cost_usd": 0.0009,
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "schedule/create": {
        "a function every day at noon": {
            "name": "noon report",
            "trigger": NOON,
            "target": {"target_kind": "function", "function": "report"},
        },
        "a call every five minutes, tried three times": {
            "trigger": {"type": "interval", "every_seconds": 300},
            "target": {"target_kind": "http", "method": "POST", "url": "https://example.org/refresh"},
            "retry_policy": {"max_attempts": 3, "backoff_seconds": 10},
            "overlap_policy": "queue",
        },
        "a command whenever a file comes": {
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": {"name": {"suffix": ".csv"}}},
            "target": {"target_kind": "command", "argv": ["import-csv"]},
            "labels": {"team": "data"},
        },
    },
    "schedule/upsert": {
        "our own document": {
            "schedule_id": "nightly",
            "trigger": {"type": "cron", "expression": "@daily"},
            "target": {"target_kind": "function", "function": "tidy"},
        },
        "the cron service's document": {
            "workflow_id": "example_workflow",
            "version": 1,
            "user_id": "user123",
            "cron_expr": "0 */5 * * * *",
            "timezone": "America/New_York",
        },
    },
    "schedule/update": {
        "an hour later": {"trigger": {**NOON, "expression": "0 13 * * *"}, "description": "after lunch"}
    },
    "schedule/pause": {"with a reason": {"reason": "maintenance"}, "as the cron service has it": {"paused": True}},
    "schedule/resume": {"with a reason": {"reason": "maintenance is over"}},
    "schedule/delete": {"with a reason": {"reason": "no longer needed"}},
    "schedule/run": {"with a payload": {"payload": {"day": "2030-01-01"}, "overlap": "allow"}},
    "schedule/backfill": {
        "how much it would be": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z", "dry_run": True}
    },
    "schedule/preview": {"three times": {"trigger": NOON, "count": 3, "after": "2030-03-30T00:00:00Z"}},
    "occurrence/complete": {"with a result": {"result": {"rows": 12}, "usage": USED}},
    "occurrence/fail": {"with an error": {"error": "the file was empty"}},
    "occurrence/cancel": {"with a reason": {"reason": "not today"}},
    "budget/set": {
        "ten dollars a month": {"period": "month", "max_cost_usd": 10, "warning_threshold": 0.8},
        "beyond a million tokens somebody must approve": {
            "period": "day",
            "max_tokens": 1_000_000,
            "hard": False,
            "require_approval": True,
        },
    },
    "usage/record": {"a call": {"idempotency_key": "batch-17", **USED}},
    "key/create": {
        "for a program that starts work": {
            "tenant": "acme",
            "user": "ci",
            "scopes": ["read", "run"],
            "expires_in_seconds": 7_776_000,
        }
    },
    "key/rotate": {"with an hour to change over": {"grace_seconds": 3_600}},
    "event/emit": {"a file": {"event_type": "file_uploaded", "payload": {"name": "a.csv"}, "event_id": "upload-1"}},
    "secret/set": {"a token": {"value": "Bearer put-your-token-here", "hosts": ["api.example.com", "*.example.org"]}},
    "event/match": {
        "which of the last events": {
            "event_type": "file_uploaded",
            "filters": {"path": {"prefix": "/datasets/"}},
            "limit": 50,
        },
        "one that was never emitted": {
            "trigger": {"type": "event", "event_type": "file_uploaded", "filters": {"size": {"gt": 0}}},
            "event": {"payload": {"size": 12}},
        },
    },
}


TASK: dict[str, Any] = {
    "name": "Daily research",
    "cron_expression": "0 9 * * 1-5",
    "timezone": "America/New_York",
    "task_query": "What is new in durable scheduling?",
    "task_context": {"force_research": True},
    "max_budget_per_run_usd": 0.5,
    "timeout_seconds": 1_800,
}


@frozen(kw_only=True)
class Health:
    """The state of the server."""

    status: str


@frozen(kw_only=True)
class Problem:
    """What went wrong, as RFC 9457 defines it."""

    type: str
    title: str
    status: int
    code: str
    """Stable: programs go by it."""
    detail: str
    field: str | None = None
    """Where in the request it is."""
    problems: list[dict[str, Any]] | None = None
    """Everything that is wrong, if that is more than one thing."""
    request_id: str
    """The id under which the server logs it."""


class RpcCall:
    """A JSON-RPC 2.0 call, or a batch of calls."""


class RpcResponse:
    """The response to a JSON-RPC 2.0 call, or to each call of a batch."""


class McpMessage:
    """A message of the Model Context Protocol: a request or a notification in JSON-RPC 2.0."""


class McpAnswer:
    """The answer to a message of the Model Context Protocol, also where it is an error."""


@frozen(kw_only=True)
class DocumentedRoute:
    """One route, for people and tools."""

    method: str
    path: str
    name: str
    summary: str
    tag: str
    answer: type | None = None
    """None is content of another kind."""
    status: int = 200
    arguments: type[Arguments] | None = None
    """Where the schemas of parameters come from."""
    bodies: tuple[type, ...] = ()
    is_body_required: bool = False
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Bodies by what they show."""
    query: Mapping[str, ParameterType] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    """Parameters that must be there."""
    longest_key: int = 0
    """Characters that an Idempotency-Key header may have; 0 where it means nothing."""
    is_conditional: bool = False
    headers: tuple[str, ...] = ()
    """Other headers that a client may send."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """A body of other kinds: their schemas, by media type."""
    media: str = "text/plain"
    """The media type of an answer that is not JSON."""
    scope: Scope | None = None
    """The permission that a key needs; None if any key will do."""
    is_public: bool = False
    """Whether it needs no key."""
    is_global: bool = False
    """Whether it needs a key of tenant `*`."""

    @property
    def access(self) -> str:
        """Who may call it, as a sentence."""
        if self.is_public:
            return "Needs no key."
        scope = "" if self.scope is None else f" with the scope `{self.scope}`"
        return f"Needs a key{' of tenant `*`' if self.is_global else ''}{scope}."


_DIALECTS: dict[str, type] = {
    "schedule/upsert": models.CronServiceSchedule,
    "schedule/pause": models.CronServicePause,
}
"""Bodies that a route accepts besides its own."""


def documented_routes() -> list[DocumentedRoute]:
    """Every route that is served, but those of the description itself."""
    ours = [_document_route(route) for route in ROUTES]
    return [
        *ours,
        *_UPLOAD_ROUTES,
        *_BUNDLE_ROUTES,
        *_PING_ROUTES,
        *_HEALTH_ROUTES,
        *_STREAM_ROUTES,
        *_PAGE_ROUTES,
        *_RPC_ROUTES,
        *_task_routes(),
    ]


def _document_route(route: Route) -> DocumentedRoute:
    operation, has_body = OPERATIONS[route.operation], route.body is not Body.NONE
    is_other = f"{route.method} {route.path}" == operation.other_route
    bodies = (operation.arguments, *([_DIALECTS[route.operation]] if route.operation in _DIALECTS else []))
    return DocumentedRoute(
        method=route.method,
        path=route.path,
        # One operation may have two routes.
        name=f"{route.operation.replace('/', '_')}{'_bare' if is_other else ''}",
        summary=operation.summary,
        tag=route.operation.partition("/")[0],
        answer=operation.answer,
        status=route.status,
        arguments=operation.arguments,
        bodies=bodies if has_body else (),
        is_body_required=route.body is Body.REQUIRED,
        examples=EXAMPLES.get(route.operation, {}) if has_body else {},
        query=route.query,
        longest_key=0 if route.key is None else _schema_of(operation.arguments, route.key).get("maxLength", 0),
        is_conditional=route.is_conditional,
        scope=operation.scope,
        is_global=operation.is_global,
    )


def _schema_of(arguments: type[Arguments] | None, name: str) -> Mapping[str, Any]:
    """The schema of an argument; empty if there is none, or it is not a plain value."""
    field = None if arguments is None else arguments.fields().get(name)
    schema = field.kind.schema if field is not None and isinstance(field.kind, Kind) else {}
    return schema if "type" in schema else {}


_FILE = {"type": "string", "contentMediaType": "application/octet-stream"}
_UPLOAD_ROUTES = [
    DocumentedRoute(
        method="POST",
        path=uploads.ALL,
        name="upload_create",
        summary="Upload a file, and announce it by an event; the same file with the same key again is the same upload.",
        tag="upload",
        answer=answers.Upload,
        status=201,
        query=uploads.PARAMETERS,
        longest_key=MAX_UPLOAD_KEY,
        scope=Scope.WRITE,
        content={
            "multipart/form-data": {
                "type": "object",
                "required": ["file"],
                "additionalProperties": False,
                "properties": {"file": _FILE, "path": {"type": "string", "minLength": 1, "maxLength": MAX_PATH}},
            },
            "application/octet-stream": _FILE,
        },
    ),
    DocumentedRoute(
        method="GET",
        path=uploads.ONE,
        name="upload_content",
        summary="Download an uploaded file.",
        tag="upload",
        media="application/octet-stream",
        scope=Scope.READ,
    ),
]
_ZIP = {"type": "string", "contentMediaType": "application/zip"}
_BUNDLE_ROUTES = [
    DocumentedRoute(
        method="POST",
        path=bundles.ALL,
        name="bundle_push",
        summary="Push a bundle, as a zip file: it is the newest of its id, and its schedules are declared.",
        tag="bundle",
        answer=answers.PushedBundle,
        status=201,
        query=bundles.PARAMETERS,
        scope=Scope.WRITE,
        content={
            "multipart/form-data": {
                "type": "object",
                "required": ["file"],
                "additionalProperties": False,
                "properties": {"file": _ZIP},
            },
            "application/zip": _ZIP,
        },
    ),
]
_OUTPUT = {"text/plain": {"type": "string"}}
_PING_ROUTES = [
    DocumentedRoute(
        method=method,
        path=path,
        name=f"ping_{name}_{method.lower()}",
        summary=summary,
        tag="ping",
        answer=answers.Ping,
        content=_OUTPUT if method == "POST" else {},
        is_public=True,
    )
    for path, name, summary in (
        (pings.END, "success", "Report that the job of a schedule has succeeded; the body is its output."),
        (pings.ACTION, "action", "Report a `start`, a `fail` or the exit status of a job; the body is its output."),
    )
    for method in pings.METHODS
]
_HEALTH_ROUTES = [
    DocumentedRoute(
        method="GET",
        path=OUTPUT,
        name="run_output",
        summary="Get what a run left, as plain text: the output of a command, another result, or its error.",
        tag="run",
        arguments=OneRun,
        scope=Scope.READ,
    ),
    DocumentedRoute(
        method="GET",
        path="/health",
        is_public=True,
        name="health",
        summary="Get the state and the version of the server.",
        tag="health",
        answer=Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/health/live",
        is_public=True,
        name="health_live",
        summary="Check that the server responds.",
        tag="health",
        answer=Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/health/ready",
        is_public=True,
        name="health_ready",
        summary="Check that the server can do its work.",
        tag="health",
        answer=Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Get the metrics, in the text format of Prometheus.",
        tag="health",
        scope=Scope.READ,
        is_global=True,
    ),
]
_STREAM_ROUTES = [
    DocumentedRoute(
        method="GET",
        path=stream.PATH,
        name="stream",
        summary="Listen for changes, as server-sent events: hints of what to read again.",
        tag="stream",
        media=stream.MEDIA_TYPE,
        headers=("Last-Event-ID",),
        scope=Scope.READ,
    ),
]
_PAGE_ROUTES = [
    DocumentedRoute(
        method="POST",
        path=sign_in.PATH,
        name="page_sign_in",
        summary="Sign in to the web page with an API key: the answer sets a cookie, which is good for the whole API.",
        tag="page",
        answer=answers.Identity,
        is_body_required=True,
        content={
            "application/json": {
                "type": "object",
                "required": ["key"],
                "additionalProperties": False,
                "properties": {"key": {"type": "string", "minLength": 1, "maxLength": sign_in.MAX_KEY}},
            }
        },
        is_public=True,
    ),
    DocumentedRoute(
        method="DELETE",
        path=sign_in.PATH,
        name="page_sign_out",
        summary="Sign out of the web page: here, or with `everywhere` all who have signed in with the key.",
        tag="page",
        status=204,
        query=sign_in.PARAMETERS,
        is_public=True,
    ),
]
_RPC_ROUTES = [
    DocumentedRoute(
        method="POST",
        path=cron_service.LAUNCH,
        name="run_launcher_start",
        summary="Run a workflow now; the same key again is the same run.",
        tag="cron service",
        answer=models.StartedWorkflow,
        query=cron_service.LAUNCHED,
        required=frozenset(cron_service.LAUNCHED) - {"version"},
        scope=Scope.RUN,
    ),
    DocumentedRoute(
        method="POST",
        path=jsonrpc.PATH,
        name="rpc",
        summary="Call any operation by JSON-RPC 2.0; batches and notifications are supported.",
        tag="json-rpc",
        answer=RpcResponse,
        bodies=(RpcCall,),
        examples={"a list": {"jsonrpc": "2.0", "id": 1, "method": "schedule/list", "params": {"limit": 10}}},
    ),
    DocumentedRoute(
        method="POST",
        path=mcp.PATH,
        name="mcp",
        summary="Speak the Model Context Protocol over streamable HTTP: the tools and the skill for agents.",
        tag="mcp",
        answer=McpAnswer,
        bodies=(McpMessage,),
        is_body_required=True,
        examples={"the tools": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
    ),
]


def _task_routes() -> list[DocumentedRoute]:
    def route(method: str, path: str, name: str, summary: str, answer: type, **more: Any) -> DocumentedRoute:
        scope = Scope.READ if method == "GET" else Scope.WRITE
        return DocumentedRoute(
            method=method,
            path=path,
            name=f"task_{name}",
            summary=summary,
            tag="tasks",
            answer=answer,
            scope=scope,
            **more,
        )

    base, where = tasks.BASE, tasks.ONE
    why = {"bodies": (models.TaskAction,), "examples": {"with a reason": {"reason": "holidays"}}}
    return [
        route(
            "POST",
            base,
            "create",
            "Create a task schedule.",
            models.TaskCreated,
            status=201,
            bodies=(models.NewTask,),
            is_body_required=True,
            examples={"a question every working day": TASK},
            longest_key=MAX_KEY,
        ),
        route("GET", base, "list", "List task schedules, newest first.", models.TaskSchedulePage, query=tasks.LIST),
        route("GET", where, "get", "Get a task schedule.", models.TaskSchedule),
        route(
            "PUT",
            where,
            "update",
            "Change some fields of a task schedule.",
            models.TaskResult,
            bodies=(models.TaskChanges,),
            is_body_required=True,
            examples={"another budget": {"max_budget_per_run_usd": 1}},
        ),
        route("POST", f"{where}/pause", "pause", "Pause a task schedule.", models.TaskResult, **why),
        route("POST", f"{where}/resume", "resume", "Resume a task schedule.", models.TaskResult, **why),
        route("DELETE", where, "delete", "Delete a task schedule.", models.TaskResult, **why),
        route(
            "GET",
            f"{where}/runs",
            "runs",
            "List the runs of a task schedule, newest first.",
            models.TaskRunPage,
            query=tasks.PAGES,
        ),
    ]


SCHEME = "key"
ID = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
SCHEMAS: dict[ParameterType, dict[str, Any]] = {
    ParameterType.TEXT: {"type": "string", "minLength": 1},
    ParameterType.INTEGER: {"type": "integer"},
    ParameterType.BOOLEAN: {"type": "boolean"},
    ParameterType.INSTANT: {"type": "string", "format": "date-time"},
    ParameterType.SEVERAL: {"type": "array", "items": {"type": "string", "minLength": 1}},
}
ERROR_STATUSES = {
    400: "The body, a parameter or a header is invalid.",
    401: "The key is missing or invalid.",
    403: "The key does not allow it, the Host is not allowed, or the request comes from a page of another site.",
    404: "Not found.",
    405: "Method not allowed.",
    408: "The body did not arrive in time.",
    409: "Conflict with the current state.",
    412: "If-Match names another revision.",
    413: "The body is too large, or the answer would be.",
    415: "Unsupported media type: the body must be JSON.",
    429: "Limit reached.",
    500: "Internal error.",
    503: "The store is unavailable, or all connections are in use.",
}


def document(version: str) -> dict[str, Any]:
    """Every route with its parameters, bodies and answers."""
    paths: dict[str, dict[str, Any]] = {}
    registry = SchemaRegistry()
    for route in documented_routes():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, registry)
    problem = registry.reference(Problem)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Noonmark",
            "version": version,
            "description": "A durable scheduler: it says what it will do, does it, and can tell you why.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(registry.schemas.items())),
            "responses": {
                f"Refused{status}": {"description": description, "content": {PROBLEM: {"schema": problem}}}
                for status, description in ERROR_STATUSES.items()
            },
            "securitySchemes": {
                SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, or a signed token. A server on loopback without any key needs none.",
                }
            },
        },
    }


def _operation(route: DocumentedRoute, registry: SchemaRegistry) -> dict[str, Any]:
    answer = _answer(route, registry)
    responses: dict[str, Any] = {str(route.status): answer}
    if route.path == "/rpc":
        responses["204"] = {"description": "The body had only notifications."}
    if route.path == mcp.PATH:
        # The library of the protocol refuses by messages of its own.
        either = {**answer, "content": {**answer["content"], PROBLEM: {"schema": registry.reference(Problem)}}}
        responses |= {
            "202": {"description": "The body was a notification."},
            "400": either,
            "404": either,
            "406": either,
        }
    for status in ERROR_STATUSES:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Refused{status}"})
    if route.path == "/health/ready":
        responses["503"] = answer
    document: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": responses,
        "description": route.access,
        "security": [] if route.is_public else [{SCHEME: [] if route.scope is None else [str(route.scope)]}],
    }
    if route.bodies or route.content:
        document["requestBody"] = _body(route, registry)
    return document


def _answer(route: DocumentedRoute, registry: SchemaRegistry) -> dict[str, Any]:
    if route.status == HTTPStatus.NO_CONTENT:
        return {"description": route.summary}
    if route.answer is None:
        return {"description": route.summary, "content": {route.media: {"schema": {"type": "string"}}}}
    headers = {"X-Request-Id": _header("The id under which the server logs the request.")}
    if route.answer is answers.Schedule:
        headers["ETag"] = _header("The revision of the schedule, and when it was last changed.")
    if route.status == 201 and route.answer is not answers.CreatedKey:
        headers["Location"] = _header("The path of the new resource.")
    return {
        "description": (route.answer.__doc__ or "").strip(),
        "content": {"application/json": {"schema": registry.reference(route.answer)}},
        "headers": headers,
    }


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "required": True, "schema": {"type": "string"}}


def _body(route: DocumentedRoute, registry: SchemaRegistry) -> dict[str, Any]:
    if route.content:
        return {
            "required": route.is_body_required,
            "content": {media: {"schema": schema} for media, schema in route.content.items()},
        }
    in_path = _path_names(route)
    schemas = [registry.reference(model, without=in_path) for model in route.bodies]
    content: dict[str, Any] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if route.examples:
        content["examples"] = {name: {"value": value} for name, value in route.examples.items()}
    return {"required": route.is_body_required, "content": {"application/json": content}}


def _path_names(route: DocumentedRoute) -> list[str]:
    return re.findall(r"{(\w+)}", route.path)


def _parameters(route: DocumentedRoute) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": dict(_schema_of(route.arguments, name) or ID)}
        for name in _path_names(route)
    ]
    for name, kind in route.query.items():
        schema = dict(SCHEMAS[kind])
        if kind is not ParameterType.SEVERAL:
            schema |= _schema_of(route.arguments, name)
        parameters.append({"name": name, "in": "query", "required": name in route.required, "schema": schema})
    if route.longest_key:
        schema = {"type": "string", "minLength": 1, "maxLength": route.longest_key}
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    if route.is_conditional:
        schema = {"type": "string", "pattern": '^("[0-9]{1,9}(-[0-9A-Z.:-]{1,40})?"|[*])$'}
        parameters.append({"name": "If-Match", "in": "header", "required": False, "schema": schema})
    others = ({"name": name, "in": "header", "required": False, "schema": {"type": "string"}} for name in route.headers)
    return [*parameters, *others]
