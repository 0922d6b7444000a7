"""Causation: a request from the work of an occurrence continues the chain of that occurrence.

Such requests carry a proof of their occurrence. A proof that is missing, wrong, from another tenant or store, or of an
occurrence that is no longer stored is ignored: the request then starts a chain of its own.
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


def cause_of_event(service: Service, caller: Caller, event: Event) -> Chain | None:
    """The chain that an emitted event continues; Conflict if the chain is full."""
    if (found := _cause(service, caller)) is None:
        return None
    occurrence, schedule = found
    trigger = schedule.declaration.trigger
    repeats = isinstance(trigger, EventTrigger) and trigger.matches(
        event.event_type, event.payload, source=event.source
    )
    if (why := why_not_emitted(chain_of_emitted(occurrence), event.event_type, repeats=repeats)) is not None:
        raise Conflict(f"the event is not emitted: {why}")
    return chain_of_reported(occurrence, event.event_type)


def cause_of_run(
    service: Service, caller: Caller, schedule_id: str, key: str | None
) -> tuple[Chain | None, str | None]:
    """The chain that a requested run continues, and the key of the run; Conflict if the chain is full.

    In a circle, each occurrence may request one run of a schedule: two would double with every turn. So the id of the
    occurrence is the key of the run.
    """
    if (found := _cause(service, caller)) is None:
        return None, key
    occurrence, chain = found[0], _chain_of_run(found[0])
    if not chain.leads_through(schedule_id):
        return chain, key
    if key not in {None, occurrence.id}:
        raise Conflict(f"it is not run: {CIRCLE}, and each run of a circle may request one more; leave the key out")
    return chain, occurrence.id


def cause_of_backfill(service: Service, caller: Caller, schedule_id: str) -> Chain | None:
    """The chain that a backfill continues; Conflict in a circle, which it would multiply."""
    if (found := _cause(service, caller)) is None:
        return None
    chain = _chain_of_run(found[0])
    if chain.leads_through(schedule_id):
        raise Conflict(f"it is not run: {CIRCLE}, and a run of a circle cannot request several")
    return chain


def _chain_of_run(occurrence: Occurrence) -> Chain:
    chain = chain_of_requested(occurrence)
    if (why := why_not_requested(chain)) is not None:
        raise Conflict(f"it is not run: {why}")
    return chain


def _cause(service: Service, caller: Caller) -> tuple[Occurrence, Schedule] | None:
    """The occurrence whose work sent the request, and its schedule."""
    if not caller.chain:
        return None
    tenant = caller.owner.tenant
    try:
        own = service.store.own_key()
    except StoreUnavailable:  # if the whole store is down, what follows reports it
        return None
    occurrence_id = proven_occurrence(caller.chain, chain_key(own, tenant))
    occurrence = None if occurrence_id is None else service.store.occurrence(occurrence_id)
    snapshot = None if occurrence is None else service.store.snapshot(occurrence.uid)
    if occurrence is None or snapshot is None or snapshot.schedule.owner.tenant != tenant:
        return None
    return occurrence, snapshot.schedule
