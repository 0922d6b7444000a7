"""Telling: what has happened becomes events, where somebody listens for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.memory import events
from noonmark.stores.telling import to_event

if TYPE_CHECKING:
    from noonmark.core.events import Event
    from noonmark.stores.memory.ledger import Ledger


def tell(ledger: Ledger) -> None:
    """Emit what has happened since this was last called, in that order."""
    noted, ledger.facts = ledger.facts, []
    for fact, schedule, one, more in noted:
        tenant = schedule.owner.tenant
        if ledger.listeners.get((tenant, fact)):
            event = to_event(fact, schedule, one, more)
            if event is not None:
                events.emit(ledger, tenant, event)


def tell_all(ledger: Ledger, event: Event) -> None:
    """Emit an event for every tenant that listens for its type."""
    listening = [
        tenant for (tenant, event_type), found in ledger.listeners.items() if found and event_type == event.event_type
    ]
    for tenant in sorted(listening):
        events.emit(ledger, tenant, event)
