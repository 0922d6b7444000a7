"""What a store tells and is told, as values: schedules with their tallies, leases, nodes, and how an admission went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND, from_micros

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase, SchedulePhase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import Owner, Schedule

LEASES_OF_SILENCE = 2
"""A node that was not heard of for so many of its leases is taken for dead; it beats three times meanwhile."""
MISSED: Micros = -1
"""Stands for the lease of a node that was lost, once that was told."""
NODE_LISTED: Micros = 24 * 3600 * SECOND
"""So long after it was last heard of, a node is listed that has left, or was told to be lost."""
NODE_KEPT: Micros = 30 * NODE_LISTED
"""So long, one is kept of which nobody was told yet: all others may have been silent too, and somebody will lead."""
KEY_LIFETIME: Micros = 24 * 3600 * SECOND
"""So long, a key under which something was asked for means that and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """What a store can do, as data; nobody asks for its type."""

    is_durable: bool
    blocks: bool
    """Its verbs do I/O, so an event loop calls them in other threads."""
    lines: int = 1
    """How many calls it serves at once; at most so many threads call a store that blocks."""
    watch_interval: Micros | None = None
    """How often to ask `changed_by_others`; None when nobody else can write to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
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
    """No earlier than it was due, though the start may be committed a little before."""
    last_phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as the store has it, with what is read of it but not declared."""

    schedule: Schedule
    counters: Counters
    next_due: Micros | None
    """The due time of its earliest occurrence, pending or claimed, that neither waits nor is held by a pause."""
    next_own: Micros | None
    """The same of those that its trigger or an event asked for: what somebody asked for does not move the next fire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """Which schedules a caller wants to see: those to which all of it applies; what is left out applies to all."""

    user: str | None = None
    phases: frozenset[SchedulePhase] = frozenset()
    """It is in one of them."""
    kinds: frozenset[str] = frozenset()
    """The type of its trigger is one of them; empty text stands for no trigger."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """It has all of them, with these values."""
    text: str | None = None
    """Part of its name, its description or its id; of letters, only those of ASCII may differ in case."""
    target: str | None = None
    """Its route."""
    name: str | None = None
    event_type: str | None = None
    """It listens for events of this type; one that is deleted listens for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """What a key was first used for, and when."""

    fingerprint: str
    created: Micros


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
class Lease:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a node says of itself, again and again, for as long as it lives."""

    node: str
    routes: tuple[str, ...] = ()
    capacity: int = 0
    load: int = 0
    version: str = ""
    started: Micros = 0
    lease: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node as it was last heard of."""

    name: str
    """The machine, the process and a few letters of chance; no two nodes ever have the same."""
    routes: tuple[str, ...]
    """What it serves."""
    capacity: int
    """So many occurrences it holds at once, at most."""
    load: int
    """So many it held when it was last heard of."""
    version: str
    """The version of Noonmark that it runs."""
    started: Micros
    seen: Micros
    left: Micros | None
    is_alive: bool
    """It has not stopped, and was heard of within the last two of its leases."""
    is_leader: bool
    """It does the housekeeping at present."""
    is_missed: bool = False
    """It was told that it is lost."""

    @property
    def is_lost(self) -> bool:
        """Whether it was not heard of for too long, has not said that it stops, and nobody was told of that yet."""
        return not self.is_alive and self.left is None and not self.is_missed

    @property
    def started_at(self) -> datetime:
        """When it began, in UTC."""
        return from_micros(self.started)

    @property
    def seen_at(self) -> datetime:
        """When it was last heard of, in UTC."""
        return from_micros(self.seen)

    @property
    def left_at(self) -> datetime | None:
        """When it stopped by itself, in UTC; None while it runs, and when it was killed."""
        return None if self.left is None else from_micros(self.left)


def is_known(beat: Heartbeat, *, seen: Micros, left: Micros | None, is_leader: bool, now: Micros) -> NodeRecord:
    """A node, told from its last beat. Its own lease says how long it may be silent, not that of whoever asks."""
    return NodeRecord(
        name=beat.node,
        routes=beat.routes,
        capacity=beat.capacity,
        load=beat.load,
        version=beat.version,
        started=beat.started,
        seen=seen,
        left=left,
        is_alive=left is None and now < seen + LEASES_OF_SILENCE * beat.lease,
        is_leader=is_leader,
        is_missed=beat.lease == MISSED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who does the housekeeping, and how long that is certain."""

    term: int
    """It rises with every change of leader, so no two leaders ever have the same."""
    leader: str
    until: Micros
    """When the lease ends, unless it is renewed; at exactly that moment it is anybody's."""

    def is_of(self, node: str, now: Micros) -> bool:
        """Whether that node leads now."""
        return self.leader == node and now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is to be done and nobody does yet."""

    schedules: int = 0
    """Of how many schedules something is due."""
    due: int = 0
    """Occurrences that could be claimed now."""
    waiting: int = 0
    """Occurrences that wait for their turn, for a place under a concurrency key, or for what they depend on."""
    log_bytes: int | None = field(default=None, compare=False)
    """The size of the store's write-ahead log, where it has one of its own."""
