"""The task routes under /api/v1: a query in plain words, repeated by a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import (
    InvalidRequest,
    InvalidTrigger,
    NoonmarkError,
    NotFound,
    QuotaExceeded,
    RevisionConflict,
)
from noonmark.core.instants import DAY_SECONDS, SECOND, micros_to_seconds, parse_instant, to_micros
from noonmark.core.jsonvalues import boolean_value
from noonmark.core.triggers import parse_trigger
from noonmark.driver.drive import drive
from noonmark.server.problems import renamed
from noonmark.server.requests import ApiResponse, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.instants import Micros
    from noonmark.operations.service import Limits
    from noonmark.server.requests import ApiRequest, Handler

FIELDS = (
    "name",
    "description",
    "cron_expression",
    "timezone",
    "task_query",
    "task_context",
    "max_budget_per_run_usd",
    "timeout_seconds",
)
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
"""What its callers know our fields as."""
USUAL_TIMEOUT = 3_600
STATUSES = {"active": "ACTIVE", "paused": "PAUSED", "completed": "COMPLETED", "deleted": "DELETED"}
_OUTCOMES = {None: "RUNNING", "completed": "COMPLETED", "cancelled": "CANCELLED"}
_MANY_FIRES = 1_000
_LONG = 6 * 366 * DAY_SECONDS * SECOND
"""Long enough to meet every month with every day of the week next to it, and a leap day."""
_FROM = datetime(2000, 1, 1, tzinfo=UTC)


def to_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is request for, as the arguments of a create."""
    _check_known(document, (*FIELDS, "user_id"))
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
    """What is to change, as the changes of an update; null leaves a field as it is."""
    _check_known(document, (*FIELDS, "clear_task_context"))
    said = present(**document)
    changes: dict[str, Any] = {name: said[name] for name in ("name", "description") if name in said}
    if "cron_expression" in said:
        _check_fields(said["cron_expression"])
    if "cron_expression" in said or "timezone" in said:
        kept = stored["trigger"] if stored["trigger"]["type"] == "cron" else {"type": "cron"}
        kept = {name: value for name, value in kept.items() if name != "crons" or "cron_expression" not in said}
        changes["trigger"] = kept | _under(said, expression="cron_expression", timezone="timezone")
    target = stored["target"] | _under(said, query="task_query", context="task_context")
    if _is_cleared(said.get("clear_task_context", False)) and "task_context" not in said:
        target.pop("context", None)
    if target != stored["target"]:
        changes["target"] = target
    if "max_budget_per_run_usd" in said:
        changes["budget"] = _budget(said["max_budget_per_run_usd"])
    if "timeout_seconds" in said:
        changes["timeout_seconds"] = _timeout(said["timeout_seconds"])
    return changes


def _is_cleared(value: object) -> bool:
    try:
        return boolean_value(value)
    except ValueError as error:
        raise InvalidRequest(str(error), field="clear_task_context") from None


