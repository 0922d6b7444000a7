"""`noonmark event match` and `noonmark trigger test`: which of the last events a filter, or a schedule, matches."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from noonmark.cli.documents import parse_json
from noonmark.cli.options import USUAL_PLACE, Place, ScheduleId, Texts, Where
from noonmark.cli.output import print_json
from noonmark.cli.remote import connected
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest

Last = Annotated[int, Parameter(name=("--last", "--limit"), help="How many of the last events are looked at.")]
Draft = Annotated[
    str | None,
    Parameter(show_default=False, help="Look at an event with this payload instead, which need not have been emitted."),
]


def match(
    event_type: Annotated[
        str | None, Parameter(show_default=False, help="The type of the events; any, unless given.")
    ] = None,
    /,
    *,
    event: Annotated[
        Texts, Parameter(help="The type of the events, as for noonmark trigger create; may be repeated.")
    ] = (),
    filter_json: Annotated[
        str | None, Parameter(show_default=False, help="The filters, as for noonmark trigger create.")
    ] = None,
    payload_json: Draft = None,
    last: Last = 100,
    place: Where = USUAL_PLACE,
) -> None:
    """Say which of the last events filters match, and why not the others. Nothing is set off."""
    types = [one for one in (event_type, *event) if one is not None]
    if payload_json is not None and not types:
        raise InvalidRequest("needs a type: noonmark event match TYPE --payload-json ..", field="--payload-json")
    filters = None if filter_json is None else parse_json(filter_json, field="--filter-json")
    named = types[0] if len(types) == 1 else types or None
    _show(place, present(event_type=named, filters=filters, event=_draft(payload_json)) | {"limit": last})


def try_trigger(
    schedule_id: ScheduleId, /, *, payload_json: Draft = None, last: Last = 100, place: Where = USUAL_PLACE
) -> None:
    """Say which of the last events would set a schedule off, and why not the others. Nothing is set off."""
    _show(place, present(schedule_id=schedule_id, event=_draft(payload_json)) | {"limit": last})


def _draft(payload_json: str | None) -> dict[str, Any] | None:
    return None if payload_json is None else {"payload": parse_json(payload_json, field="--payload-json")}


def _show(place: Place, arguments: dict[str, Any]) -> None:
    with connected(place) as remote:
        answer = remote.call("event/match", arguments)
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.tables import show_matched  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_matched(answer)
