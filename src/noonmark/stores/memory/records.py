"""What the memory store keeps of an occurrence, of a schedule and of events, besides the values themselves."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER, OriginKind, kind_of
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.plans import Gap, Snapshot, projection
from noonmark.core.run import in_place_of
from noonmark.ports.records import Counters, StoredSchedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noonmark.core.chain import Chain
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.due_index import DueIndex

Key = tuple[str, str]
"""A tenant, and a concurrency key in it."""
Turn = tuple[int, int, str]
"""Where a waiting occurrence stands in the line: due time, nominal time, id."""

OWN = frozenset({OriginKind.TRIGGER, OriginKind.EVENT})
"""What a schedule does by itself; `max_runs` counts it and a pause holds it."""
TALLIED = tuple(one.name for one in fields(Counters))


@dataclass(slots=True, eq=False)
class Row:
    """An occurrence, and what only the store knows of it."""

    occurrence: Occurrence
    state: ScheduleState
    """The schedule it belongs to."""
    ready: Micros | None
    """From when it can be claimed while it is pending; None while it waits for something, or for the planner."""
    lease_end: Micros | None = None
    key: Key | None = None
    """The concurrency key under which it holds a place."""
    wants: tuple[Key, int] | None = None
    """The concurrency key it waits for, and how many places that has."""
    awaits_after: Micros | None = None
    """While it waits for its upstreams: their times after this one may be what it waits for; None is for any."""
    runs: tuple[Run, ...] = ()
    filed: DueIndex[str] | None = None

    @property
    def is_projection(self) -> bool:
        """Whether a plan may still move or remove it."""
        return projection(self.occurrence) is not None

    @property
    def is_own(self) -> bool:
        """Whether the schedule asked for it by itself."""
        return kind_of(self.occurrence.origin) in OWN

    @property
    def turn(self) -> Turn:
        """Its place in a line."""
        return (self.occurrence.due, self.occurrence.nominal, self.occurrence.id)

    def keep_run(self, run: Run) -> None:
        """One more of its runs, or what was open of it."""
        before = next((one for one in self.runs if one.id == run.id), None)
        self.runs = (*[one for one in self.runs if one is not before], in_place_of(before, run))


@dataclass(slots=True, eq=False)
class ScheduleState:
    """A schedule with its occurrences."""

    schedule: Schedule
    watermark: Micros
    plan_at: Micros | None = None
    exhausted: bool = False
    fault: str | None = None
    """Why it is not planned any more, if that fails."""
    newest: Micros | None = None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    total: int = 0
    successful: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    admitted: int = 0
    failures_in_row: int = 0
    last_started: Micros | None = None
    last_phase: Phase | None = None
    fences: int = 0
    """The fence of a new row: higher than that of any row that was removed, since it may be the same one again."""
    holder: Row | None = None
    """Who holds the slot."""
    queue: list[Turn] = field(default_factory=list)
    """Who waits for the slot, first in line first."""
    news: int = 0
    """How often anything about the schedules it depends on has changed."""
    ended_at: Micros | None = None
    """When an occurrence of it last ended, for those who depend on it."""
    completed_at: Micros | None = None
    leads: Chain | None = None
    """The trail of what its last end sets off, where anything follows it."""
    live: dict[str, Row] = field(default_factory=dict)
    ended: dict[str, Row] = field(default_factory=dict)
    owner: int = field(init=False)
    """The number of whoever owns it."""

    def __post_init__(self) -> None:
        """No change of a schedule changes its owner."""
        self.owner = self.schedule.owner.number

    def holds_back(self, row: Row) -> bool:
        """Whether a pause keeps it from being claimed."""
        return self.schedule.phase is SchedulePhase.PAUSED and row.is_own

    @property
    def follows(self) -> bool:
        """Whether it fires when its upstreams have ended, without a trigger of its own."""
        return self.schedule.declaration.trigger is None

    def kept(self, now: Micros) -> StoredSchedule:
        """The schedule as callers read it."""
        rows = [
            row
            for row in self.live.values()
            if row.occurrence.phase is Phase.CLAIMED
            or (
                row.occurrence.phase is Phase.PENDING
                and row.ready is not None
                and (row.ready <= now or row.occurrence.waiting_for is None)
                and not self.holds_back(row)
            )
        ]
        return StoredSchedule(
            schedule=self.schedule,
            counters=Counters(**{name: getattr(self, name) for name in TALLIED}),
            next_due=min((row.occurrence.due for row in rows), default=None),
            next_own=min((row.occurrence.due for row in rows if row.is_own), default=None),
        )

    def snapshot(self, *, unserved: bool, upstreams: Standings | None, since: Micros | None = None) -> Snapshot:
        """The schedule as planning reads it, or with what has an outcome after a time, as rewinding does."""
        beyond = self._beyond(since)
        found = [one for row in self.live.values() if (one := projection(row.occurrence)) is not None]
        return Snapshot(
            schedule=self.schedule,
            watermark=self.watermark,
            projections=tuple(sorted(found, key=lambda one: one.nominal)),
            admitted=self.newest,
            runs=self.admitted,
            beyond=tuple(sorted((one.nominal, one.missed_last or one.nominal) for one in beyond)),
            gaps=() if since is None else tuple(_gaps(beyond)),
            exhausted=self.exhausted,
            unserved=unserved,
            upstreams=upstreams,
        )

    def _beyond(self, since: Micros | None) -> list[Occurrence]:
        """What was admitted or has ended after the watermark, or after that time; there is hardly ever anything."""
        after = self.watermark if since is None else min(since, self.watermark)
        if self.newest is None or self.newest <= after:
            return []
        rows = [row for row in (*self.live.values(), *self.ended.values()) if not row.is_projection]
        named = [row.occurrence for row in rows if row.occurrence.origin == TRIGGER]
        return [one for one in named if one.phase is not Phase.SUPERSEDED and (one.missed_last or one.nominal) > after]


def _gaps(rows: Iterable[Occurrence]) -> Iterator[Gap]:
    for one in rows:
        if one.missed_last is not None:
            yield Gap(id=one.id, first=one.nominal, last=one.missed_last, count=one.missed_count)


@dataclass(slots=True, eq=False)
class EventStream:
    """The events of a tenant, oldest first."""

    newest: Micros
    """The moment of the newest, also when that is forgotten."""
    matched_until: Micros
    cursor: str = ""
    """How far the listeners of the first that waits have been asked: all uids up to this one."""
    waiting: deque[Event] = field(default_factory=deque)
    matched: deque[Event] = field(default_factory=deque)
    ids: set[str | None] = field(default_factory=set)