def _under(said: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {ours: said[theirs] for ours, theirs in names.items() if theirs in said}


def _check_known(document: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    if unknown := [one for one in document if one not in allowed]:
        raise InvalidRequest(f"unknown field; allowed are {', '.join(allowed)}", field=unknown[0])


def _check_fields(expression: object) -> None:
    """A cron expression has five fields here; what is in them, the trigger judges."""
    if isinstance(expression, str) and len(expression.split()) != 5:
        raise InvalidTrigger(
            f"must have five fields (minute, hour, day of month, month, day of week), not {len(expression.split())}",
            field="cron_expression",
        )


def _budget(usd: object) -> dict[str, Any] | None:
    """What a run may cost; nothing at all means that nobody has said."""
    return None if usd is None or (usd == 0 and not isinstance(usd, bool)) else {"max_cost_usd": usd}


def _timeout(seconds: Any) -> Any:  # noqa: ANN401 - whatever else it is, the schedule judges it
    """How long a run may take; nothing at all is the usual time."""
    return USUAL_TIMEOUT if seconds is None or (seconds == 0 and not isinstance(seconds, bool)) else seconds


def smallest_gap(expression: str) -> Micros | None:
    """The least time between two fires of an expression, whenever they are; None if it fires once at the most.

    It is judged from a day that never changes, so that the verdict does not depend on when somebody asks.
    """
    trigger = parse_trigger({"type": "cron", "expression": expression}, now=_FROM)
    start = time = to_micros(_FROM)
    gaps: list[Micros] = []
    previous: Micros | None = None
    while len(gaps) < _MANY_FIRES and (fire := trigger.next_micros(time)) is not None and fire - start < _LONG:
        if previous is not None:
            gaps.append(fire - previous)
        previous = time = fire
    return min(gaps, default=None)


def is_task(schedule: Mapping[str, Any]) -> bool:
    """Whether a schedule is one that these routes know."""
    return bool(schedule["target"]["target_kind"] == "task")


def to_document(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule document in the words of the task routes."""
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
        "timeout_seconds": schedule.get("timeout_seconds", USUAL_TIMEOUT),
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
    """A run document in the words of the task routes; which model answered, nobody has told."""
    usage, seconds = run["usage"] or {}, run["duration_seconds"]
    return {
        "workflow_id": run["run_id"],
        "query": query,
        "status": _OUTCOMES.get(run["outcome"], "FAILED"),
        "result": run["result"],
        "error_message": run["error"],
        "model_used": None,
        "provider": None,
        "total_tokens": usage.get("tokens", 0),
        "total_cost_usd": usage.get("cost_usd", 0),
        "duration_ms": None if seconds is None else round(seconds * 1_000),
        "triggered_at": run["started_at_utc"],
        "started_at": run["started_at_utc"],
        "completed_at": run["ended_at_utc"],
    }


BASE = "/api/v1/schedules"
ONE = f"{BASE}/{{schedule_id}}"
PAGES = {"page": Kind.INTEGER, "page_size": Kind.INTEGER}
LIST = {**PAGES, "status": Kind.TEXT, "user_id": Kind.TEXT}
MAX_PAGE_SIZE, USUAL_PAGE_SIZE, USUAL_RUNS = 100, 50, 20
MAX_TRIES = 10
COUNTED = 1_000


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers of these routes, by method and path."""
    table: dict[tuple[str, str], Handler] = {
        # One after another, so that of those who create at once here as many are let through as may be.
        ("POST", BASE): partial(_create, Lock()),
        ("GET", BASE): _list,
        ("GET", ONE): _get,
        ("PUT", ONE): _update,
        ("DELETE", ONE): _delete,
        ("POST", f"{ONE}/pause"): _pause,
        ("POST", f"{ONE}/resume"): _resume,
        ("GET", f"{ONE}/runs"): _runs,
    }
    return {place: partial(_in_their_words, handler) for place, handler in table.items()}


def _in_their_words(handler: Callable[[ApiRequest], ApiResponse], request: ApiRequest) -> ApiResponse:
    try:
        return handler(request)
    except NoonmarkError as error:
        raise renamed(error, NAMES) from None


def _create(lock: Lock, request: ApiRequest) -> ApiResponse:
    request.query({})
    document = request.document()
    arguments = to_arguments(document)
    check_limits(request.service.limits, document)
    if (key := request.headers.get("idempotency-key")) is not None:
        arguments["idempotency_key"] = key
    with lock:
        began = drive(request.service.store.clock())
        made = request.perform("schedule/create", arguments)
        if parse_instant(made["created_at_utc"]) >= began:  # and not a while ago, by the same request
            _hold_to_quota(request, made)
    return ApiResponse(
        document={
            "schedule_id": made["schedule_id"],
            "message": "Schedule created successfully",
            "next_run_at": made["next_run_at"],
        },
        status=201,
        headers={"Location": f"{BASE}/{made['schedule_id']}"},
    )


def check_limits(limits: Limits, document: Mapping[str, Any]) -> None:
    """Refuse what fires too often, or may cost too much."""
    expression, budget = document.get("cron_expression"), document.get("max_budget_per_run_usd")
    if limits.min_interval and isinstance(expression, str):
        gap = smallest_gap(expression)
        if gap is not None and gap < limits.min_interval:
            raise InvalidRequest(
                f"fires {gap / 60_000_000:g} minutes apart at times; at least"
                f" {micros_to_seconds(limits.min_interval) / 60:g} minutes are allowed",
                field="cron_expression",
            )
    most = limits.max_budget_usd
    if most is not None and isinstance(budget, int | float) and budget > most:
        raise InvalidRequest(f"must be at most {most:g}", field="max_budget_per_run_usd")


def _hold_to_quota(request: ApiRequest, made: Mapping[str, Any]) -> None:
    """Take back what was created beyond the limit: so nobody passes it, on however many servers."""
    most = request.service.limits.max_per_user
    if most is None:
        return
    wanted = {"owner": made["owner"]["user"], "route": "task", "phase": ["active", "paused"]}
    if request.perform("schedule/count", wanted)["count"] > most:
        request.perform("schedule/delete", {"schedule_id": made["schedule_id"], "reason": "beyond the limit"})
        raise QuotaExceeded(f"there are {most:,} schedules already, which is the limit; delete one that is done with")


def _list(request: ApiRequest) -> ApiResponse:
    query = request.query(LIST)
    page, size = _page(query, USUAL_PAGE_SIZE)
    wanted: dict[str, Any] = {"route": "task"}
    if "user_id" in query:
        wanted["owner"] = query["user_id"]
    if (status := query.get("status", "ALL")) != "ALL":
        phases = {theirs: ours for ours, theirs in STATUSES.items() if ours != "deleted"}
        if status not in phases:
            raise InvalidRequest(f"must be one of {', '.join(phases)}, ALL", field="status")
        wanted["phase"] = phases[status]
    total = request.perform("schedule/count", wanted)["count"]
    found: list[dict[str, Any]] = []
    if (offset := (page - 1) * size) < total:
        listed = {**wanted, "newest_first": True, "limit": size, "offset": offset}
        answer = request.perform("schedule/list", listed)
        found = answer["schedules"]
        # A page may end by its size; here it has a number, and so all of its entries.
        while len(found) < size and (cursor := answer["next_cursor"]) is not None:
            answer = request.perform(
                "schedule/list", {**listed, "offset": 0, "limit": size - len(found), "cursor": cursor}
            )
            found += answer["schedules"]
    return ApiResponse(
        document={
            "schedules": [to_document(one) for one in found],
            "total_count": total,
            "page": page,
            "page_size": size,
        }
    )


def _page(query: Mapping[str, Any], usual: int) -> tuple[int, int]:
    """Which page, of what size; a number that makes no sense is the usual one."""
    page, size = query.get("page", 1), query.get("page_size", usual)
    return max(1, page), size if 1 <= size <= MAX_PAGE_SIZE else usual


def _find(request: ApiRequest) -> dict[str, Any]:
    schedule = request.perform("schedule/get", request.path)
    if not is_task(schedule):
        raise NotFound(f"there is no schedule {schedule['schedule_id']!r}", field="schedule_id")
    return schedule


def _get(request: ApiRequest) -> ApiResponse:
    request.query({})
    return ApiResponse(document=to_document(_find(request)))


def _update(request: ApiRequest) -> ApiResponse:
    """Change what is said; whoever else changes the trigger or the task meanwhile is not overwritten."""
    request.query({})
    document = request.document()
    for _ in range(MAX_TRIES):
        stored = _find(request)
        changes = to_changes(document, stored)
        check_limits(request.service.limits, document)
        try:
            changed = request.perform(
                "schedule/update", {**changes, **request.path, "expected_revision": stored["revision"]}
            )
        except RevisionConflict:
            continue
        return _done("updated", next_run_at=changed["next_run_at"])
    raise RevisionConflict("the schedule was changed by others all the while; try again")


def _steer(operation: str, request: ApiRequest) -> dict[str, Any]:
    request.query({})
    document = request.document(required=False)
    if unknown := [one for one in document if one != "reason"]:
        raise InvalidRequest("unknown field; allowed is reason", field=unknown[0])
    _find(request)
    return request.perform(operation, {**document, **request.path})


def _pause(request: ApiRequest) -> ApiResponse:
    _steer("schedule/pause", request)
    return _done("paused")


def _resume(request: ApiRequest) -> ApiResponse:
    return _done("resumed", next_run_at=_steer("schedule/resume", request)["next_run_at"])


def _delete(request: ApiRequest) -> ApiResponse:
    _steer("schedule/delete", request)
    return _done("deleted")


def _done(what: str, **more: str | None) -> ApiResponse:
    return ApiResponse(document={"success": True, "message": f"Schedule {what} successfully", **more})


def _runs(request: ApiRequest) -> ApiResponse:
    page, size = _page(request.query(PAGES), USUAL_RUNS)
    query = _find(request)["target"]["query"]
    first = (page - 1) * size
    shown: list[dict[str, Any]] = []
    total, cursor = 0, None
    while True:
        # History has a bound of its own, so this ends.
        found = request.perform("schedule/runs", {**request.path, "limit": COUNTED, "cursor": cursor})
        shown += found["runs"][max(0, first - total) : max(0, first + size - total)]
        total, cursor = total + len(found["runs"]), found["next_cursor"]
        if cursor is None:
            break
    runs = [run_document(one, query) for one in shown]
    return ApiResponse(document={"runs": runs, "total_count": total, "page": page, "page_size": size})
