"""Reactions: which schedules an event sets off, decided for one page of those that listen for its type.

An event matches a trigger that listened when it was emitted: one that had been declared by then, within its bounds.
No schedule is set off by what its own run has emitted, by a fact about itself, or by an event that follows from its own
runs: it would go on for ever.
Each match is one occurrence, with the event as its payload. It never misfires, and is due at once: its nominal time is
the moment of the event, so that a line of them is in the order in which they were emitted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core import ids
from noonmark.core.causation import concerns
from noonmark.core.clock_trust import LEAP
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.policies.jitter import due_at
from noonmark.core.policies.overrides import Overrides
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """What is wrong with an unreadable stored event, which sets nothing off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What to write, on condition that event and listeners are as they were read."""

    audience: UnmatchedEvent
    occurrences: tuple[Occurrence, ...] = ()


def match(event: Event, schedule: Schedule, *, now: Micros) -> Occurrence | None:
    """The occurrence that an event, which was emitted before now, sets off; final where the schedule is paused."""
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
