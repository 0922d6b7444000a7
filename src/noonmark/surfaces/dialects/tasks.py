"""The documents of the task routes: a question in plain words, asked again and again by a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, InvalidTrigger
from noonmark.core.instants import DAY_SECONDS, SECOND, to_micros
from noonmark.core.json_values import boolean_value
from noonmark.core.triggers import parse_trigger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros

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
    """What is asked for, as the arguments of a create."""
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


def told(schedule: Mapping[str, Any]) -> dict[str, Any]:
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


def told_run(run: Mapping[str, Any], query: str) -> dict[str, Any]:
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
