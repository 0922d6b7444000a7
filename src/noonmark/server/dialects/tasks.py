"""The task routes under /api/v1: a query in plain words, repeated by a cron expression."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import Scope
from noonmark.core.documents import present
from noonmark.core.engine import workflow_of_run
from noonmark.core.errors import (
    InvalidRequest,
    InvalidTrigger,
    NoonmarkError,
    NotFound,
    RevisionConflict,
)
from noonmark.core.json_values import boolean_value
from noonmark.operations.table import check_scope
from noonmark.server.dialects.models import NewTask, TaskChanges
from noonmark.server.problems import rename_fields
from noonmark.server.requests import ApiResponse, ParameterType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.operations.models.fields import Arguments
    from noonmark.server.requests import ApiRequest, Handler

REQUIRED = ("name", "cron_expression", "task_query")
NAMES = {
    "trigger": "cron_expression",
    "expression": "cron_expression",
    "trigger.expression": "cron_expression",
    "trigger.timezone": "timezone",
    "target.query": "task_query",
    "target.context": "task_context",
    "budget.max_cost_usd": "max_budget_per_run_usd",
    "owner": "user_id",
}
"""Their names for our fields."""
DEFAULT_TIMEOUT = 3_600
STATUSES = {
    "active": "ACTIVE",
    "paused": "PAUSED",
    "completed": "COMPLETED",
    "deleted": "DELETED",
    "proposed": "PROPOSED",
}
_OUTCOMES = {None: "RUNNING", "completed": "COMPLETED", "cancelled": "CANCELLED"}


def to_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a task into the arguments of a create."""
    _check_known(document, NewTask)
    if missing := [one for one in REQUIRED if document.get(one) in (None, "")]:
        raise InvalidRequest("is required", field=missing[0])
    _check_fields(document["cron_expression"])
    return present(
        name=document["name"],
        description=document.get("description"),
        user_id=document.get("user_id"),
        trigger=present(
            type="cron",
            expression=document["cron_expression"],
            timezone=None if document.get("timezone") == "" else document.get("timezone"),
        ),
        target=present(target_kind="task", query=document["task_query"], context=document.get("task_context")),
        budget=_budget(document.get("max_budget_per_run_usd")),
        timeout_seconds=_timeout(document.get("timeout_seconds")),
    )


