"""`noonmark trigger`: schedules that events trigger."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.commands.event import EventPayload, Last, payload_event, show_matches
from noonmark.cli.commands.schedule import (
    Bundle,
    Labels,
    NewId,
    Status,
    build_document,
    create_schedules,
    delete_schedule,
    schedule_filter,
    show_schedule_list,
    trigger_type,
)
from noonmark.cli.document_builder import given_parts
from noonmark.cli.options import (
    Confirm,
    Connection,
    EventOptions,
    OldestLimit,
    PolicyOptions,
    Reason,
    ScheduleId,
    TargetOptions,
)
from noonmark.cli.parameters import Parameter
from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest


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
    documents = [build_document(event, target, policies, bundle, part.document) for part in parts]
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
