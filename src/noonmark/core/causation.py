"""Causation: which schedules an event triggers, and where a chain of events that trigger each other ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import ids
from noonmark.core.clock_trust import LEAP
from noonmark.core.event import NOONMARK, Chain, chain_in, mark
from noonmark.core.frozen import frozen
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence, Overrides
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule

MAX_DEPTH = 16
"""The longest chain of events that trigger each other."""
MAX_FACTS = 2
"""How many of them may be system events: one about work that no event triggered, and one about what that triggered."""
MAX_OF_TYPE = 2
"""So many may be of one type when the last is emitted by a schedule that listens for just such ones; the one from
outside that began it counts too."""
EMITTER = "schedule:"
"""The source of an event that a schedule emits begins like this."""
FIRST_FACT = Chain(depth=1, facts=1)


def chain_of_system_event(occurrence: Occurrence) -> Chain | None:
    """The chain of a fact about an occurrence, itself counted; None when its chain has no room for it."""
    behind = chain_behind(occurrence)
    fact = replace(behind, depth=behind.depth + 1, facts=behind.facts + 1)
    return fact if fact.depth <= MAX_DEPTH and fact.facts <= MAX_FACTS else None


def chain_of_emitted(occurrence: Occurrence) -> Chain:
    """The chain of an event that an event target emits; it is not a system event, but may follow from some."""
    behind = chain_behind(occurrence)
    return replace(behind, depth=behind.depth + 1)


def why_not_emitted(chain: Chain, event_type: str, *, repeats: bool) -> str | None:
    """Why an event of a type may not be emitted where its chain has led; None when it may.

    Whoever would be set off by what it emits `repeats`: of such ones, each that hears of the others multiplies them. A
    step to another stage does not, though its event be of the same type.
    """
    if chain.depth > MAX_DEPTH:
        return f"it would be the last of {chain.depth} events that trigger each other, and at most {MAX_DEPTH} may"
    if repeats and chain.count(event_type) >= MAX_OF_TYPE:
        return (
            f"{MAX_OF_TYPE} of the events that led to it are of type {event_type!r} themselves, and no more may be: "
            "give each step a type, or a filter, of its own"
        )
    return None


def chain_of_reported(occurrence: Occurrence, event_type: str) -> Chain:
    """The chain of an event that a running occurrence reported over the network."""
    return chain_of_emitted(occurrence).then(occurrence.schedule_id, event_type)


def chain_of_requested(occurrence: Occurrence) -> Chain:
    """The chain of a run that the work of an occurrence requested over the network: one step deeper."""
    return chain_of_emitted(occurrence).then(occurrence.schedule_id)


def why_not_requested(chain: Chain) -> str | None:
    """Why a run may not be asked for where its chain has led; None when it may."""
    if chain.depth <= MAX_DEPTH:
        return None
    return f"it would be the last of {chain.depth} steps that trigger each other, and at most {MAX_DEPTH} may"


def chain_after(occurrence: Occurrence) -> Chain | None:
    """The chain of what the end of an occurrence triggers downstream; None if no event is behind it."""
    behind = chain_behind(occurrence)
    return None if behind == Chain() else behind.then(occurrence.schedule_id)


def chain_behind(occurrence: Occurrence) -> Chain:
    """What led to an occurrence: an event, or its upstreams; None for the trigger and for manual runs."""
    event, overrides = occurrence.payload, occurrence.overrides
    if overrides is not None and overrides.behind is not None:
        return overrides.behind
    if kind_of(occurrence.origin) is OriginKind.EVENT and isinstance(event, dict):
        event_type, payload = str(event.get("event_type")), event.get("payload")
        source = str(event.get("source"))
        led = _chain_of(source, event.get("event_id"), payload)
        return (led or Chain()).marked(mark("" if led is None else _emitter(source, payload), event_type))
    return Chain()


def chain_of(source: object, payload: object) -> list[str]:
    """The schedules in the chain of a system event, oldest first; empty for any other event."""
    chain = payload.get("chain") if source == NOONMARK and isinstance(payload, dict) else None
    return chain if isinstance(chain, list) else []


def concerns(event: Event, schedule: Schedule) -> bool:
    """Whether an event is a schedule's own: emitted by its run, a fact about it, or what its runs have led to."""
    if event.behind is not None and event.behind.leads_through(schedule.schedule_id):
        return True
    if is_emitted_by(event, schedule) or schedule.schedule_id in chain_of(event.source, event.payload):
        return True
    led = _chain_of(event.source, event.event_id, event.payload)
    return led is not None and led.leads_through(schedule.schedule_id)


