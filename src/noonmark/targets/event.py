"""The event target: an occurrence emits an event, which may trigger other schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.causation import EMITTER, chain_of_emitted, why_not_emitted
from noonmark.core.errors import NoonmarkError
from noonmark.core.event import Event
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.targets import EventTarget
from noonmark.core.triggers import EventTrigger
from noonmark.targets.outcomes import not_started, succeeded, undeliverable
from noonmark.targets.store_target import StoreTarget

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment


class EventEmitter(StoreTarget):
    """Emits events. The event id derives from the occurrence, so a redelivery adds no second event."""

    route = EventTarget.route

    def _run(self, assignment: Assignment) -> Delivered:
        if assignment.stop_reason is not None:
            return not_started(assignment, assignment.stop_reason, now=self._now())
        occurrence, target = assignment.occurrence, assignment.schedule.declaration.target
        if not isinstance(target, EventTarget):
            return undeliverable(f"a {target.kind} target is not an event", now=self._now())
        chain = chain_of_emitted(occurrence)
        event = Event(
            event_type=target.event_type,
            emitted=self._now(),
            event_id=chain.event_id(occurrence.id),
            source=f"{EMITTER}{occurrence.schedule_id}",
            payload=_payload(occurrence, target),
        )
        trigger = assignment.schedule.declaration.trigger
        repeats = isinstance(trigger, EventTrigger) and trigger.matches(
            event.event_type, event.payload, source=event.source
        )
        if (why := why_not_emitted(chain, target.event_type, repeats=repeats)) is not None:
            return undeliverable(why, now=self._now())
        try:
            self._store.emit(assignment.schedule.owner.tenant, [event])
        except NoonmarkError as error:
            return undeliverable(f"the event could not be stored: {error}", now=self._now())
        return succeeded(assignment, {"event_id": event.event_id}, now=self._now())


def _payload(occurrence: Occurrence, target: EventTarget) -> Any:  # noqa: ANN401 - JSON
    """Return the payload sent by the caller of the run, else the schedule's, else that of the triggering event."""
    if kind_of(occurrence.origin) is OriginKind.EVENT:
        return target.payload or occurrence.payload["payload"]
    return target.payload if occurrence.payload is None else occurrence.payload
