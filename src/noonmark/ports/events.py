"""Driver events: what a node reports while it works, each kind as its own type, and the sink that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.policies.runaway import RunawayRule
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run


@frozen
class Planned:
    """A plan was written; it may close a gap and add occurrences."""

    plan: Plan


@frozen
class Matched:
    """An event was matched with some or all of its listeners, and their occurrences were added."""

    tenant: str
    event: Event
    occurrences: tuple[Occurrence, ...]


@frozen
class Claimed:
    """This node claimed an occurrence, ahead of its time or from a lost node."""

    occurrence: Occurrence
    found_in: Phase


@frozen
class Started:
    """The start of an occurrence was committed; it begins at its due time, or now if that is past."""

    occurrence: Occurrence


@frozen
class RateExceeded:
    """A start is the first that is more than the expected rate of its schedule allows in a window."""

    schedule_id: str
    alert: RateAlert


@frozen
class RanAway:
    """The runaway guard has paused a schedule."""

    schedule_id: str
    rule: RunawayRule


@frozen
class Waiting:
    """An occurrence waits."""

    occurrence: Occurrence


@frozen
class Ended:
    """An occurrence ended without delivery."""

    occurrence: Occurrence


@frozen
class Progressed:
    """New output of a run was written, or the present state of a workflow run."""

    occurrence: Occurrence


@frozen
class Settled:
    """The end of a delivery was written: the end of its occurrence, or a retry."""

    occurrence: Occurrence
    phase: Phase
    reason: Reason
    run: Run
    retry_at: Micros | None


@frozen
class LeaseLost:
    """Another node, an edit or a callback took the occurrence away; what this node does with it no longer counts."""

    occurrence_id: str
    run: Run | None = None
    """Its run, if it had ended."""


@frozen
class Abandoned:
    """A run outlived its timeout in a thread, which cannot be stopped."""

    occurrence: Occurrence
    threads: int
    """The number of such threads of the node."""


@frozen
class Pruned:
    """Deleted occurrences, events, audit entries and idempotency keys."""

    count: int
    events: int = 0
    notes: int = 0
    keys: int = 0


@frozen
class StoreFailed:
    """A step failed and will be retried."""

    step: str
    error: str
    retry_in: Micros


@frozen
class LeaderChanged:
    """This node became the leader, or is no longer."""

    node: str
    term: int
    leader: str | None
    """This node, or the new leader; None if it gave up leadership because it stops."""


@frozen
class NodeStarted:
    """A driver started."""

    node: str


@frozen
class NodeStopped:
    """A driver stopped and handed back this many occurrences."""

    node: str
    handed_back: int


DriverEvent = (
    Planned
    | Matched
    | Claimed
    | Started
    | RateExceeded
    | RanAway
    | Waiting
    | Ended
    | Progressed
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
    """Receives events after the fact, in the driver's thread. It should be quick and must not raise."""

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Receive events, in order."""
