"""Chains: events that Noonmark emits by itself, one because of another, and where that ends.

An occurrence whose work is to emit has an event for its end, and what happens to any occurrence may be told as one: a
fact. When such an event sets off another occurrence, the next event is one deeper. Where it stands in its chain is
part of its id, so that it is known wherever the event is.

The depth bounds how long a chain is, and the number of facts how broad: every listener that has run is a fact to all
the others, so each further fact would multiply what is under way by their number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.events import NOONMARK
from noonmark.core.ids import OriginKind, kind_of

if TYPE_CHECKING:
    from noonmark.core.events import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule

MAX_DEPTH = 16
"""So many events may set each other off, one after another."""
MAX_FACTS = 2
"""So many of them may be facts: one about what no fact has set off, and one about what that has set off."""
EMITTER = "schedule:"
"""The source of an event that a schedule emits begins like this."""
_ID = re.compile(r"evt(\d{1,4})(?:\.(\d{1,4}))?_.+")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event stands in its chain; before the first one, nowhere."""

    depth: int = 0
    """It is the how manieth event."""
    facts: int = 0
    """So many of them are facts, itself included."""

    @property
    def has_room(self) -> bool:
        """Whether an event may stand there."""
        return self.depth <= MAX_DEPTH and self.facts <= MAX_FACTS

    def event_id(self, key: str) -> str:
        """The id of the event that stands there."""
        facts = f".{self.facts}" if self.facts else ""
        return f"evt{self.depth}{facts}_{key}"


FIRST_FACT = Place(depth=1, facts=1)


def place_of_fact(occurrence: Occurrence) -> Place:
    """Where a fact about an occurrence stands."""
    behind = _place_behind(occurrence)
    return Place(behind.depth + 1, behind.facts + 1)


def place_of_emitted(occurrence: Occurrence) -> Place:
    """Where an event stands that it is the work of an occurrence to emit; it is no fact, but may follow from some."""
    behind = _place_behind(occurrence)
    return Place(behind.depth + 1, behind.facts)


def chain_of(source: object, payload: object) -> list[str]:
    """The schedules that led to an event, each by a fact about it, oldest first; none, where it is no fact of ours."""
    chain = payload.get("chain") if source == NOONMARK and isinstance(payload, dict) else None
    return chain if isinstance(chain, list) else []


def chain_behind(occurrence: Occurrence) -> list[str]:
    """The same of an occurrence that an event has set off."""
    event = _cause(occurrence)
    return chain_of(event.get("source"), event.get("payload"))


def concerns(event: Event, schedule: Schedule) -> bool:
    """Whether an event is a schedule's own: emitted by its run, a fact about it, or about what its runs have led to."""
    return is_emitted_by(event, schedule) or schedule.schedule_id in chain_of(event.source, event.payload)


def is_emitted_by(event: Event, schedule: Schedule) -> bool:
    """Whether a run of a schedule has emitted an event. Others may give the same source, but not have such an id."""
    return event.source == f"{EMITTER}{schedule.schedule_id}" and _ID.fullmatch(event.event_id or "") is not None


def _place_behind(occurrence: Occurrence) -> Place:
    """Where the event stands that has set an occurrence off, if Noonmark has emitted it."""
    event = _cause(occurrence)
    source = str(event.get("source"))
    found = _ID.fullmatch(str(event.get("event_id")))
    if found is None or not (source == NOONMARK or source.startswith(EMITTER)):
        return Place()
    return Place(int(found[1]), int(found[2] or 0))


def _cause(occurrence: Occurrence) -> dict[str, Any]:
    """The event that set an occurrence off, if one did and its record can be read."""
    is_set_off = kind_of(occurrence.origin) is OriginKind.EVENT and isinstance(occurrence.payload, dict)
    return occurrence.payload if is_set_off else {}