def to_changes(document: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Translate changes into those of an update; null leaves a field as it is."""
    _check_known(document, TaskChanges)
    given = present(**document)
    changes: dict[str, Any] = {name: given[name] for name in ("name", "description") if name in given}
    if "cron_expression" in given:
        _check_fields(given["cron_expression"])
    if "cron_expression" in given or "timezone" in given:
        trigger = stored["trigger"] if stored["trigger"]["type"] == "cron" else {"type": "cron"}
        trigger = {name: value for name, value in trigger.items() if name != "crons" or "cron_expression" not in given}
        changes["trigger"] = trigger | _rename(given, expression="cron_expression", timezone="timezone")
    target = stored["target"] | _rename(given, query="task_query", context="task_context")
    if _is_cleared(given.get("clear_task_context", False)) and "task_context" not in given:
        target.pop("context", None)
    if target != stored["target"]:
        changes["target"] = target
    if "max_budget_per_run_usd" in given:
        changes["budget"] = _budget(given["max_budget_per_run_usd"])
    if "timeout_seconds" in given:
        changes["timeout_seconds"] = _timeout(given["timeout_seconds"])
    return changes


def _is_cleared(value: object) -> bool:
    try:
        return boolean_value(value)
    except ValueError as error:
        raise InvalidRequest(str(error), field="clear_task_context") from None


def _rename(given: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {ours: given[theirs] for ours, theirs in names.items() if theirs in given}


def _check_known(document: Mapping[str, Any], model: type[Arguments]) -> None:
    allowed = model.fields()
    if unknown := [name for name in document if name not in allowed]:
        raise InvalidRequest(f"unknown field; allowed are {', '.join(allowed)}", field=unknown[0])


def _check_fields(expression: object) -> None:
    """Check that a cron expression has five fields; the trigger checks their content."""
    if isinstance(expression, str) and len(expression.split()) != 5:
        raise InvalidTrigger(
            f"must have five fields (minute, hour, day of month, month, day of week), not {len(expression.split())}",
            field="cron_expression",
        )


def _budget(usd: object) -> dict[str, Any] | None:
    """The budget of a run; 0 means none."""
    return None if usd is None or (usd == 0 and not isinstance(usd, bool)) else {"max_cost_usd": usd}


def _timeout(seconds: Any) -> Any:
    """The timeout of a run; 0 means the default."""
    return DEFAULT_TIMEOUT if seconds is None or (seconds == 0 and not isinstance(seconds, bool)) else seconds


def is_task(schedule: Mapping[str, Any]) -> bool:
    """Whether a schedule is visible to these routes."""
    return bool(schedule["target"]["target_kind"] == "task")


def to_document(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a schedule into the format of these routes."""
    trigger, target, counters = schedule["trigger"] or {}, schedule["target"], schedule["counters"]
    return {
        "id": schedule["schedule_id"],
        "schedule_id": schedule["schedule_id"],
        "user_id": schedule["owner"]["user"],
        "tenant_id": schedule["owner"]["tenant"],
        "name": schedule["name"] or "",
        "description": schedule["description"],
        "cron_expression": trigger.get("expression", ""),
        "timezone": trigger.get("timezone", "UTC"),
        "task_query": target["query"],
        "task_context": target.get("context", {}),
        "max_budget_per_run_usd": schedule.get("budget", {}).get("max_cost_usd", 0),
        "timeout_seconds": schedule.get("timeout_seconds", DEFAULT_TIMEOUT),
        "temporal_schedule_id": None,
        "status": STATUSES[schedule["phase"]],
        "created_at": schedule["created_at_utc"],
        "updated_at": schedule["updated_at_utc"],
        "last_run_at": schedule["last_run_at"],
        "next_run_at": schedule["next_run_at"],
        "total_runs": counters["successful"] + counters["failed"],
        "successful_runs": counters["successful"],
        "failed_runs": counters["failed"],
    }


def run_document(run: Mapping[str, Any], query: str) -> dict[str, Any]:
    """Translate a run into the format of these routes."""
    usage, seconds = run["usage"] or {}, run["duration_seconds"]
    workflow = workflow_of_run(run["occurrence_id"], run["attempt"], run["node"])
    return {
        "workflow_id": workflow or run["run_id"],
        "query": query,
        "status": _OUTCOMES.get(run["outcome"], "FAILED"),
        "result": _answer(run["result"]),
        "error_message": run["error"],
        "model_used": usage.get("model"),
        "provider": usage.get("provider"),
        "total_tokens": usage.get("total_tokens", 0),
        "total_cost_usd": usage.get("cost_usd", 0),
        "duration_ms": None if seconds is None else round(seconds * 1_000),
        "triggered_at": run["started_at_utc"],
        "started_at": run["started_at_utc"],
        "completed_at": run["ended_at_utc"],
    }


def _answer(result: Any) -> Any:
    """What the agent answered: its text, or the JSON that it was asked for."""
    if not isinstance(result, dict) or "session_id" not in result:
        return result
    return result.get("text", result.get("output"))


BASE = "/api/v1/schedules"
ONE = f"{BASE}/{{schedule_id}}"
PAGES = {"page": ParameterType.INTEGER, "page_size": ParameterType.INTEGER}
LIST = {**PAGES, "status": ParameterType.TEXT, "user_id": ParameterType.TEXT}
MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE, DEFAULT_RUNS_SIZE = 100, 50, 20
MAX_TRIES = 10
RUNS_PER_READ = 1_000


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers of these routes, by method and path."""
    table: dict[tuple[str, str], Callable[[ApiRequest], ApiResponse]] = {
        ("POST", BASE): _create,
        ("GET", BASE): _list,
        ("GET", ONE): _get,
        ("PUT", ONE): _update,
        ("DELETE", ONE): _delete,
        ("POST", f"{ONE}/pause"): _pause,
        ("POST", f"{ONE}/resume"): _resume,
        ("GET", f"{ONE}/runs"): _runs,
    }
    return {
        (method, path): partial(_translate_errors, handler, Scope.READ if method == "GET" else Scope.WRITE)
        for (method, path), handler in table.items()
    }


def _translate_errors(handler: Callable[[ApiRequest], ApiResponse], scope: Scope, request: ApiRequest) -> ApiResponse:
    check_scope("this route", scope, request.caller)
    # A change reads the schedule first, also for a key without the scope read.
    caller, limits = request.caller, request.service.task_limits
    request = replace(request, caller=replace(caller, scopes=caller.scopes | {Scope.READ}, limits=limits))
    try:
        return handler(request)
    except NoonmarkError as error:
        raise rename_fields(error, NAMES) from None


def _create(request: ApiRequest) -> ApiResponse:
    request.query({})
    document = request.document()
    arguments = to_arguments(document)
    if (key := request.headers.get("idempotency-key")) is not None:
        arguments["idempotency_key"] = key
    schedule = request.perform("schedule/create", arguments)
    return ApiResponse(
        document={
            "schedule_id": schedule["schedule_id"],
            "message": "Schedule created successfully",
            "next_run_at": schedule["next_run_at"],
        },
        status=201,
        headers={"Location": f"{BASE}/{schedule['schedule_id']}"},
    )


def _list(request: ApiRequest) -> ApiResponse:
    query = request.query(LIST)
    page, size = _page(query, DEFAULT_PAGE_SIZE)
    filters: dict[str, Any] = {"route": "task"}
    if "user_id" in query:
        filters["owner"] = query["user_id"]
    if (status := query.get("status", "ALL")) != "ALL":
        phases = {theirs: ours for ours, theirs in STATUSES.items() if ours != "deleted"}
        if status not in phases:
            raise InvalidRequest(f"must be one of {', '.join(phases)}, ALL", field="status")
        filters["phase"] = phases[status]
    total = request.perform("schedule/count", filters)["count"]
    schedules: list[dict[str, Any]] = []
    if (offset := (page - 1) * size) < total:
        listed = {**filters, "newest_first": True, "limit": size, "offset": offset}
        answer = request.perform("schedule/list", listed)
        schedules = answer["schedules"]
        # A page of the operation may end early by its size in bytes; a numbered page must be complete.
        while len(schedules) < size and (cursor := answer["next_cursor"]) is not None:
            answer = request.perform(
                "schedule/list", {**listed, "offset": 0, "limit": size - len(schedules), "cursor": cursor}
            )
            schedules += answer["schedules"]
    return ApiResponse(
        document={
            "schedules": [to_document(one) for one in schedules],
            "total_count": total,
            "page": page,
            "page_size": size,
        }
    )


def _page(query: Mapping[str, Any], default_size: int) -> tuple[int, int]:
    """Page number and size; values out of range fall back to the defaults."""
    page, size = query.get("page", 1), query.get("page_size", default_size)
    return max(1, page), size if 1 <= size <= MAX_PAGE_SIZE else default_size


def _find(request: ApiRequest) -> dict[str, Any]:
    schedule = request.perform("schedule/get", request.path)
    if not is_task(schedule):
        raise NotFound(f"there is no schedule {schedule['schedule_id']!r}", field="schedule_id")
    return schedule


def _get(request: ApiRequest) -> ApiResponse:
    request.query({})
    return ApiResponse(document=to_document(_find(request)))


def _update(request: ApiRequest) -> ApiResponse:
    """Change the given fields; retries if another client changes the schedule meanwhile."""
    request.query({})
    document = request.document()
    for _ in range(MAX_TRIES):
        stored = _find(request)
        changes = to_changes(document, stored)
        try:
            changed = request.perform(
                "schedule/update", {**changes, **request.path, "expected_revision": stored["revision"]}
            )
        except RevisionConflict:
            continue
        return _done("updated", next_run_at=changed["next_run_at"])
    raise RevisionConflict("the schedule kept changing meanwhile; try again")


def _change_phase(operation: str, request: ApiRequest) -> dict[str, Any]:
    request.query({})
    document = request.document(required=False)
    if unknown := [one for one in document if one != "reason"]:
        raise InvalidRequest("unknown field; allowed is reason", field=unknown[0])
    _find(request)
    return request.perform(operation, {**document, **request.path})


def _pause(request: ApiRequest) -> ApiResponse:
    _change_phase("schedule/pause", request)
    return _done("paused")


def _resume(request: ApiRequest) -> ApiResponse:
    return _done("resumed", next_run_at=_change_phase("schedule/resume", request)["next_run_at"])


def _delete(request: ApiRequest) -> ApiResponse:
    _change_phase("schedule/delete", request)
    return _done("deleted")


def _done(what: str, **more: str | None) -> ApiResponse:
    return ApiResponse(document={"success": True, "message": f"Schedule {what} successfully", **more})


def _runs(request: ApiRequest) -> ApiResponse:
    page, size = _page(request.query(PAGES), DEFAULT_RUNS_SIZE)
    query = _find(request)["target"]["query"]
    first = (page - 1) * size
    shown: list[dict[str, Any]] = []
    total, cursor = 0, None
    while True:
        # History is limited, so this ends.
        answer = request.perform("schedule/runs", {**request.path, "limit": RUNS_PER_READ, "cursor": cursor})
        shown += answer["runs"][max(0, first - total) : max(0, first + size - total)]
        total, cursor = total + len(answer["runs"]), answer["next_cursor"]
        if cursor is None:
            break
    runs = [run_document(one, query) for one in shown]
    return ApiResponse(document={"runs": runs, "total_count": total, "page": page, "page_size": size})
