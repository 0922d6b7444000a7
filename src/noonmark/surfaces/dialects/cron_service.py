"""The cron service's documents: a workflow, a cron expression and policies, flat in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import number_value

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = (
    "schedule_id",
    "workflow_id",
    "version",
    "user_id",
    "cron_expr",
    "timezone",
    "start_at",
    "end_at",
    "jitter_ms",
    "overlap_policy",
    "catchup_policy",
)
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
"""What its callers know our fields as."""
MAX_JITTER_MS = 1e12
_CATCHUP = {"skip": "none", "catch_up_all": "fire_immediately", "spread": "spread"}


def is_written(document: Mapping[str, Any]) -> bool:
    """Whether a document is in the words of the cron service, and not in our own."""
    return any(name in document for name in ("cron_expr", "workflow_id", "catchup_policy", "jitter_ms"))


def to_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the cron service calls a schedule, as the arguments of an upsert."""
    if unknown := [one for one in document if one not in FIELDS]:
        raise InvalidRequest(f"unknown field; allowed are {', '.join(FIELDS)}", field=unknown[0])
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


def told(schedule: Mapping[str, Any]) -> dict[str, Any] | None:
    """A schedule document in the words of the cron service; None for one that it could not have written."""
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
