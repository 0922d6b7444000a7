"""The OpenAPI document: every route with its parameters, bodies and answers, and examples that a test sends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from noonmark.core.uploads import MAX_PATH
from noonmark.operations.schedules import MAX_KEY
from noonmark.operations.table import OPERATIONS
from noonmark.operations.uploads import MAX_KEY as MAX_UPLOAD_KEY
from noonmark.server import jsonrpc, uploads
from noonmark.server.dialects import cron_service, tasks
from noonmark.server.problems import PROBLEM
from noonmark.server.requests import Kind
from noonmark.server.routes import ROUTES, Body
from noonmark.wire import answers, bodies, happenings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel


NOON = {"type": "cron", "expression": "0 12 * * *", "timezone": "Europe/Stockholm"}
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
    "occurrence/complete": {"with a result": {"result": {"rows": 12}, "usage": {"tokens": 900, "cost_usd": 0.01}}},
    "occurrence/fail": {"with an error": {"error": "the file was empty"}},
    "occurrence/cancel": {"with a reason": {"reason": "not today"}},
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


_LONGEST = {"idempotency_key": MAX_KEY, "key": 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedRoute:
    """One route, for people and tools."""

    method: str
    path: str
    name: str
    summary: str
    tag: str
    answer: type[BaseModel] | None = None
    """None is content of another kind."""
    status: int = 200
    bodies: tuple[type[BaseModel], ...] = ()
    is_body_required: bool = False
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Bodies by what they show."""
    query: Mapping[str, Kind] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    """Parameters that must be there."""
    longest_key: int = 0
    """Characters that an Idempotency-Key header may have; 0 where it means nothing."""
    is_conditional: bool = False
    content: Mapping[str, Any] = field(default_factory=dict)
    """A body of other kinds: their schemas, by media type."""
    media: str = "text/plain"
    """Of an answer that is no document."""


_BODIES: dict[str, tuple[type[BaseModel], ...]] = {
    "schedule/create": (bodies.NewSchedule,),
    "schedule/upsert": (bodies.NewSchedule, bodies.CronServiceSchedule),
    "schedule/update": (bodies.ScheduleChanges,),
    "schedule/pause": (bodies.Pause,),
    "schedule/resume": (bodies.Steer,),
    "schedule/delete": (bodies.Steer,),
    "schedule/run": (bodies.RunNow,),
    "schedule/backfill": (bodies.Backfill,),
    "schedule/preview": (bodies.PreviewTrigger,),
    "occurrence/complete": (bodies.Complete,),
    "occurrence/fail": (bodies.Fail,),
    "occurrence/cancel": (bodies.Why,),
    "event/emit": (bodies.NewEvent,),
    "secret/set": (bodies.NewSecret,),
    "event/match": (bodies.MatchEvents,),
    "worker/start": (bodies.Body,),
    "worker/stop": (bodies.Body,),
    "worker/confirm-time": (bodies.Body,),
}
_ANSWERS: dict[str, type[BaseModel]] = {
    **{
        f"schedule/{one}": answers.Schedule
        for one in ("create", "upsert", "update", "get", "pause", "resume", "delete")
    },
    **{f"occurrence/{one}": answers.Occurrence for one in ("get", "complete", "fail", "cancel")},
    **{f"worker/{one}": answers.Worker for one in ("start", "stop", "confirm-time", "status")},
    "schedule/list": answers.Schedules,
    "schedule/count": answers.Counted,
    "schedule/run": answers.Occurrence,
    "schedule/backfill": answers.Backfilled,
    "schedule/preview": answers.Previewed,
    "schedule/occurrences": answers.Occurrences,
    "schedule/runs": answers.Runs,
    "schedule/explain": answers.Explanation,
    "occurrence/runs": answers.Runs,
    "occurrence/explain": answers.Explanation,
    "run/get": answers.Run,
    "event/emit": happenings.Emitted,
    "event/list": happenings.Events,
    "secret/set": answers.Secret,
    "secret/list": answers.Secrets,
    "secret/delete": answers.Secret,
    "signing/key": answers.SigningKey,
    "event/match": happenings.Matched,
    "trigger/list": happenings.Triggers,
    "upload/list": happenings.Uploads,
    "upload/delete": happenings.Upload,
    "node/list": answers.Nodes,
    "doctor": answers.Diagnosis,
    "audit/list": answers.Entries,
}


