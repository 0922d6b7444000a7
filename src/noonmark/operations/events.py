"""Operations on events: emit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.events import Event
    from noonmark.ports.store import Store


async def emit(store: Store, tenant: str, event: Event, *, fresh_id: str) -> str:
    """Keep an event, and give its id: the sender's, or else the fresh one.

    It is on record when this returns, whatever becomes of the schedules it sets off. One that the tenant has already is
    left as it is, so that whoever does not know whether it was kept may emit it again under the same id.
    """
    event_id = fresh_id if event.event_id is None else event.event_id
    await store.emit(tenant, [replace(event, event_id=event_id)])
    return event_id
