"""Translates the schedules of a job manifest to schedule documents.

A manifest has `kind`, `crons`, `run_at`, `delay_ms` and so on where a document has a trigger and policies. Fields that
both have in common pass unchanged, so a text may be either, or a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown
from noonmark.operations.models.arguments import ScheduleFields

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("periodic", "delayed", "event")
MANIFEST = frozenset({"schedule", "triggers"})
COMMON = frozenset(ScheduleFields.fields()) | {"user_id"}
"""The fields of a schedule document, which a manifest may also have beside its schedules."""
LIMITED_POLICIES = ("catch_up_all", "catchup_all")
"""The misfire policies that have a limit; beside others, a manifest may give one that has no effect."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One schedule of a manifest: where it stands, and its document."""

    place: str
    """`schedule`, `triggers[0]`; empty if the text is a schedule itself."""
    document: dict[str, Any]


def read_parts(given: Mapping[str, Any], *, field: str) -> tuple[list[Part], list[str]]:
    """The schedules of a manifest, or of a document, which is one schedule; and the fields that no schedule has.

    A whole manifest has `schedule`, `triggers` or both. What else it says holds for each of them.
    """
    if not MANIFEST & given.keys():
        return [Part(place="", document=_to_document(given, field=field))], []
    common = {name: value for name, value in given.items() if name in COMMON}
    job_name = given.get("job_name")
    if isinstance(job_name, str):
        common.setdefault("name", job_name)
    parts = [
        Part(place=place, document=_with_common(common, _to_document(part, field=field), place, field))
        for place, part in _parts(given, field)
    ]
    return parts, [name for name in given if name not in MANIFEST | COMMON | {"job_name"}]


def _parts(given: Mapping[str, Any], field: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The parts of a manifest that declare a schedule each, and their places."""
    parts = [("schedule", given["schedule"])] if given.get("schedule") is not None else []
    triggers = given.get("triggers")
    if triggers is not None and not isinstance(triggers, list):
        parts.append(("triggers", triggers))
    else:
        parts += [(f"triggers[{number}]", part) for number, part in enumerate(triggers or ())]
    if not parts:
        raise InvalidRequest("has neither a schedule nor triggers", field=field)
    for place, part in parts:
        if not isinstance(part, dict):
            raise InvalidRequest(f"{place} must hold an object, not {shown(part)}", field=field)
    # `type` is no field of a schedule: a part that has it is a trigger document.
    return [(place, {"trigger": part} if "type" in part else part) for place, part in parts]


def _with_common(common: Mapping[str, Any], own: dict[str, Any], place: str, field: str) -> dict[str, Any]:
    """A part with what the whole manifest says; where both say the same field, they must agree."""
    for name, value in common.items():
        # The name of a manifest is that of its job; parts may have names of their own.
        if name in own and own[name] != value and name != "name":
            raise InvalidRequest(
                f"{name} is {shown(value)} beside {place}, and {shown(own[name])} in it: give one of them", field=field
            )
    return {**common, **own}


def _to_document(given: Mapping[str, Any], *, field: str) -> dict[str, Any]:
    """The schedule document for one schedule of a manifest, or for a document."""
    document = dict(given)
    kind = document.pop("kind", None)
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}, not {shown(kind)}", field=field)
    trigger = _trigger(document, kind)
    if trigger is not None:
        document["trigger"] = trigger
    _set_policies(document)
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