def documented_routes() -> list[DocumentedRoute]:
    """Every route that is served, but those of the description itself."""
    ours = [
        DocumentedRoute(
            method=route.method,
            path=route.path,
            # One operation may have two routes.
            name=f"{route.operation.replace('/', '_')}{'_bare' if route.path == '/schedules/preview' else ''}",
            summary=OPERATIONS[route.operation].summary,
            tag=route.operation.partition("/")[0],
            answer=_ANSWERS[route.operation],
            status=route.status,
            bodies=() if route.body is Body.NONE else _BODIES[route.operation],
            is_body_required=route.body is Body.REQUIRED,
            examples={} if route.body is Body.NONE else EXAMPLES.get(route.operation, {}),
            query=route.query,
            longest_key=_LONGEST.get(route.key or "", 0),
            is_conditional=route.is_conditional,
        )
        for route in ROUTES
    ]
    return [*ours, *_UPLOADING, *_WATCHING, *_LAUNCHING, *_tasks()]


_FILE = {"type": "string", "contentMediaType": "application/octet-stream"}
_UPLOADING = [
    DocumentedRoute(
        method="POST",
        path=uploads.ALL,
        name="upload_create",
        summary="Keep a file, and tell of it by an event; the same file under the same key again is the same upload.",
        tag="upload",
        answer=happenings.Upload,
        status=201,
        query=uploads.PARAMETERS,
        longest_key=MAX_UPLOAD_KEY,
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
        summary="What is in a file that was uploaded.",
        tag="upload",
        media="application/octet-stream",
    ),
]
_WATCHING = [
    DocumentedRoute(
        method="GET",
        path="/health",
        name="health",
        summary="That it is well, and what it is.",
        tag="health",
        answer=answers.Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/health/live",
        name="health_live",
        summary="That it answers at all.",
        tag="health",
        answer=answers.Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/health/ready",
        name="health_ready",
        summary="Whether it can do its work.",
        tag="health",
        answer=answers.Health,
    ),
    DocumentedRoute(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="What it has counted, as Prometheus reads it.",
        tag="health",
    ),
]
_LAUNCHING = [
    DocumentedRoute(
        method="POST",
        path=cron_service.LAUNCH,
        name="run_launcher_start",
        summary="Run a workflow once, now; the same key again is the same run.",
        tag="cron service",
        answer=answers.Launched,
        query=cron_service.LAUNCHED,
        required=frozenset(cron_service.LAUNCHED) - {"version"},
    ),
    DocumentedRoute(
        method="POST",
        path=jsonrpc.PATH,
        name="rpc",
        summary="Every operation by JSON-RPC 2.0; batches and notifications too.",
        tag="json-rpc",
        answer=answers.Returned,
        bodies=(bodies.Call,),
        examples={"a list": {"jsonrpc": "2.0", "id": 1, "method": "schedule/list", "params": {"limit": 10}}},
    ),
]


def _tasks() -> list[DocumentedRoute]:
    def one(method: str, path: str, name: str, summary: str, answer: type[BaseModel], **more: Any) -> DocumentedRoute:  # noqa: ANN401 - of the description
        return DocumentedRoute(
            method=method, path=path, name=f"task_{name}", summary=summary, tag="tasks", answer=answer, **more
        )

    base, where = tasks.BASE, tasks.ONE
    why = {"bodies": (bodies.Why,), "examples": {"with a reason": {"reason": "holidays"}}}
    return [
        one(
            "POST",
            base,
            "create",
            "Keep a task schedule.",
            answers.TaskMade,
            status=201,
            bodies=(bodies.NewTask,),
            is_body_required=True,
            examples={"a question every working day": TASK},
            longest_key=MAX_KEY,
        ),
        one(
            "GET", base, "list", "A page of task schedules, the newest first.", answers.TaskSchedules, query=tasks.LIST
        ),
        one("GET", where, "get", "One task schedule.", answers.TaskSchedule),
        one(
            "PUT",
            where,
            "update",
            "Change some of a task schedule.",
            answers.TaskDone,
            bodies=(bodies.TaskChanges,),
            is_body_required=True,
            examples={"another budget": {"max_budget_per_run_usd": 1}},
        ),
        one("POST", f"{where}/pause", "pause", "Pause a task schedule.", answers.TaskDone, **why),
        one("POST", f"{where}/resume", "resume", "Resume a task schedule.", answers.TaskDone, **why),
        one("DELETE", where, "delete", "Delete a task schedule.", answers.TaskDone, **why),
        one(
            "GET", f"{where}/runs", "runs", "A page of its runs, the newest first.", answers.TaskRuns, query=tasks.PAGES
        ),
    ]


