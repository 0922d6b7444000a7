"""Commands that look and change nothing: lists, the state of a schedule, and explanations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from noonmark.cli.options import USUAL_PLACE, Limit, Place, ScheduleId, Where
from noonmark.cli.output import called, one_line, print_json
from noonmark.cli.pages import more_of, read_pages
from noonmark.cli.remote import connected
from noonmark.cli.times import read_instant
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LATEST = 5
"""So many of its last occurrences the state of a schedule shows."""
_OCCURRENCE = re.compile(r"occ_[0-9a-f]{32}")

Status = Annotated[
    str | None, Parameter(name=("--status", "--phase"), show_default=False, help="active, paused or completed.")
]
Label = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False, help="With this label, as name=value.")]

Oldest = Annotated[int, Parameter(help="How many at most, in the order of their creation.")]


def list_schedules(
    *,
    kind: Annotated[
        str | None,
        Parameter(show_default=False, help="periodic, delayed or event; or a type of trigger, such as cron."),
    ] = None,
    status: Status = None,
    label: Label = (),
    text: Annotated[
        str | None, Parameter(show_default=False, help="With this in the name, the description or the id.")
    ] = None,
    limit: Oldest = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """List schedules."""
    arguments = _filters(status, label) | present(kind=kind, text=text)
    _show_list(place, "schedule/list", arguments, "schedules", limit=limit)


def list_triggers(
    *,
    event: Annotated[str | None, Parameter(show_default=False, help="Only those that wait for this type.")] = None,
    status: Status = None,
    label: Label = (),
    limit: Oldest = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """List the schedules that events set off."""
    arguments = _filters(status, label) | present(event_type=event)
    _show_list(place, "trigger/list", arguments, "triggers", limit=limit)


def _filters(status: str | None, label: tuple[str, ...]) -> dict[str, Any]:
    labels = [one.partition("=") for one in label]
    return present(
        phase=None if status is None else status.lower(),
        labels={name: value for name, _, value in labels} or None,
    )


def list_occurrences(
    schedule_id: ScheduleId,
    /,
    *,
    phase: Annotated[str | None, Parameter(show_default=False, help="Only in this phase, such as failed.")] = None,
    limit: Limit = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """List the occurrences of a schedule: what it did, what it let pass, and why."""
    arguments = present(schedule_id=schedule_id, phase=phase)
    _show_list(place, "schedule/occurrences", arguments, "occurrences", limit=limit)


def list_runs(schedule_id: ScheduleId, /, *, limit: Limit = 100, place: Where = USUAL_PLACE) -> None:
    """List the runs of a schedule, with what each gave or raised."""
    _show_list(place, "schedule/runs", {"schedule_id": schedule_id}, "runs", limit=limit)


def list_events(
    *,
    event: Annotated[str | None, Parameter(show_default=False, help="Only events of this type.")] = None,
    limit: Limit = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """List the events that were emitted."""
    _show_list(place, "event/list", present(event_type=event), "events", limit=limit)


def list_audit(
    *,
    schedule: Annotated[str | None, Parameter(show_default=False, help="Only of the schedule of this id.")] = None,
    limit: Limit = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """List who changed what."""
    _show_list(place, "audit/list", present(schedule_id=schedule), "entries", limit=limit)


def list_nodes(*, place: Where = USUAL_PLACE) -> None:
    """List the nodes that were heard of within the last day."""
    with connected(place) as remote:
        answer = remote.call("node/list", {})
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.tables import show_nodes  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_nodes(answer["nodes"])


def _show_list(place: Place, name: str, arguments: Mapping[str, Any], entries: str, *, limit: int) -> None:
    with connected(place) as remote:
        answer = read_pages(remote, name, arguments, entries=entries, limit=limit)
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli import tables  # noqa: PLC0415 - as above

    show: dict[str, Callable[[list[dict[str, Any]], str], None]] = {
        "schedules": tables.show_schedules,
        "triggers": tables.show_schedules,
        "occurrences": tables.show_occurrences,
        "runs": tables.show_runs,
        "events": tables.show_events,
        "entries": tables.show_entries,
    }
    show[entries](answer[entries], more_of(answer, limit))


def status(schedule_id: ScheduleId, /, *, place: Where = USUAL_PLACE) -> None:
    """Show a schedule: what it is, when it runs next, what became of it last."""
    with connected(place) as remote:
        document = remote.call("schedule/get", {"schedule_id": schedule_id, "include_deleted": True})
        latest = remote.call("schedule/occurrences", {"schedule_id": schedule_id, "limit": LATEST})["occurrences"]
        runs = [] if place.as_json else remote.call("schedule/runs", {"schedule_id": schedule_id, "limit": 1})["runs"]
    if place.as_json:
        print_json(document | {"occurrences": latest})
        return
    from noonmark.cli.stored import show_stored  # noqa: PLC0415 - as above

    show_stored(document, called(document), latest, runs)


def explain(
    some_id: Annotated[str, Parameter(name="ID", help="The id of a schedule, or of one of its occurrences.")],
    /,
    *,
    at: Annotated[
        str | None,
        Parameter(show_default=False, help="The instant that is asked about; the last run without one."),
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Say why something ran, or did not: the sentence, and each rule that had its say."""
    instant = read_instant(at, "--at")
    is_occurrence = _OCCURRENCE.fullmatch(some_id) is not None
    if is_occurrence and instant is not None:
        raise InvalidRequest("goes with the id of a schedule: an occurrence has its own time", field="--at")
    with connected(place) as remote:
        if is_occurrence:
            answer = remote.call("occurrence/explain", {"occurrence_id": some_id})
        else:
            answer = remote.call("schedule/explain", present(schedule_id=some_id, at=instant))
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.explained import show_explanation  # noqa: PLC0415 - as above

    show_explanation(one_line(answer["summary"]), answer["steps"])
