"""The sink: where a node tells what has happened. Each kind of happening is a value of its own type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan was written: it may close a gap, and add occurrences."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Matched:
    """Of those that listen for an event, some or all were asked; what it set off was added."""

    tenant: str
    event: Event
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """This node holds an occurrence, ahead of its time or from a node that was lost."""

    occurrence: Occurrence
    found_in: Phase


@dataclass(frozen=True, slots=True)
class Started:
    """The dispatch of an occurrence was committed; it begins at its due time, or now if that is past."""

    occurrence: Occurrence


@dataclass(frozen=True, slots=True)
class Waiting:
    """An occurrence went back without a time, until what it waits for sets one."""

    occurrence: Occurrence


@dataclass(frozen=True, slots=True)
class Ended:
    """An occurrence ended without having been delivered."""

    occurrence: Occurrence


@dataclass(frozen=True, slots=True)
class Settled:
    """A delivery ended, and that is written: the end of its occurrence, or another attempt to come."""

    occurrence: Occurrence
    phase: Phase
    reason: Reason
    run: Run
    retry_at: Micros | None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another node, an edit, or whoever told its end took it away; what this node does with it no longer counts."""

    occurrence_id: str
    run: Run | None = None
    """What it did, where it had come to an end."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A run outlived its timeout in a thread that cannot be stopped."""

    occurrence: Occurrence
    threads: int
    """How many such threads the node has."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """So many occurrences, events, notes of what callers did, and keys they used, were forgotten."""

    count: int
    events: int = 0
    notes: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A call to the store failed; it is made again after a while."""

    duty: str
    error: str
    retry_in: Micros


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """This node does the housekeeping from now on, or does it no longer."""

    node: str
    term: int
    leader: str | None
    """This node, or the one that leads instead; None when it has given up its lease because it stops."""


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A driver began its work."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeStopped:
    """A driver ended its work; so many occurrences were handed back."""

    node: str
    handed_back: int


DriverEvent = (
    Planned
    | Matched
    | Claimed
    | Started
    | Waiting
    | Ended
    | Settled
    | LeaseLost
    | Abandoned
    | Pruned
    | StoreFailed
    | LeaderChanged
    | NodeStarted
    | NodeStopped
)


class EventSink(Protocol):
    """Is told after the fact, from the thread of the driver; it should be quick, and must not raise."""

    def tell(self, happenings: Sequence[DriverEvent]) -> None:
        """Take note of what has happened, in order."""
