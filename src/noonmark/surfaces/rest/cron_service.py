"""The cron service's routes: where it has a path that we have too, both documents are understood."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest, NoonmarkError
from noonmark.core.instants import parse_instant
from noonmark.core.json_values import boolean_value, key_path
from noonmark.surfaces.dialects import cron_service
from noonmark.surfaces.dialects.renaming import renamed
from noonmark.surfaces.rest.asked import Answer
from noonmark.surfaces.rest.canonical import answered, arguments_of, handle
from noonmark.surfaces.rest.reading import Kind
from noonmark.surfaces.rest.routes import ROUTES

if TYPE_CHECKING:
    from noonmark.surfaces.rest.asked import Asked, Handler
    from noonmark.surfaces.rest.routes import Route

LAUNCH = "/run-launcher/start"
LAUNCHED = {
    "workflow_id": Kind.TEXT,
    "version": Kind.INTEGER,
    "user_id": Kind.TEXT,
    "scheduled_for": Kind.INSTANT,
    "idempotency_key": Kind.TEXT,
}
MAX_KEY = 200


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers that understand both, in place of the canonical ones, and the one that only the cron service has."""
    both = {
        "schedule/upsert": _upsert,
        "schedule/pause": _pause,
        "schedule/get": _get,
        "schedule/list": _list,
        "schedule/delete": _delete,
    }
    ours = {(one.method, one.path): partial(both[one.operation], one) for one in ROUTES if one.operation in both}
    return {**ours, ("POST", LAUNCH): _launch}


def _upsert(route: Route, asked: Asked) -> Answer:
    arguments = arguments_of(route, asked)
    if not cron_service.is_written(arguments):
        return answered(route, asked, arguments)
    try:
        return answered(route, asked, cron_service.to_arguments(arguments))
    except NoonmarkError as error:
        raise renamed(error, cron_service.NAMES) from None


def _pause(route: Route, asked: Asked) -> Answer:
    """Pause; or resume, where the body says that it is not to be paused."""
    arguments = arguments_of(route, asked)
    if "paused" not in arguments:
        return answered(route, asked, arguments)
    try:
        is_paused = boolean_value(arguments.pop("paused"))
    except ValueError as error:
        raise InvalidRequest(str(error), field="paused") from None
    if not is_paused:
        [route] = [one for one in ROUTES if one.operation == "schedule/resume"]
    answer = answered(route, asked, arguments)
    return _with(answer, message=f"Schedule {'paused' if is_paused else 'resumed'}")


def _get(route: Route, asked: Asked) -> Answer:
    answer = handle(route, asked)
    told = cron_service.told(answer.document)
    return answer if told is None else _with(answer, schedule=told)


def _list(route: Route, asked: Asked) -> Answer:
    """A list; what the cron service could have written has its words beside ours."""
    answer = handle(route, asked)
    for one in answer.document["schedules"]:
        for name, value in (cron_service.told(one) or {}).items():
            one.setdefault(name, value)
    return answer


def _delete(route: Route, asked: Asked) -> Answer:
    return _with(handle(route, asked), message="Schedule deleted")


def _with(answer: Answer, **more: Any) -> Answer:  # noqa: ANN401 - JSON
    answer.document.update(more)
    return answer


def _launch(asked: Asked) -> Answer:
    """Run a workflow once, now; the same key again is the same run."""
    if said := asked.document(required=False):
        raise InvalidRequest("everything is told by parameters here", field=key_path(next(iter(said))))
    query = asked.query(LAUNCHED)
    if missing := [name for name in LAUNCHED if name != "version" and name not in query]:
        raise InvalidRequest("is required", field=missing[0])
    try:
        parse_instant(query["scheduled_for"])
    except ValueError as error:
        raise InvalidRequest(str(error), field="scheduled_for") from None
    if not 1 <= len(query["idempotency_key"]) <= MAX_KEY:
        raise InvalidRequest(f"must have 1 to {MAX_KEY} characters", field="idempotency_key")
    try:
        made = asked.perform("schedule/create", _one_run(query))
    except NoonmarkError as error:
        raise renamed(error, cron_service.NAMES) from None
    return Answer(
        document={
            "message": "Workflow started",
            "schedule_id": made["schedule_id"],
            "workflow_id": query["workflow_id"],
            "scheduled_for": query["scheduled_for"],
            "idempotency_key": query["idempotency_key"],
        }
    )


def _one_run(query: dict[str, Any]) -> dict[str, Any]:
    """A schedule that fires once, at once, and hands the workflow the time it stands for."""
    target = {
        "target_kind": "workflow",
        "workflow_id": query["workflow_id"],
        "inputs": {"scheduled_for": query["scheduled_for"], "idempotency_key": query["idempotency_key"]},
    }
    if "version" in query:
        target["version"] = query["version"]
    return {
        "trigger": {"type": "once", "delay_seconds": 0},
        "target": target,
        "user_id": query["user_id"],
        "idempotency_key": f"run-launcher:{query['idempotency_key']}",
    }