def is_emitted_by(event: Event, schedule: Schedule) -> bool:
    """Whether a run of a schedule emitted the event, judged by its source and its id."""
    return event.source == f"{EMITTER}{schedule.schedule_id}" and chain_in(event.event_id or "") is not None


def _chain_of(source: str, event_id: object, payload: object) -> Chain | None:
    """The chain of an event, itself included; None if Noonmark did not emit it."""
    led = chain_in(str(event_id)) if source == NOONMARK or source.startswith(EMITTER) else None
    return None if led is None else replace(led, schedules=tuple(chain_of(source, payload)))


def _emitter(source: str, payload: object) -> str:
    """The id of the schedule that an event of ours is by, or about; nothing, where it is about a node."""
    if source != NOONMARK:
        return source.removeprefix(EMITTER)
    return str(payload.get("schedule_id", "")) if isinstance(payload, dict) else ""


@frozen(kw_only=True)
class UnmatchedEvent:
    """An event, and a page of the schedules of its tenant that listen for its type."""

    tenant: str
    event: Event
    cursor: str
    """Where the page begins, in a way that only the store understands."""
    listeners: tuple[Schedule, ...] = ()
    next_cursor: str | None = None
    """Where the next page begins; None when this is the last."""
    problem: str = ""
    """What is wrong with an unreadable stored event, which triggers nothing."""


@frozen(kw_only=True)
class Reaction:
    """What to write, on condition that event and listeners are as they were read."""

    audience: UnmatchedEvent
    occurrences: tuple[Occurrence, ...] = ()


def match(event: Event, schedule: Schedule, *, now: Micros) -> Occurrence | None:
    """The occurrence that an event triggers, skipped if the schedule is paused; None if the event does not match."""
    trigger = schedule.declaration.trigger
    if not isinstance(trigger, EventTrigger) or not _listened(schedule, trigger, event.emitted, now):
        return None
    if not trigger.matches(event.event_type, event.payload, source=event.source) or concerns(event, schedule):
        return None
    # If the clock stood still or went back, events have moments ahead of it; occurrences need not wait for those.
    due = due_at(trigger, schedule.uid, event.emitted) - event.emitted + min(event.emitted, now)
    row = _occurrence(event, schedule, due)
    if schedule.phase is SchedulePhase.PAUSED:
        return replace(row, phase=Phase.SKIPPED, reason=Reason.PAUSED)
    return row


def unreadable(event: Event, schedule: Schedule, problem: str) -> Occurrence:
    """The end of an event for a schedule that could not be matched."""
    row = _occurrence(event, schedule, event.emitted)
    detail = json.dumps({"problem": problem})
    return replace(row, phase=Phase.DELIVERY_FAILED, reason=Reason.UNREADABLE, detail=detail)


def _listened(schedule: Schedule, trigger: EventTrigger, emitted: Micros, now: Micros) -> bool:
    """Whether a schedule waited for events at that moment; one that a clock ahead has dated does by now."""
    declared = schedule.created if schedule.anchored is None else schedule.anchored
    if emitted < declared <= now + LEAP or not trigger.within_bounds(emitted):
        return False
    match schedule.phase:
        case SchedulePhase.DELETED:
            return False
        case SchedulePhase.COMPLETED:  # what came before its end is owed an outcome
            return emitted <= schedule.updated
        case _:
            return True


def _occurrence(event: Event, schedule: Schedule, due: Micros) -> Occurrence:
    origin = ids.event(event.event_id or "")
    return Occurrence(
        id=ids.occurrence_id(schedule.uid, origin, event.emitted),
        uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        revision=schedule.revision,
        origin=origin,
        phase=Phase.PENDING,
        route=schedule.declaration.target.route,
        nominal=event.emitted,
        due=due,
        first_due=due,
        payload=event.to_envelope(),
        overrides=None if event.behind is None else Overrides(behind=event.behind),
    )
