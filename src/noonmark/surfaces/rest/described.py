"""What each route takes and gives, for the OpenAPI document; with examples that a test sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.operations.registry import OPERATIONS
from noonmark.surfaces.rest import cron_service, rpc, tasks
from noonmark.surfaces.rest.routes import ROUTES, Body
from noonmark.wire import answers, bodies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from noonmark.surfaces.rest.reading import Kind

NOON = {"type": "cron", "expression": "0 12 * * *", "timezone": "Europe/Stockholm"}


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
    has_key: bool = False
    is_conditional: bool = False


_BODIES: dict[str, tuple[type[BaseModel], ...]] = {
    "schedule/create": (bodies.NewSchedule,),
    "schedule/upsert": (bodies.NewSchedule, bodies.CronServiceSchedule),
    "schedule/update": (bodies.ScheduleChanges,),
    "schedule/pause": (bodies.Pause,),
    "schedule/resume": (bodies.Why,),
    "schedule/delete": (bodies.Why,),
    "schedule/run": (bodies.RunNow,),
    "schedule/backfill": (bodies.Backfill,),
    "schedule/preview": (bodies.PreviewTrigger,),
    "occurrence/complete": (bodies.Complete,),
    "occurrence/fail": (bodies.Fail,),
    "occurrence/cancel": (bodies.Why,),
    "event/emit": (bodies.NewEvent,),
    "worker/start": (bodies.Body,),
    "worker/stop": (bodies.Body,),
}
_ANSWERS: dict[str, type[BaseModel]] = {
    **{
        f"schedule/{one}": answers.Schedule
        for one in ("create", "upsert", "update", "get", "pause", "resume", "delete")
    },
    **{f"occurrence/{one}": answers.Occurrence for one in ("get", "complete", "fail", "cancel")},
    **{f"worker/{one}": answers.Worker for one in ("start", "stop", "status")},
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
    "event/emit": answers.Emitted,
    "event/list": answers.Events,
    "node/list": answers.Nodes,
    "audit/list": answers.Entries,
}
_EXAMPLES: dict[str, dict[str, Any]] = {
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
            examples={} if route.body is Body.NONE else _EXAMPLES.get(route.operation, {}),
            query=route.query,
            has_key=route.key is not None,
            is_conditional=route.is_conditional,
        )
        for route in ROUTES
    ]
    return [*ours, *_WATCHING, *_LAUNCHING, *_tasks()]


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
        answer=answers.Answer,
        bodies=(answers.Answer,),
        is_body_required=True,
        examples={"a list": {"jsonrpc": "2.0", "id": 1, "method": "schedule/list", "params": {"limit": 10}}},
    ),
]


def _tasks() -> list[Described]:
    def one(method: str, path: str, name: str, summary: str, answer: type[BaseModel], **more: Any) -> Described:  # noqa: ANN401 - of the description
        return Described(
            method=method, path=path, name=f"task_{name}", summary=summary, tag="tasks", answer=answer, **more
        )

    task = {
        "name": "Daily research",
        "cron_expression": "0 9 * * 1-5",
        "timezone": "America/New_York",
        "task_query": "What is new in durable scheduling?",
        "task_context": {"force_research": True},
        "max_budget_per_run_usd": 0.5,
        "timeout_seconds": 1_800,
    }
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
            examples={"a question every working day": task},
            has_key=True,
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
