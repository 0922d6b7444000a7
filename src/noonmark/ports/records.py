"""The values that go into a store and come out of it: stored schedules, leases, nodes, pages, answers."""

from __future__ import annotations

import string
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import fast_frozen, frozen, maker
from noonmark.core.instants import DAY, from_micros

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import MarkState, Phase, SchedulePhase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.outcomes import Horizon
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import Owner, Schedule


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def lowered(text: str) -> str:
    """The text in lower case: ASCII letters only, as in SQL."""
    return text.translate(_LOWER)


PageKey = tuple[int, str]
"""A position in a list: a time in microseconds, and an id."""
Position = tuple[str, tuple[Any, ...]]
"""A table, and the primary key of a row in it."""
LEASES_OF_SILENCE = 2
"""A node that is silent for this many of its leases counts as dead; it sends three heartbeats in that time."""
MISSED: Micros = -1
"""Stored as the lease of a lost node once it is reported."""
NODE_LISTED: Micros = DAY
"""How long a node that has left, or is reported lost, stays in lists after it was last seen."""
NODE_KEPT: Micros = 30 * NODE_LISTED
"""How long an unreported node is stored: all others may have been silent too, until one of them leads."""
PUSH_LIFETIME: Micros = DAY
"""How long an archive may take to arrive."""
KEY_LIFETIME: Micros = DAY
"""How long an idempotency key is remembered."""


@frozen(kw_only=True)
class StoreTraits:
    """What a store can do, as data, so that no code asks for its type."""

    is_durable: bool
    blocks: bool
    """Its verbs do I/O, so an event loop calls them in threads."""
    max_concurrency: int = 1
    """How many calls it serves at once, and so the number of threads that call a store that blocks."""
    watch_interval: Micros | None = None
    """How often to call `changed_by_others`; None if no other process can write."""
    is_in_process: bool = False
    """Its calls compute in this process, so more threads make them no faster; those of others wait for a server."""
    has_remote_clock: bool = True
    """Whether `clock` does I/O; otherwise an event loop reads it at once, as exactly as it can."""


@fast_frozen
@frozen(kw_only=True)
class Counters:
    """Outcomes of a schedule's occurrences; a row that stands for many fires counts for all of them."""

    total: int = 0
    successful: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    admitted: int = 0
    """Started occurrences of trigger and event origin, for `max_runs`."""
    failures_in_row: int = 0
    last_started: Micros | None = None
    """Never earlier than the due time, though the start may be committed a little before."""
    last_phase: Phase | None = None


@fast_frozen
@frozen(kw_only=True)
class StoredSchedule:
    """A schedule with what the store knows besides its declaration."""

    schedule: Schedule
    counters: Counters
    next_due: Micros | None
    """The earliest due time of its pending and claimed occurrences that neither wait nor are held by a pause."""
    next_own: Micros | None
    """The same without manual runs, which do not move the next fire."""


@frozen(kw_only=True)
class ScheduleFilter:
    """Which schedules a caller wants to see. All conditions must hold; an empty one always does."""

    user: str | None = None
    phases: frozenset[SchedulePhase] = frozenset()
    """Its phase is one of these."""
    kinds: frozenset[str] = frozenset()
    """The type of its trigger is one of these; empty text means no trigger."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """It has all of these, with these values."""
    text: str | None = None
    """Part of its name, description or id. The case of ASCII letters is ignored."""
    target: str | None = None
    """Its route."""
    name: str | None = None
    event_type: str | None = None
    """It subscribes to events of this type; a deleted schedule subscribes to none."""
    fingerprint: str | None = None
    """An agent made it, and this is the fingerprint of its lineage."""
    next_since: Micros | None = None
    """It is next due by its trigger at this instant or later, as far as that is stored."""
    next_until: Micros | None = None
    """It is next due by its trigger before this instant."""
    last_phases: frozenset[Phase] = frozenset()
    """Its last occurrence that ended did so in one of these."""

    @property
    def asks_next(self) -> bool:
        """Whether it matters when a schedule is next due."""
        return self.next_since is not None or self.next_until is not None

    def is_next(self, due: Micros | None) -> bool:
        """Whether a schedule that is next due then is wanted."""
        if due is None:
            return not self.asks_next
        return (self.next_since is None or due >= self.next_since) and (
            self.next_until is None or due < self.next_until
        )


@frozen(kw_only=True)
class OccurrenceFilter:
    """Which occurrences of all schedules a caller wants to see. All conditions must hold; an empty one always does.

    The time of an occurrence is its end, or its due time as long as it has not ended.
    """

    phases: frozenset[Phase] = frozenset()
    """Its phase is one of these."""
    reasons: frozenset[Reason] = frozenset()
    """Its reason is one of these."""
    uid: str | None = None
    """It belongs to this schedule."""
    user: str | None = None
    """Its schedule belongs to this user."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Its schedule has all of these, with these values."""
    since: Micros | None = None
    """Its time is not earlier."""
    until: Micros | None = None
    """Its time is not later."""


@frozen(kw_only=True)
class FoundOccurrences:
    """A page of occurrences, and where the next one begins."""

    occurrences: list[Occurrence]
    after: PageKey | None
    """The time and the id after which the search continues; None at its end."""


