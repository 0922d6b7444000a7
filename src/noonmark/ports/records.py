"""What a store tells and is told, as values: schedules with their tallies, leases, and how an admission went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import Owner, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """What a store can do, as data; nobody asks for its type."""

    is_durable: bool
    blocks: bool
    """Its verbs do their I/O in the thread that awaits them and never suspend; a loop calls them in another thread."""
    watch_interval: Micros | None = None
    """How often to ask `changed_by_others`; None when nobody else can write to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of a schedule's occurrences; a row that stands for many fires counts for all of them."""

    total: int = 0
    successful: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    admitted: int = 0
    """Occurrences of trigger and events that were started, for `max_runs`."""
    failures_in_row: int = 0
    last_started: Micros | None = None
    last_phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A schedule as the store has it, with what is read of it but not declared."""

    schedule: Schedule
    tally: Tally
    next_due: Micros | None
    """The due time of its earliest occurrence, pending or claimed, that neither waits nor is held by a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a schedule does at present, and what it did last."""

    delivering: tuple[str, ...] = ()
    """The ids of its occurrences that are dispatching or awaiting completion, in order."""
    last_run: Run | None = None
    """The last that has ended, of the occurrence with the newest nominal time, then the highest id, that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What depends on what, as far as one comes from some schedules."""

    version: int
    upstreams: Mapping[str, tuple[str, ...]]
    """The ids that each schedule depends on, by its own; whoever is missing here does not exist, or is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How a claim is shared among the owners of what is due."""

    each: int
    """At most so many rows of each owner."""
    after: Owner | None = None
    """The owners have their turns in the order of their numbers, from the one that follows this one on, and around."""
    besides: frozenset[Owner] = frozenset()
    """Owners who get nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A lease, as its holder knows it."""

    occurrence_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a node learns when it renews its leases: which it has lost, and which runs it is asked to stop, and why."""

    lost: frozenset[str]
    stop: Mapping[str, Reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The admission took effect; the occurrence is as it now stands."""

    occurrence: Occurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The fence, the revision or the phase was no longer the claim's; nothing was written.

    Release it all the same: if only the revision has moved, the row is still this node's and would wait for its lease.
    """

    occurrence_id: str
