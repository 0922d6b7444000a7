"""The cron service's documents and routes; where it shares a path with ours, both documents are accepted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, NoonmarkError, NotAllowed
from noonmark.core.instants import parse_instant
from noonmark.core.json_values import boolean_value, key_path, number_value
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.operations.table import OPERATIONS, check_access
from noonmark.operations.workflows import arguments_of_launch
from noonmark.server.dialects.models import CronServiceSchedule
from noonmark.server.problems import rename_fields
from noonmark.server.requests import ApiResponse, ParameterType
from noonmark.server.routes import ROUTES, execute, handle, read_arguments, with_quick_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.server.requests import ApiRequest, Handler
    from noonmark.server.routes import Route

NAMES = {
    "target.workflow_id": "workflow_id",
    "target.version": "version",
    "trigger": "cron_expr",
    "trigger.expression": "cron_expr",
    "trigger.timezone": "timezone",
    "trigger.start_at_utc": "start_at",
    "trigger.end_at_utc": "end_at",
    "trigger.jitter_seconds": "jitter_ms",
    "misfire_policy": "catchup_policy",
}
"""Its names for our fields."""
MAX_JITTER_MS = 1e12
_CATCHUP = {"skip": "none", "catch_up_all": "fire_immediately", "spread": "spread"}


def is_cron_service_document(document: Mapping[str, Any]) -> bool:
    """Whether a document is in the format of the cron service."""
    return any(name in document for name in ("cron_expr", "workflow_id", "catchup_policy", "jitter_ms"))


def to_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a schedule of the cron service into the arguments of an upsert."""
    allowed = CronServiceSchedule.fields()
    if unknown := [name for name in document if name not in allowed]:
        raise InvalidRequest(f"unknown field; allowed are {', '.join(allowed)}", field=unknown[0])
    if missing := [one for one in ("workflow_id", "cron_expr") if document.get(one) is None]:
        raise InvalidRequest("is required", field=missing[0])
    trigger = present(
        type="cron",
        expression=document.get("cron_expr"),
        timezone=document.get("timezone"),
        start_at_utc=document.get("start_at"),
        end_at_utc=document.get("end_at"),
        jitter_seconds=_seconds(document.get("jitter_ms")),
    )
    target = present(target_kind="workflow", workflow_id=document.get("workflow_id"), version=document.get("version"))
    return present(
        schedule_id=document.get("schedule_id"),
        user_id=document.get("user_id"),
        trigger=trigger,
        target=target,
        overlap_policy=document.get("overlap_policy"),
        misfire_policy=document.get("catchup_policy"),
    )


def _seconds(milliseconds: object) -> float | None:
    if milliseconds is None:
        return None
    try:
        return number_value(milliseconds, 0, MAX_JITTER_MS) / 1_000
    except ValueError as error:
        raise InvalidRequest(str(error), field="jitter_ms") from None