@frozen(kw_only=True)
class MarkScope:
    """Whose occurrences a timeline shows: those of some schedules, or of all of a tenant that match a filter."""

    tenant: str
    uids: tuple[str, ...] | None = None
    """These schedules; None for all of the tenant, deleted ones included."""
    wanted: ScheduleFilter | None = None
    """What all of them match; without effect where schedules are named."""


@frozen(kw_only=True)
class Span:
    """A stretch of time, as seen at an instant: its first microsecond, and the first one after it.

    An occurrence that was due before the stretch and has not ended at that instant belongs to it too, if the instant
    is in it.
    """

    since: Micros
    until: Micros
    now: Micros

    @property
    def is_open(self) -> bool:
        """Whether occurrences that have not ended belong to it."""
        return self.since <= self.now < self.until


@frozen(kw_only=True)
class MarkCount:
    """How many marks there are of one kind."""

    uid: str | None
    """The schedule, where schedules are named."""
    bucket: int
    """The number of the bucket, from the beginning of the span. Earlier due times are in the first."""
    state: MarkState
    is_late: bool | None
    """Whether they started late; None if they have not started."""
    count: int


@frozen(kw_only=True)
class TrendPoint:
    """What a schedule did in a stretch of time."""

    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many marks were due in it, by what `core.outcomes.counted_as` says."""
    duration_p50: Micros | None = None
    """Of the completed runs that started in it."""
    duration_p95: Micros | None = None
    cost: int = 0
    """Of the settled calls of models in it whose price is known, in nano-dollars."""
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@frozen(kw_only=True)
class Horizons:
    """How far the fires of schedules are stored."""

    horizons: list[Horizon]
    complete_until: Micros | None = None
    """Schedules that were not read have no fire up to here that is not stored; None if all were read."""


@frozen(kw_only=True)
class KeyRecord:
    """What an idempotency key was first used for, and when."""

    fingerprint: str
    created: Micros


@frozen(kw_only=True)
class Activity:
    """What a schedule is doing, and its last run."""

    delivering: tuple[str, ...] = ()
    """The ids of its occurrences that are dispatching, awaiting completion or suspended, in order."""
    last_run: Run | None = None
    """The last ended run of the newest occurrence that has one, by nominal time, then by id."""


class BackfillChange(StrEnum):
    """What may be done with a backfill."""

    HOLD = "hold"
    RELEASE = "release"
    CANCEL = "cancel"


@frozen(kw_only=True)
class BackfillProgress:
    """How far a backfill is, as far as its occurrences are kept."""

    backfill_id: str
    requested: Micros
    first: Micros
    """The first nominal time that it runs again."""
    last: Micros
    phases: Mapping[Phase, int] = field(hash=False)
    """How many of its occurrences are in each phase."""
    held: int = 0
    """How many of them are held, because it is paused."""


@frozen(kw_only=True)
class Graph:
    """The dependencies that are reachable from some schedules."""

    version: int
    upstreams: Mapping[str, tuple[str, ...]]
    """The upstream ids of each schedule, by its id. A schedule that is missing does not exist, or is deleted."""


@frozen(kw_only=True)
class Shares:
    """How a claim is divided among owners."""

    each: int
    """The maximum number of rows of each owner."""
    after: Owner | None = None
    """Owners take turns in the order of their numbers, beginning after this one, and around."""
    besides: frozenset[Owner] = frozenset()
    """Owners that get nothing."""


@frozen(kw_only=True)
class Lease:
    """A lease as its holder knows it."""

    occurrence_id: str
    fence: int


@frozen(kw_only=True)
class Renewal:
    """What a node learns when it renews its leases: those it lost, and the runs it is asked to stop, with reasons."""

    lost: frozenset[str]
    stop: Mapping[str, Reason]


@fast_frozen
@frozen(kw_only=True)
class Admitted:
    """The admission took effect; this is the occurrence now."""

    occurrence: Occurrence
    alert: RateAlert | None = None
    """Its start is the first that is more than the expected rate allows."""


make_admitted = maker(Admitted)


@frozen(kw_only=True)
class LeaseLost:
    """The fence, revision or phase no longer matches the claim; nothing was written.

    It must still be released: if only the revision has changed, this node holds the lease.
    """

    occurrence_id: str


@frozen(kw_only=True)
class Heartbeat:
    """What a node reports about itself at intervals."""

    node: str
    routes: tuple[str, ...] = ()
    capacity: int = 0
    load: int = 0
    version: str = ""
    zone_data: str = ""
    started: Micros = 0
    lease: Micros = 0
    process_lock: str = ""
    """The boot id of its machine, and the device and the inode of the file that its process has locked; empty if it has
    locked none."""


@frozen(kw_only=True)
class NodeRecord:
    """A node, as of its last heartbeat."""

    name: str
    """Host name, process id and a few random letters, so that no two nodes share a name."""
    routes: tuple[str, ...]
    """The routes it serves."""
    capacity: int
    """The maximum number of occurrences it holds at once."""
    load: int
    """The number it held at its last heartbeat."""
    version: str
    """The version of Noonmark it runs."""
    started: Micros
    seen: Micros
    left: Micros | None
    is_alive: bool
    """It has not stopped, its process is not known to be gone, and its last heartbeat is at most two leases ago."""
    is_leader: bool
    """It is the leader, which does the maintenance."""
    is_missed: bool = False
    """It is reported lost."""
    zone_data: str = ""
    """The version of its time zone data, such as 2026a; empty if that is unknown."""
    gone: Micros | None = None
    """When a node on its machine found that its process had ended without stopping; None if none did."""

    @property
    def is_lost(self) -> bool:
        """Whether it has been silent for too long without stopping, and is not reported yet."""
        return not self.is_alive and self.left is None and not self.is_missed

    @property
    def started_at(self) -> datetime:
        """When it started, in UTC."""
        return from_micros(self.started)

    @property
    def seen_at(self) -> datetime:
        """Its last heartbeat, in UTC."""
        return from_micros(self.seen)

    @property
    def left_at(self) -> datetime | None:
        """When it stopped, in UTC; None while it runs, and if it was killed."""
        return None if self.left is None else from_micros(self.left)

    @property
    def gone_at(self) -> datetime | None:
        """When its process was found to have ended without stopping, in UTC; None if it was not."""
        return None if self.gone is None else from_micros(self.gone)


def node_record(
    beat: Heartbeat,
    *,
    seen: Micros,
    left: Micros | None,
    gone: Micros | None = None,
    is_leader: bool,
    now: Micros,
) -> NodeRecord:
    """A node from its last heartbeat. Its own lease, not the reader's, says how long it may be silent."""
    return NodeRecord(
        name=beat.node,
        routes=beat.routes,
        capacity=beat.capacity,
        load=beat.load,
        version=beat.version,
        started=beat.started,
        seen=seen,
        left=left,
        is_alive=left is None and gone is None and now < seen + LEASES_OF_SILENCE * beat.lease,
        is_leader=is_leader,
        is_missed=beat.lease == MISSED,
        zone_data=beat.zone_data,
        gone=gone,
    )


