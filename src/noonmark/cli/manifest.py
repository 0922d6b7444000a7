"""The `schedule` part of a job's manifest, told in the words of a schedule document.

It says `kind`, `crons`, `run_at`, `delay_ms` and so on, where a document has a trigger and policies. What it has in
common with a document is left as it is, so both may be given, and mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("periodic", "delayed", "event")
LIMITED = ("catch_up_all", "catchup_all")
"""The misfire policies that have a limit; with the others, a manifest may give one that means nothing."""


def to_document(given: Mapping[str, Any], *, field: str) -> dict[str, Any]:
    """The document that a manifest, or a document, stands for."""
    document = dict(_part(given, field))
    kind = document.pop("kind", None)
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}, not {shown(kind)}", field=field)
    trigger = _trigger(document, kind)
    if trigger is not None:
        document["trigger"] = trigger
    _set_policies(document)
    return document


def _part(given: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """What is said of the schedule, where a whole manifest is given: its `schedule`, or the one of its `triggers`."""
    if len(given) != 1:
        return given
    [(name, value)] = given.items()
    if name == "triggers" and isinstance(value, list) and len(value) != 1:
        raise InvalidRequest(f"has {len(value)} triggers: create one schedule for each", field=field)
    part = value[0] if name == "triggers" and isinstance(value, list) else value
    if name not in ("schedule", "triggers"):
        return given
    if not isinstance(part, dict):
        raise InvalidRequest(f"{name} must hold an object, not {shown(part)}", field=field)
    return part


def _trigger(document: dict[str, Any], kind: object) -> dict[str, Any] | None:
    """The trigger of a manifest, whose parts are taken out of it; none when it has none of them."""
    said: dict[str, Any] = {}
    zone = document.pop("timezone", document.pop("time_zone", None))
    if (crons := document.pop("crons", None)) is not None:
        said = {"type": "cron", "crons": crons}
    elif (cron := document.pop("cron", None)) is not None:
        said = {"type": "cron", "expression": cron}
    elif (run_at := document.pop("run_at", None)) is not None:
        said = {"type": "once", "due_at_utc": run_at}
    elif (delay := document.pop("delay_ms", None)) is not None:
        said = {"type": "once", "delay_seconds": _seconds(delay)}
    elif (event := document.pop("event_type", None)) is not None:
        said = {"type": "event", "event_type": event, "filters": document.pop("filters", {})}
    elif isinstance(within := document.get("trigger"), dict) and "type" not in within and kind in ("event", None):
        said = {"type": "event", **within}
    elif zone is not None and within is None:
        said = {"type": "cron"}  # the expressions come by options
    if said.get("type") == "cron" and zone is not None:
        said["timezone"] = zone
    return said or None


def _set_policies(document: dict[str, Any]) -> None:
    if (is_prohibited := document.pop("prohibit_overlap", None)) is not None:
        document.setdefault("overlap_policy", "skip" if is_prohibited else "allow")
    policy, limit = document.pop("missed_policy", None), document.pop("catchup_limit", None)
    said = {} if policy is None else {"type": policy}
    if policy in LIMITED and limit is not None:
        said["limit"] = limit
    if (grace := document.pop("missed_grace_ms", None)) is not None:
        said = {"type": "skip", **said, "grace_seconds": _seconds(grace)}
    if said:
        document["misfire_policy"] = said
    window = document.get("window")
    if isinstance(window, dict) and "duration_ms" in window:
        rest = {name: value for name, value in window.items() if name != "duration_ms"}
        document["window"] = {"duration_seconds": _seconds(window["duration_ms"]), **rest}


def _seconds(milliseconds: object) -> object:
    """A number of milliseconds in seconds; anything else is left to whoever judges the document."""
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1_000 if is_number else milliseconds  # type: ignore[operator]  # it is a number here
