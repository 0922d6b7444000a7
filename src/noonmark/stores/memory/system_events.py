"""Telling: what has happened becomes events, where somebody listens for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.memory import events
from noonmark.stores.system_events import to_event

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def tell(uow: UnitOfWork) -> None:
    """Emit what has happened since this was last called, in that order."""
    noted, uow.facts = uow.facts, []
    for fact, schedule, one, more in noted:
        tenant = schedule.owner.tenant
        if uow.listeners.get((tenant, fact)):
            event = to_event(fact, schedule, one, more)
            if event is not None:
                events.emit(uow, tenant, event)


def tell_all(uow: UnitOfWork, event: Event) -> None:
    """Emit an event for every tenant that listens for its type."""
    listening = [
        tenant for (tenant, event_type), found in uow.listeners.items() if found and event_type == event.event_type
    ]
    for tenant in sorted(listening):
        events.emit(uow, tenant, event)