@frozen(kw_only=True)
class Leadership:
    """Who leads, and until when that is certain."""

    term: int
    """Rises with every change of leader, so that no two leaders share a term."""
    leader: str
    until: Micros
    """When the lease ends unless it is renewed; at exactly that moment any node may take it."""

    def is_of(self, node: str, now: Micros) -> bool:
        """Whether that node leads now."""
        return self.leader == node and now < self.until


@frozen(kw_only=True)
class Damaged:
    """A damaged cell."""

    table: str
    key: str
    """The primary key of its row."""
    column: str
    problem: str
    schedule_id: str | None = None
    """The schedule that it is about, where that can be read."""


@frozen(kw_only=True)
class Inspected:
    """A page of inspected rows."""

    rows: int = 0
    damaged: tuple[Damaged, ...] = ()
    after: Position | None = None
    """The last of them; None if there are no more."""


@frozen(kw_only=True)
class Condition:
    """The condition of the whole database."""

    kind: str
    version: str = ""
    """The version of the database software."""
    schema: str = ""
    expected_schema: str = ""
    journal_bytes: int | None = None
    """Bytes in the write-ahead log that are not in the database file yet, if there is such a log."""
    problems: tuple[str, ...] = ()
    """What the database's own check finds."""
    is_complete: bool = True
    """Whether that check got to the end; on a large database it is cut off."""
    promise: str = ""
    """What a server keeps in a crash, if that depends on its settings."""
    is_lossy: bool = False
    """Whether a crash may lose more than about a second."""


@frozen(kw_only=True)
class Backlog:
    """Work that no node has claimed."""

    schedules: int = 0
    """Schedules with something due."""
    due: int = 0
    """Claimable occurrences."""
    waiting: int = 0
    """Occurrences that wait for the slot, for a place under a concurrency key, or for upstreams."""
    log_bytes: int | None = field(default=None, compare=False)
    """The size of the write-ahead log, if the store has one."""


@frozen(kw_only=True)
class OccurrenceGroup:
    """Some occurrences, and how many there are."""

    occurrences: list[Occurrence] = field(default_factory=list)
    """The first of them."""
    count: int = 0
    is_complete: bool = True
    """Whether all were counted; the count stops at a limit."""


@frozen(kw_only=True)
class Workload:
    """The occurrences that have not ended, by what they do."""

    running: OccurrenceGroup = field(default_factory=OccurrenceGroup)
    """Dispatching or awaiting completion, earliest start first."""
    due: OccurrenceGroup = field(default_factory=OccurrenceGroup)
    """Claimable now, earliest first."""
    waiting: OccurrenceGroup = field(default_factory=OccurrenceGroup)
    """In line for a slot or a concurrency key, or waiting for upstreams, earliest due time first."""
    upcoming: OccurrenceGroup = field(default_factory=OccurrenceGroup)
    """Claimable later, earliest first."""
    overdue: OccurrenceGroup = field(default_factory=OccurrenceGroup)
    """Running with a deadline that has passed, earliest deadline first."""