REF = "#/components/schemas/{model}"
ID = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
IN_PATHS: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$"},
}
"""What stands in a path and is no such id."""
SCHEMAS: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": "string", "minLength": 1},
    Kind.INTEGER: {"type": "integer"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INSTANT: {"type": "string", "format": "date-time"},
    Kind.SEVERAL: {"type": "array", "items": {"type": "string", "minLength": 1}},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "limit": {"minimum": 1, "maximum": 2**31 - 1},
    "count": {"minimum": 1, "maximum": 1_000},
    "offset": {"minimum": 0, "maximum": 10_000},
    "version": {"minimum": 0, "maximum": 2**31 - 1},
}
REFUSALS = {
    400: "The body, a parameter or a header is wrong.",
    403: "Another host was meant, or the page of another site asks.",
    404: "There is no such thing.",
    405: "Not by this method.",
    408: "The body did not come in time.",
    409: "Not in the present state.",
    412: "If-Match names another revision.",
    413: "The body is too large, or the answer would be.",
    415: "The body is no JSON by its headers.",
    429: "A limit is reached.",
    500: "Something went wrong in the server.",
    503: "The store did not answer, or all connections are in use.",
}


def document(version: str) -> dict[str, Any]:
    """Every route with its parameters, bodies and answers."""
    routes = documented_routes()
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Noonmark",
            "version": version,
            "description": "A durable scheduler: it says what it will do, does it, and can tell you why.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "responses": {
                f"Refused{status}": {"description": words, "content": {PROBLEM: {"schema": _ref(answers.Problem)}}}
                for status, words in REFUSALS.items()
            },
        },
    }


def _schemas(routes: Iterable[DocumentedRoute]) -> dict[str, Any]:
    models = {model for one in routes for model in (*one.bodies, one.answer, answers.Problem) if model is not None}
    pairs = [(model, "validation") for model in sorted(models, key=lambda one: one.__name__)]
    _, found = models_json_schema(pairs, ref_template=REF)  # type: ignore[arg-type] # a literal in a list
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REF.format(model=model.__name__)}


def _operation(one: DocumentedRoute) -> dict[str, Any]:
    responses: dict[str, Any] = {str(one.status): _answer(one)}
    if one.path == "/rpc":
        responses["204"] = {"description": "Nothing but notifications came."}
    for status in REFUSALS:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Refused{status}"})
    if one.path == "/health/ready":
        responses["503"] = _answer(one)
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.tag],
        "parameters": _parameters(one),
        "responses": responses,
    }
    if one.bodies or one.content:
        found["requestBody"] = _body(one)
    return found


def _answer(one: DocumentedRoute) -> dict[str, Any]:
    if one.answer is None:
        return {"description": one.summary, "content": {one.media: {"schema": {"type": "string"}}}}
    said: dict[str, Any] = {
        "description": (one.answer.__doc__ or "").strip(),
        "content": {"application/json": {"schema": _ref(one.answer)}},
    }
    headers = {"X-Request-Id": _header("Under which the log has it.")}
    if one.answer is answers.Schedule:
        headers["ETag"] = _header("The revision of the schedule, and when it was last written.")
    if one.status == 201:
        headers["Location"] = _header("Where it is.")
    return {**said, "headers": headers}


def _header(words: str) -> dict[str, Any]:
    return {"description": words, "required": True, "schema": {"type": "string"}}


def _body(one: DocumentedRoute) -> dict[str, Any]:
    if one.content:
        return {
            "required": one.is_body_required,
            "content": {media: {"schema": schema} for media, schema in one.content.items()},
        }
    schemas = [_ref(model) for model in one.bodies]
    content: dict[str, Any] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if one.examples:
        content["examples"] = {name: {"value": value} for name, value in one.examples.items()}
    return {"required": one.is_body_required, "content": {"application/json": content}}


def _parameters(one: DocumentedRoute) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": IN_PATHS.get(name, ID)}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    for name, kind in one.query.items():
        schema = {**SCHEMAS[kind], **BOUNDS.get(name, {})}
        found.append({"name": name, "in": "query", "required": name in one.required, "schema": schema})
    if one.longest_key:
        schema = {"type": "string", "minLength": 1, "maxLength": one.longest_key}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    if one.is_conditional:
        schema = {"type": "string", "pattern": '^("[0-9]{1,9}(-[0-9A-Z.:-]{1,40})?"|[*])$'}
        found.append({"name": "If-Match", "in": "header", "required": False, "schema": schema})
    return found
