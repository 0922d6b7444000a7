"""Matching: which of the last events a filter, a trigger or a schedule would have wanted. Nothing is set off by it."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Any

from noonmark.core.causation import concerns, is_emitted_by
from noonmark.core.describe.filters import mismatch
from noonmark.core.errors import InvalidRequest
from noonmark.core.event import parse_event
from noonmark.core.filters.match import Matcher, compile_filters
from noonmark.core.instants import from_micros
from noonmark.core.json_values import identifier, shown
from noonmark.core.triggers import EventTrigger, parse_trigger
from noonmark.operations import schedules
from noonmark.operations.arguments import MAX_LIMIT, Arguments
from noonmark.operations.documents import event_document
from noonmark.operations.page import read_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.store import Store

USUAL_NUMBER = 100
WAYS = "name event_type and filters, a trigger, or a schedule_id"


def match(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Which of the last events a filter, a trigger or a schedule matches, and why not the others; or one like this."""
    return matched(service.store, caller.owner.tenant, arguments)


def matched(store: Store, tenant: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the events and schedules of a tenant."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier, None)
    said = {name: asked.raw(name) for name in ("event_type", "filters", "trigger")}
    draft, limit = asked.raw("event"), asked.integer("limit", USUAL_NUMBER, low=1, high=MAX_LIMIT)
    asked.done()
    now, schedule = store.clock(), None
    if schedule_id is None:
        wanted = _wanted(said, now)
    elif any(one is not None for one in said.values()):
        raise InvalidRequest(f"cannot stand beside the others: {WAYS}", field="schedule_id")
    else:
        schedule = schedules.find(store, tenant, schedule_id).schedule
        wanted = _of_schedule(schedule.declaration.trigger)

    def fetch(count: int, last: Event | None) -> list[Event]:
        return _newest(store, tenant, wanted, count, None if last is None else last.emitted)

    def tell(page: Sequence[Event]) -> list[dict[str, Any]]:
        reasons = [(one, mismatch(wanted, one) or _own(schedule, one)) for one in page]
        return [{**event_document(one), "matches": why is None, "why": why} for one, why in reasons]

    if draft is None:
        told, _ = read_page(limit, fetch, tell)
    else:
        told = tell([_drafted(draft, wanted, now)])
    return {"checked": len(told), "matched": sum(one["matches"] for one in told), "events": told}


def _own(schedule: Schedule | None, event: Event) -> str | None:
    """Why a schedule does not hear of what it wants to hear of, where it is behind that itself."""
    if schedule is None or not concerns(event, schedule):
        return None
    if is_emitted_by(event, schedule):
        return "source: a run of this schedule has emitted it itself"
    return "chain: it is about this schedule itself, or follows from its own runs"


def _wanted(said: Mapping[str, Any], now: Micros) -> EventTrigger | Matcher:
    """What the arguments want to hear of."""
    if (document := said["trigger"]) is not None:
        if said["event_type"] is not None or said["filters"] is not None:
            raise InvalidRequest(f"cannot stand beside the others: {WAYS}", field="trigger")
        trigger = parse_trigger(document, now=from_micros(now))
        if not isinstance(trigger, EventTrigger):
            raise InvalidRequest(f"must be an event trigger, not one of type {trigger.type}", field="trigger")
        return trigger
    filters = {} if said["filters"] is None else said["filters"]
    return compile_filters(filters) if said["event_type"] is None else EventTrigger(said["event_type"], filters)


def _of_schedule(trigger: object) -> EventTrigger:
    if isinstance(trigger, EventTrigger):
        return trigger
    raise InvalidRequest("is the id of a schedule that no event sets off", field="schedule_id")


def _newest(
    store: Store, tenant: str, wanted: EventTrigger | Matcher, limit: int, before: Micros | None
) -> list[Event]:
    """The last events of the types that are wanted, the newest first; of all types where none is named."""
    if isinstance(wanted, Matcher):
        return store.events(tenant, limit, before=before)
    found: list[Event] = []
    for kind in wanted.event_types:
        page = store.events(tenant, limit, before=before, event_type=kind)
        found = nlargest(limit, [*found, *page], key=lambda one: one.emitted)
    return found


def _drafted(draft: object, wanted: EventTrigger | Matcher, now: Micros) -> Event:
    """An event as it could be emitted now; without a type, it has the first that is wanted."""
    if not isinstance(draft, dict):
        raise InvalidRequest(f"must be an object, not {shown(draft)}", field="event")
    usual = {} if isinstance(wanted, Matcher) else {"event_type": wanted.event_types[0]}
    return parse_event({**usual, **draft}, now=from_micros(now), path="event")
