"""Schedules as job manifests write them, translated to schedule documents.

A manifest has `kind`, `crons`, `run_at`, `delay_ms` and so on where a document has a trigger and policies. Fields that
both have in common pass unchanged, so a schedule may be either, or a mixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCE_WAIT = "resource_wait"
KINDS = ("periodic", "delayed", "event", RESOURCE_WAIT)
TRIGGER_FIELDS = ("crons", "cron", "run_at", "delay_ms", "event_type")
FIELDS = (
    *TRIGGER_FIELDS,
    "catchup_limit",
    "filters",
    "kind",
    "max_wait_ms",
    "missed_grace_ms",
    "missed_policy",
    "prohibit_overlap",
    "retry_interval_ms",
    "timezone",
)
"""What a schedule of a manifest may have beside the fields of a schedule document."""
LIMITED_POLICIES = ("catch_up_all", "catchup_all")
"""The misfire policies that have a limit; beside others, a manifest may give one that has no effect."""


def schedule_document(given: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule document for one schedule of a manifest, or for a document; ValueError for an unknown kind."""
    document = dict(given)
    kind = document.pop("kind", None)
    if document.pop("auto_schedule", None) is True and kind is None:
        kind = RESOURCE_WAIT
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {shown(kind)}")
    trigger = _trigger(document, kind)
    if trigger is not None:
        document["trigger"] = trigger
    _set_policies(document)
    waits = {
        name: _seconds(document.pop(old))
        for old, name in (("retry_interval_ms", "retry_seconds"), ("max_wait_ms", "max_wait_seconds"))
        if document.get(old) is not None
    }
    if waits:
        target = document.get("target")
        document["target"] = {**(target if isinstance(target, dict) else {}), "resource_wait": waits}
    return document


def _trigger(document: dict[str, Any], kind: object) -> dict[str, Any] | None:
    """Take the trigger fields out of a manifest; None if it has none."""
    trigger: dict[str, Any] = {}
    zone = document.pop("timezone", document.pop("time_zone", None))
    if (crons := document.pop("crons", None)) is not None:
        trigger = {"type": "cron", "crons": crons}
    elif (cron := document.pop("cron", None)) is not None:
        trigger = {"type": "cron", "expression": cron}
    elif (run_at := document.pop("run_at", None)) is not None:
        trigger = {"type": "once", "due_at_utc": run_at}
    elif (delay := document.pop("delay_ms", None)) is not None:
        trigger = {"type": "once", "delay_seconds": _seconds(delay)}
    elif (event_type := document.pop("event_type", None)) is not None:
        trigger = {"type": "event", "event_type": event_type, "filters": document.pop("filters", {})}
    elif isinstance(nested := document.get("trigger"), dict) and "type" not in nested and kind in ("event", None):
        trigger = {"type": "event", **nested}
    elif kind == RESOURCE_WAIT and nested is None:
        trigger = {"type": "once", "delay_seconds": 0}
    elif zone is not None and nested is None:
        trigger = {"type": "cron"}  # options give the expressions
    if trigger.get("type") == "cron" and zone is not None:
        trigger["timezone"] = zone
    return trigger or None


def _set_policies(document: dict[str, Any]) -> None:
    if (is_prohibited := document.pop("prohibit_overlap", None)) is not None:
        document.setdefault("overlap_policy", "skip" if is_prohibited else "allow")
    policy, limit = document.pop("missed_policy", None), document.pop("catchup_limit", None)
    misfire = {} if policy is None else {"type": policy}
    if policy in LIMITED_POLICIES and limit is not None:
        misfire["limit"] = limit
    if (grace := document.pop("missed_grace_ms", None)) is not None:
        misfire = {"type": "skip", **misfire, "grace_seconds": _seconds(grace)}
    if misfire:
        document["misfire_policy"] = misfire
    window = document.get("window")
    if isinstance(window, dict) and "duration_ms" in window:
        others = {name: value for name, value in window.items() if name != "duration_ms"}
        document["window"] = {"duration_seconds": _seconds(window["duration_ms"]), **others}


def _seconds(milliseconds: object) -> object:
    """Milliseconds as seconds; any other value passes unchanged and is refused later."""
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1_000 if is_number else milliseconds  # type: ignore[operator]  # it is a number here
