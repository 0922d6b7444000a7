"""Operations on events: emit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.ports.store import Store


class Told(NamedTuple):
    """What became of an event: its id, and whether the tenant has used that id for something else."""

    event_id: str
    is_other: bool = False


def emit(store: Store, tenant: str, event: Event, *, fresh_id: str) -> str:
    """Keep an event, and give its id, as `keep` does."""
    return keep(store, tenant, event, fresh_id=fresh_id).event_id


def keep(store: Store, tenant: str, event: Event, *, fresh_id: str) -> Told:
    """Keep an event, under the id of its sender, or else the fresh one.

    It is on record when this returns, whatever becomes of the schedules it sets off. One that the tenant has already is
    left as it is, so that whoever does not know whether it was kept may emit it again under the same id.
    """
    event_id = fresh_id if event.event_id is None else event.event_id
    [is_new] = store.emit(tenant, [replace(event, event_id=event_id)])
    found = None if is_new else store.event(tenant, event_id)
    said = (event.event_type, event.payload)
    return Told(event_id, found is not None and (found.event_type, found.payload) != said)
