"""The schedules in the text of `--schedule-json`: a job manifest, one schedule of it, or a schedule document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.bundles.notation import schedule_document
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown
from noonmark.operations.models.arguments import ScheduleFields

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = frozenset({"schedule", "triggers"})
COMMON = frozenset(ScheduleFields.fields()) | {"user_id"}
"""The fields of a schedule document, which a manifest may also have beside its schedules."""


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
    try:
        return schedule_document(given)
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None
