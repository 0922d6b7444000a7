"""`noonmark event` and `noonmark trigger`: emit, list and match events, and list the schedules that events trigger."""

from __future__ import annotations

from typing import Annotated, Any

from noonmark.cli.commands.schedule import (
    Bundle,
    Labels,
    NewId,
    Status,
    build_document,
    create_from_manifest,
    create_schedules,
    delete_schedule,
    find_bundle,
    schedule_filter,
    show_schedule_list,
    trigger_type,
)
from noonmark.cli.document_builder import given_parts, trigger_document
from noonmark.cli.inputs import parse_json, parse_optional_json
from noonmark.cli.options import (
    Confirm,
    Connection,
    EventOptions,
    Limit,
    OldestLimit,
    PolicyOptions,
    Reason,
    ScheduleId,
    TargetOptions,
    Texts,
)
from noonmark.cli.output import print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest

Last = Annotated[int, Parameter(name=("--last", "--limit"), help="How many of the last events to examine.")]
EventPayload = Annotated[
    str | None, Parameter(show_default=False, help="Examine a hypothetical event with this payload instead.")
]


def emit(
    event_type: Annotated[str, Parameter(help="The type of the event, such as file_uploaded.")],
    /,
    *,
    payload_json: Annotated[str | None, Parameter(show_default=False, help="The payload, as JSON.")] = None,
    source: Annotated[str, Parameter(help="Who emits it.")] = "cli",
    event_id: Annotated[
        str | None, Parameter(show_default=False, help="An event id; the same id again is the same event.")
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Emit an event. The schedules that wait for it run on their nodes."""
    payload = parse_optional_json(payload_json, "--payload-json")
    arguments = present(event_type=event_type, payload=payload, source=source, event_id=event_id)
    with connect(connection) as remote:
        answer = remote.call("event/emit", arguments)
    if answer.get("duplicate"):
        sentence = f"{answer['event_id']} was emitted before with another type or payload; nothing was emitted."
    else:
        sentence = f"Emitted {event_type} as {answer['event_id']}."
    print_answer(answer, sentence, as_json=connection.as_json)


def list_events(
    *,
    event: Annotated[str | None, Parameter(show_default=False, help="Only events of this type.")] = None,
    limit: Limit = 100,
    connection: Connection = Connection(),
) -> None:
    """List emitted events."""
    with connect(connection) as remote:
        answer = read_pages(remote, "event/list", present(event_type=event), entries="events", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_events

    show_events(answer["events"], more_entries(answer, limit))


def match(
    event_type: Annotated[
        str | None, Parameter(show_default=False, help="The type of the events; default: any.")
    ] = None,
    /,
    *,
    event: Annotated[Texts, Parameter(help="The type of the events, as for noonmark trigger create; repeatable.")] = (),
    filter_json: Annotated[
        str | None, Parameter(show_default=False, help="The filters, as for noonmark trigger create.")
    ] = None,
    payload_json: EventPayload = None,
    last: Last = 100,
    connection: Connection = Connection(),
) -> None:
    """Show which recent events match filters, and why others do not. Nothing is started."""
    types = [name for name in (event_type, *event) if name is not None]
    if payload_json is not None and not types:
        raise InvalidRequest("needs a type: noonmark event match TYPE --payload-json ..", field="--payload-json")
    filters = parse_optional_json(filter_json, "--filter-json")
    selected = types[0] if len(types) == 1 else types or None
    arguments = present(event_type=selected, filters=filters, event=payload_event(payload_json)) | {"limit": last}
    show_matches(connection, arguments)


def payload_event(payload_json: str | None) -> dict[str, Any] | None:
    """The hypothetical event to examine, if a payload is given."""
    return None if payload_json is None else {"payload": parse_json(payload_json, field="--payload-json")}


def show_matches(connection: Connection, arguments: dict[str, Any]) -> None:
    """Match events, and show the result."""
    with connect(connection) as remote:
        answer = remote.call("event/match", arguments)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import show_event_matches

    show_event_matches(answer)


def create(
    bundle: Bundle = None,
    /,
    *,
    event: EventOptions = EventOptions(),
    target: TargetOptions = TargetOptions(),
    policies: PolicyOptions = PolicyOptions(),
    schedule_id: NewId = None,
    connection: Connection = Connection(),
) -> None:
    """Create a schedule that an event triggers."""
    parts = given_parts(policies.schedule_json)
    if bundle is not None and not any(trigger_document(event, part.document.get("trigger")) for part in parts):
        create_from_manifest(connection, bundle, "trigger", needs="--event is required")
        return
    bundle_document = find_bundle(connection, bundle)
    documents = [build_document(event, target, policies, bundle_document, part.document) for part in parts]
    for part, document in zip(parts, documents, strict=True):
        if trigger_type(document) != "event":
            of_part = f" for {part.place} of --schedule-json" if part.place else ""
            raise InvalidRequest(f"is required{of_part}: the type of the events that trigger it", field="--event")
    create_schedules(connection, documents, schedule_id, [None] * len(documents))


def list_triggers(
    *,
    event: Annotated[str | None, Parameter(show_default=False, help="Only for events of this type.")] = None,
    status: Status = None,
    label: Labels = (),
    limit: OldestLimit = 100,
    connection: Connection = Connection(),
) -> None:
    """List the schedules that events trigger."""
    arguments = schedule_filter(status, label) | present(event_type=event)
    show_schedule_list(connection, "trigger/list", arguments, "triggers", limit=limit)


def delete(
    schedule_id: ScheduleId,
    /,
    *,
    reason: Reason = None,
    confirm: Confirm = False,
    connection: Connection = Connection(),
) -> int:
    """Delete a schedule that events trigger; its history is kept."""
    return delete_schedule(connection, schedule_id, reason=reason, confirm=confirm, only_triggers=True)


def match_trigger(
    schedule_id: ScheduleId,
    /,
    *,
    payload_json: EventPayload = None,
    last: Last = 100,
    connection: Connection = Connection(),
) -> None:
    """Show which recent events would trigger a schedule, and why others would not. Nothing is started."""
    arguments = present(schedule_id=schedule_id, event=payload_event(payload_json)) | {"limit": last}
    show_matches(connection, arguments)
