"""Events: emit, list, and match against filters, a trigger or a schedule."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.causation import concerns, is_emitted_by
from noonmark.core.errors import InvalidRequest
from noonmark.core.event import parse_event
from noonmark.core.filters.match import Matcher, compile_filters
from noonmark.core.instants import from_micros
from noonmark.core.json_values import shown
from noonmark.core.quotas import Resource
from noonmark.core.triggers import EventTrigger, parse_trigger
from noonmark.operations import schedule_edits
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import read_page
from noonmark.operations.service import cause_of_event, quotas_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import EventQuery, MatchRequest
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.store import Store

WAYS = "name event_type and filters, a trigger, or a schedule_id"


def emit_event(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Emit an event; schedules with a matching trigger start by themselves."""
    document = {"source": caller.source, **arguments}
    event = parse_event(document, now=from_micros(service.store.clock()))
    event = replace(event, behind=cause_of_event(service, caller, event))
    emitted = store_event(
        service.store,
        caller.owner.tenant,
        event,
        fresh_id=f"evt_{service.fresh_id()}",
        user=caller.owner.user,
        limits=quotas_of(service, caller, Resource.EVENTS, Resource.QUEUED),
    )
    service.wake(None)
    return {"event_id": emitted.event_id} | ({"duplicate": True} if emitted.is_other else {})


class EmittedEvent(NamedTuple):
    """The id of an emitted event, and whether the tenant has used that id for a different one."""

    event_id: str
    is_other: bool = False


def emit(store: Store, tenant: str, event: Event, *, fresh_id: str) -> str:
    """Store an event as `store_event` does, and return its id."""
    return (store_event(store, tenant, event, fresh_id=fresh_id)).event_id


def store_event(
    store: Store, tenant: str, event: Event, *, fresh_id: str, user: str = "", limits: Sequence[Quota] = ()
) -> EmittedEvent:
    """Store an event under the id that its sender chose, or else the fresh one.

    It is durable when this returns, before any schedule reacts to it. An event whose id is already stored is ignored,
    so a sender that does not know whether its request arrived can emit it again under the same id.
    """
    event_id = fresh_id if event.event_id is None else event.event_id
    [is_new] = store.emit(tenant, [replace(event, event_id=event_id)], user=user, limits=limits)
    stored = None if is_new else store.event(tenant, event_id)
    given = (event.event_type, event.payload)
    return EmittedEvent(event_id, stored is not None and (stored.event_type, stored.payload) != given)


def list_events(service: Service, caller: Caller, arguments: EventQuery) -> dict[str, Any]:
    """List events, newest first."""
    start = None if arguments.cursor is None else arguments.cursor[0]

    def fetch(count: int, last: Event | None) -> list[Event]:
        before = start if last is None else last.emitted
        return service.store.events(caller.owner.tenant, count, before=before, event_type=arguments.event_type)

    def serialize(page: Sequence[Event]) -> list[dict[str, Any]]:
        return [event.to_envelope() for event in page]

    entries, end = read_page(arguments.limit, fetch, serialize)
    return {"events": entries, "next_cursor": None if end is None else write_cursor(end.emitted)}


def match_events(service: Service, caller: Caller, arguments: MatchRequest) -> dict[str, Any]:
    """Match the newest events, or a draft, against filters, a trigger or a schedule; each mismatch has its reason."""
    if arguments.schedule_id is not None:
        schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    return find_matches(service.store, caller.owner.tenant, arguments)


def find_matches(store: Store, tenant: str, arguments: MatchRequest) -> dict[str, Any]:
    """Match the events of a tenant."""
    from noonmark.core.describe.words import mismatch  # noqa: PLC0415 - it loads what turns cron into words

    now, schedule = store.clock(), None
    if arguments.schedule_id is None:
        pattern = _pattern(arguments, now)
    elif any(one is not None for one in (arguments.event_type, arguments.filters, arguments.trigger)):
        raise InvalidRequest(f"cannot be combined with the others: {WAYS}", field="schedule_id")
    else:
        schedule = (schedule_edits.find(store, tenant, arguments.schedule_id)).schedule
        pattern = _trigger_of(schedule)

    def fetch(count: int, last: Event | None) -> list[Event]:
        return _newest(store, tenant, pattern, count, None if last is None else last.emitted)

    def serialize(page: Sequence[Event]) -> list[dict[str, Any]]:
        reasons = [(event, mismatch(pattern, event) or _own_event(schedule, event)) for event in page]
        return [{**event.to_envelope(), "matches": why is None, "why": why} for event, why in reasons]

    if arguments.event is None:
        entries, _ = read_page(arguments.limit, fetch, serialize)
    else:
        entries = serialize([_draft(arguments.event, pattern, now)])
    return {"checked": len(entries), "matched": sum(entry["matches"] for entry in entries), "events": entries}


def _own_event(schedule: Schedule | None, event: Event) -> str | None:
    """Why a schedule ignores an event that matches its trigger: it has caused the event itself."""
    if schedule is None or not concerns(event, schedule):
        return None
    if is_emitted_by(event, schedule):
        return "source: a run of this schedule has emitted it itself"
    return "chain: it is about this schedule itself, or follows from its own runs"


def _pattern(arguments: MatchRequest, now: Micros) -> EventTrigger | Matcher:
    """The trigger or the filters that the arguments name."""
    if arguments.trigger is not None:
        if arguments.event_type is not None or arguments.filters is not None:
            raise InvalidRequest(f"cannot be combined with the others: {WAYS}", field="trigger")
        trigger = parse_trigger(arguments.trigger, now=from_micros(now))
        if not isinstance(trigger, EventTrigger):
            raise InvalidRequest(f"must be an event trigger, not one of type {trigger.type}", field="trigger")
        return trigger
    filters = {} if arguments.filters is None else arguments.filters
    return compile_filters(filters) if arguments.event_type is None else EventTrigger(arguments.event_type, filters)


def _trigger_of(schedule: Schedule) -> EventTrigger:
    trigger = schedule.declaration.trigger
    if isinstance(trigger, EventTrigger):
        return trigger
    raise InvalidRequest("names a schedule without an event trigger", field="schedule_id")


def _newest(
    store: Store, tenant: str, pattern: EventTrigger | Matcher, limit: int, before: Micros | None
) -> list[Event]:
    """The newest events of the types that the pattern names, or of all types."""
    if isinstance(pattern, Matcher):
        return store.events(tenant, limit, before=before)
    newest: list[Event] = []
    for event_type in pattern.event_types:
        page = store.events(tenant, limit, before=before, event_type=event_type)
        newest = nlargest(limit, [*newest, *page], key=lambda event: event.emitted)
    return newest


def _draft(draft: object, pattern: EventTrigger | Matcher, now: Micros) -> Event:
    """An event as it could be emitted now; without a type, it has the first of the pattern."""
    if not isinstance(draft, dict):
        raise InvalidRequest(f"must be an object, not {shown(draft)}", field="event")
    usual = {} if isinstance(pattern, Matcher) else {"event_type": pattern.event_types[0]}
    return parse_event({**usual, **draft}, now=from_micros(now), path="event")