def to_document(schedule: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translate a schedule into the format of the cron service; None if that format cannot express it."""
    trigger, target = schedule["trigger"], schedule["target"]
    if target["target_kind"] != "workflow" or trigger is None or "expression" not in trigger:
        return None
    overlap, misfire = schedule["overlap_policy"], schedule["misfire_policy"]
    return {
        "schedule_id": schedule["schedule_id"],
        "workflow_id": target["workflow_id"],
        "version": target.get("version"),
        "user_id": schedule["owner"]["user"],
        "cron_expr": trigger["expression"],
        "timezone": trigger.get("timezone", "UTC"),
        "start_at": trigger.get("start_at_utc"),
        "end_at": trigger.get("end_at_utc"),
        "next_run_at": schedule["next_run_at"],
        "paused": schedule["phase"] == "paused",
        "jitter_ms": round(trigger.get("jitter_seconds", 0) * 1_000),
        "overlap_policy": overlap if isinstance(overlap, str) else overlap["type"],
        "catchup_policy": _CATCHUP.get(misfire["type"], misfire["type"]),
        "updated_at": schedule["updated_at_utc"],
    }


LAUNCH = "/run-launcher/start"
LAUNCHED = {
    "workflow_id": ParameterType.TEXT,
    "version": ParameterType.INTEGER,
    "user_id": ParameterType.TEXT,
    "scheduled_for": ParameterType.INSTANT,
    "idempotency_key": ParameterType.TEXT,
}
MAX_KEY = 200
SOURCE = "schedule"
"""What the cron service tells a workflow about where it comes from."""


def handlers() -> dict[tuple[str, str], Handler]:
    """Handlers that accept both formats, instead of the canonical ones, and the route of the cron service alone."""
    shared = {
        "schedule/upsert": _upsert,
        "schedule/pause": _pause,
        "schedule/get": _get,
        "schedule/list": _list,
        "schedule/delete": _delete,
    }
    translating = {
        (route.method, route.path): with_quick_calls(route, partial(shared[route.operation], route))
        for route in ROUTES
        if route.operation in shared
    }
    return {**translating, ("POST", LAUNCH): _launch}


def _upsert(route: Route, request: ApiRequest) -> ApiResponse:
    arguments = read_arguments(route, request)
    if not is_cron_service_document(arguments):
        return execute(route, request, arguments)
    try:
        return execute(route, request, to_arguments(arguments))
    except NoonmarkError as error:
        raise rename_fields(error, NAMES) from None


def _pause(route: Route, request: ApiRequest) -> ApiResponse:
    """Pause, or resume if the body has `"paused": false`."""
    arguments = read_arguments(route, request)
    if "paused" not in arguments:
        return execute(route, request, arguments)
    try:
        is_paused = boolean_value(arguments.pop("paused"))
    except ValueError as error:
        raise InvalidRequest(str(error), field="paused") from None
    if not is_paused:
        [route] = [one for one in ROUTES if one.operation == "schedule/resume"]
    answer = execute(route, request, arguments)
    return _extend(answer, message=f"Schedule {'paused' if is_paused else 'resumed'}")


def _get(route: Route, request: ApiRequest) -> ApiResponse:
    answer = handle(route, request)
    translated = to_document(answer.document)
    return answer if translated is None else _extend(answer, schedule=translated)


def _list(route: Route, request: ApiRequest) -> ApiResponse:
    """List schedules; those that the cron service can express have its fields beside ours."""
    answer = handle(route, request)
    for schedule in answer.document["schedules"]:
        for name, value in (to_document(schedule) or {}).items():
            schedule.setdefault(name, value)
    return answer


def _delete(route: Route, request: ApiRequest) -> ApiResponse:
    return _extend(handle(route, request), message="Schedule deleted")


def _extend(answer: ApiResponse, **more: Any) -> ApiResponse:
    answer.document.update(more)
    return answer


def _launch(request: ApiRequest) -> ApiResponse:
    """Run a workflow now, and say what became of it; repeating the key returns the same run."""
    check_access(OPERATIONS["workflow/run"], request.caller)
    if document := request.document(required=False):
        raise InvalidRequest("must be empty: this route takes query parameters", field=key_path(next(iter(document))))
    query = request.query(LAUNCHED)
    if missing := [name for name in LAUNCHED if name != "version" and name not in query]:
        raise InvalidRequest("is required", field=missing[0])
    try:
        parse_instant(query["scheduled_for"])
    except ValueError as error:
        raise InvalidRequest(str(error), field="scheduled_for") from None
    if not 1 <= len(query["idempotency_key"]) <= MAX_KEY:
        raise InvalidRequest(f"must have 1 to {MAX_KEY} characters", field="idempotency_key")
    caller = request.caller
    if query["user_id"] != caller.owner.user and not caller.is_root:
        raise NotAllowed("must be the user of your key; only a key of tenant * may name another", field="user_id")
    meta = {name: query[name] for name in ("user_id", "scheduled_for", "idempotency_key")} | {"source": SOURCE}
    arguments = arguments_of_launch(request.service, caller, query["workflow_id"], query.get("version"), meta)
    run = request.perform("workflow/run", {**arguments, "key": query["idempotency_key"]})
    return ApiResponse(
        document={
            "message": _message(run),
            "run_id": run["workflow_run_id"],
            "phase": run["phase"],
            "workflow_id": run["workflow_id"],
            "version": run["version"],
            "scheduled_for": query["scheduled_for"],
            "idempotency_key": query["idempotency_key"],
        }
    )


def _message(run: Mapping[str, Any]) -> str:
    """What became of a run; one that no node can start has not been started."""
    if run["phase"] in FINAL:
        return f"Workflow {run['phase'].replace('_', ' ')}"
    if run["phase"] == Phase.PENDING and run["waiting_for"] is not None:
        return f"Workflow accepted. {run['why']}"
    return "Workflow started"
