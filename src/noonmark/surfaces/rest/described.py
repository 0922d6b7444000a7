"""What each route takes and gives, for the OpenAPI document; with examples that a test sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.uploads import MAX_PATH
from noonmark.operations.declaring import MAX_KEY
from noonmark.operations.registry import OPERATIONS
from noonmark.operations.uploads import MAX_KEY as MAX_UPLOAD_KEY
from noonmark.surfaces.rest import cron_service, rpc, tasks, uploading
from noonmark.surfaces.rest.examples import EXAMPLES, TASK
from noonmark.surfaces.rest.routes import ROUTES, Body
from noonmark.wire import answers, bodies, happenings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from noonmark.surfaces.rest.reading import Kind

_LONGEST = {"idempotency_key": MAX_KEY, "key": 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
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


def described() -> list[Described]:
    """Every route that is served, but those of the description itself."""
    ours = [
        Described(
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
    Described(
        method="POST",
        path=uploading.ALL,
        name="upload_create",
        summary="Keep a file, and tell of it by an event; the same file under the same key again is the same upload.",
        tag="upload",
        answer=happenings.Upload,
        status=201,
        query=uploading.PARAMETERS,
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
    Described(
        method="GET",
        path=uploading.ONE,
        name="upload_content",
        summary="What is in a file that was uploaded.",
        tag="upload",
        media="application/octet-stream",
    ),
]
_WATCHING = [
    Described(
        method="GET",
        path="/health",
        name="health",
        summary="That it is well, and what it is.",
        tag="health",
        answer=answers.Health,
    ),
    Described(
        method="GET",
        path="/health/live",
        name="health_live",
        summary="That it answers at all.",
        tag="health",
        answer=answers.Health,
    ),
    Described(
        method="GET",
        path="/health/ready",
        name="health_ready",
        summary="Whether it can do its work.",
        tag="health",
        answer=answers.Health,
    ),
    Described(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="What it has counted, as Prometheus reads it.",
        tag="health",
    ),
]
_LAUNCHING = [
    Described(
        method="POST",
        path=cron_service.LAUNCH,
        name="run_launcher_start",
        summary="Run a workflow once, now; the same key again is the same run.",
        tag="cron service",
        answer=answers.Launched,
        query=cron_service.LAUNCHED,
        required=frozenset(cron_service.LAUNCHED) - {"version"},
    ),
    Described(
        method="POST",
        path=rpc.PATH,
        name="rpc",
        summary="Every operation by JSON-RPC 2.0; batches and notifications too.",
        tag="json-rpc",
        answer=answers.Returned,
        bodies=(bodies.Call,),
        examples={"a list": {"jsonrpc": "2.0", "id": 1, "method": "schedule/list", "params": {"limit": 10}}},
    ),
]


def _tasks() -> list[Described]:
    def one(method: str, path: str, name: str, summary: str, answer: type[BaseModel], **more: Any) -> Described:  # noqa: ANN401 - of the description
        return Described(
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
