"""Causes: what the work of an occurrence asks of this service is a step of the chain that the occurrence is in.

Its requests carry a proof of which occurrence it is. One that is missing, wrong, of another tenant or another store, or
of an occurrence that is not on record any more, says nothing: then it is as if somebody from outside had asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.causation import (
    chain_of_emitted,
    chain_of_reported,
    chain_of_requested,
    why_not_emitted,
    why_not_requested,
)
from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.core.signatures import chain_key, proven_occurrence
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.chain import Chain
    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.operations.service import Caller, Service

CIRCLE = "a run of this schedule has led to this request"


def behind_event(service: Service, caller: Caller, event: Event) -> Chain | None:
    """What leads to an event that a caller tells of; a Conflict where the chain has no room for it."""
    if (found := _cause(service, caller)) is None:
        return None
    one, schedule = found
    trigger = schedule.declaration.trigger
    repeats = isinstance(trigger, EventTrigger) and trigger.matches(
        event.event_type, event.payload, source=event.source
    )
    if (why := why_not_emitted(chain_of_emitted(one), event.event_type, repeats=repeats)) is not None:
        raise Conflict(f"the event is not kept: {why}")
    return chain_of_reported(one, event.event_type)


def behind_run(service: Service, caller: Caller, schedule_id: str, key: str | None) -> tuple[Chain | None, str | None]:
    """What leads to a run that a caller asks for, and the key of that run; a Conflict where the chain has no room.

    In a circle, the work of each occurrence asks for one run of a schedule: if it could ask for two, they would double
    with every turn. So the run has the id of the occurrence for its key.
    """
    if (found := _cause(service, caller)) is None:
        return None, key
    one, trail = found[0], _room_for_run(found[0])
    if not trail.leads_through(schedule_id):
        return trail, key
    if key not in {None, one.id}:
        raise Conflict(f"it is not run: {CIRCLE}, and each run of a circle asks for one more; leave the key out")
    return trail, one.id


def behind_backfill(service: Service, caller: Caller, schedule_id: str) -> Chain | None:
    """What leads to a backfill that a caller asks for; a Conflict in a circle, which it would multiply."""
    if (found := _cause(service, caller)) is None:
        return None
    trail = _room_for_run(found[0])
    if trail.leads_through(schedule_id):
        raise Conflict(f"it is not run: {CIRCLE}, and no run of a circle asks for several")
    return trail


def _room_for_run(one: Occurrence) -> Chain:
    trail = chain_of_requested(one)
    if (why := why_not_requested(trail)) is not None:
        raise Conflict(f"it is not run: {why}")
    return trail


def _cause(service: Service, caller: Caller) -> tuple[Occurrence, Schedule] | None:
    """The occurrence whose work asks, and its schedule."""
    if not caller.chain:
        return None
    tenant = caller.owner.tenant
    try:
        own = service.store.own_key()
    except StoreUnavailable:  # if it is away altogether, whoever asks is told so by what follows
        return None
    one_id = proven_occurrence(caller.chain, chain_key(own, tenant))
    one = None if one_id is None else service.store.occurrence(one_id)
    snapshot = None if one is None else service.store.snapshot(one.uid)
    if one is None or snapshot is None or snapshot.schedule.owner.tenant != tenant:
        return None
    return one, snapshot.schedule
