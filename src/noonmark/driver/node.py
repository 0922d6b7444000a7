"""A node: the occurrences it holds, from their claim to their settlement."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.clock_trust import PROOF, Reading, Trust, confirm, judge
from noonmark.core.fair_queue import FairQueue
from noonmark.core.frozen import frozen
from noonmark.core.reasons import Reason
from noonmark.core.targets.ping import Moment, PingTarget
from noonmark.driver import logs
from noonmark.driver.store_clock import StoreClock
from noonmark.driver.store_executor import InlineExecutor
from noonmark.ports.events import LeaseLost
from noonmark.ports.records import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Owner, Schedule
    from noonmark.core.settlement import Accepted, Delivered, RunInProgress, Suspended
    from noonmark.driver.store_executor import Executor
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.records import Leadership, Position
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment

    OnEnd = Callable[[Assignment | None], None]

logger = logging.getLogger("noonmark.driver")

RESERVED_SHARE = 10
"""One in this many places of its capacity is reserved for owners that hold next to nothing here."""
SILENT_LEASES = 3
"""After a leap of the clock, other nodes trust the time within a lease and a third, and then send heartbeats."""
INLINE_BATCH = 100
"""The batch for a store without transactions, where large batches gain nothing: their values would live long enough to
be promoted by the garbage collector, which then walks over everything that is stored."""


@frozen
class Failure:
    """A step that fails repeatedly."""

    since: Micros
    """When it first failed, by the monotonic clock."""
    times: int
    error: str


class Node:
    """Holds claims until they are due, and deliveries until they end.

    Other threads touch only `finished` and `underway`.
    """

    def __init__(
        self, runtime: Runtime, executor: Executor | None = None, lease_executor: Executor | None = None
    ) -> None:
        """Without an executor, the store is called inline.

        `lease_executor` renews leases, which must not expire while other calls wait for their turn.
        """
        self.runtime = runtime
        self.id = runtime.node
        self.store = runtime.store
        self.timing = runtime.timing
        self.batch = (
            runtime.timing.batch if runtime.store.traits.is_durable else min(runtime.timing.batch, INLINE_BATCH)
        )
        """How many occurrences are started, or settled, at once."""
        self.store_clock = StoreClock(runtime.clock)
        self.trust = Trust()
        """Whether the store's time is trusted."""
        self.warned: dict[str, Micros] = {}
        """When it was last logged that no node serves the target of a schedule, by uid."""
        self.warned_of_skips: dict[str, Micros] = {}
        """When it was last warned that an earlier occurrence of a schedule is in the way, by uid."""
        self.must_rewind = False
        """The store's clock fell back, or is behind a stored time: schedules that are planned ahead need a check."""
        self.remembers_ahead: tuple[Micros, Micros] | None = None
        """The newest stored time, if it is ahead of the clock, and since when (monotonic) it is."""
        self.failures: dict[str, Failure] = {}
        """The steps that have failed since their last success, by name."""
        self.last_claimed: Micros = self.store_clock.monotonic()
        """When it last claimed something, or was too full to, by the monotonic clock."""
        self.executor: Executor = executor or InlineExecutor()
        self.lease_executor: Executor = lease_executor or self.executor
        self.held: dict[str, Claim] = {}
        self.deliveries: dict[str, Assignment] = {}
        self.holds_until: Micros | None = None
        """When the leases of the last renewal expire."""
        self.finished: deque[tuple[Assignment, Delivered | Accepted | Suspended]] = deque()
        self.underway: dict[str, tuple[Assignment, RunInProgress]] = {}
        """The newest output of runs in progress that is not written yet."""
        self.on_end: dict[str, OnEnd] = {}
        """Callbacks for the end of occurrences."""
        self.served_last: Owner | None = None
        """The last owner that had a turn in a shared claim."""
        self.routes_seen: set[str] = set()
        """Routes of schedules from trusted sources that this node has seen, whether it serves them or not."""
        self.routes_reported: tuple[str, ...] | None = None
        """The routes of its last heartbeat."""
        self.started: Micros | None = None
        """Its first heartbeat, by the store's time."""
        self.inspected: Position | None = None
        """The last row of the inspection so far."""
        self.leadership: Leadership | None = None
        """The leader, as last read."""
        self.process_lock: str | None = None
        """The lock that this process holds for it, as heartbeats name it; empty without one, None until it tried."""
        self.gone_before: frozenset[str] = frozenset()
        """The nodes of this machine that were found to be gone when it last looked."""
        self._upcoming: FairQueue[Claim] = FairQueue()

    @property
    def now(self) -> Micros:
        """The store's time as this node knows it."""
        return self.store_clock.now()

    async def time(self) -> Micros:
        """The same, for a step that may be the first: no decision relies on the local clock."""
        if not self.store_clock.is_noted:
            await self.read_clock()
        return self.now

    async def read_clock(self, executor: Executor | None = None) -> Micros:
        """Read the store's clock. While it is in doubt, this node uses the last trusted time."""
        executor = executor or self.executor
        if self.trust == Trust():
            self.trust = Trust(remembered=await executor.call(self.store.newest_time))
        boot, asked_at = self.runtime.clock.boot(), self.store_clock.monotonic()
        # The later the answer comes, the further the estimate is behind, and every start with it.
        is_remote = self.store.traits.has_remote_clock
        time: Micros = await executor.call(self.store.clock) if is_remote else self.store.clock()
        reading = Reading(boot, time, self.runtime.clock.boot())
        if self.trust.last is None:
            self.trust = replace(self.trust, older=await executor.call(self.store.newest_time, before=time - PROOF))
        before, self.trust = self.trust, judge(self.trust, reading, lease=self.timing.lease)
        logs.clock(before, self.trust)
        # Also after an unfounded doubt: verbs that read the store's clock themselves may have written a false time.
        has_returned = before.doubt is not None and self.trust.doubt is None and self.trust.unproven is before.unproven
        self.must_rewind = self.must_rewind or self.trust.has_fallen_back or has_returned
        if self.trust.doubt is None:
            self.store_clock.note(time, asked_at)
        return time

    async def confirm_time(self) -> None:
        """An operator confirms the store's time."""
        boot, asked_at = self.runtime.clock.boot(), self.store_clock.monotonic()
        time: Micros = await self.executor.call(self.store.clock)
        before, self.trust = self.trust, confirm(self.trust, Reading(boot, time, self.runtime.clock.boot()))
        logs.clock(before, self.trust)
        self.store_clock.note(time, asked_at)

    async def trusts_time(self) -> bool:
        """Whether decisions may rely on the store's time as last read."""
        if not self.store_clock.is_noted:
            await self.read_clock()
        return not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store's time leapt ahead and nothing confirms it yet."""
        return self.trust.doubt is not None

    @property
    def all_nodes_reported(self) -> bool:
        """Whether every live node must have sent a heartbeat since the last trusted leap of the clock."""
        leapt, last = self.trust.leapt, self.trust.last
        return leapt is None or last is None or last.asked - leapt.arrived >= SILENT_LEASES * self.timing.lease

    def note_failure(self, step: str, error: str) -> None:
        """Record a failed step."""
        before = self.failures.get(step)
        since = self.store_clock.monotonic() if before is None else before.since
        self.failures[step] = Failure(since, 1 if before is None else before.times + 1, error)

    @property
    def load(self) -> int:
        """The number of occurrences it holds."""
        return len(self.held) + len(self.deliveries)

    @property
    def leads(self) -> bool:
        """Whether it is the leader, by its knowledge of the store's time."""
        return self.leadership is not None and self.leadership.is_of(self.id, self.now)

    @property
    def room(self) -> int:
        """How many more occurrences of any owner it takes; negative once it uses the reserved places."""
        return self.room_for_others - self.timing.capacity // RESERVED_SHARE

    @property
    def room_for_others(self) -> int:
        """How many more it takes of owners that hold next to nothing here."""
        return self.timing.capacity - self.load

    def holding(self, count: int) -> frozenset[Owner]:
        """The owners that hold at least `count` here. This reads everything the node holds."""
        held = Counter(claim.schedule.owner for claim in self.held.values())
        held.update(assignment.schedule.owner for assignment in self.deliveries.values())
        return frozenset(owner for owner, number in held.items() if number >= count)

    @property
    def next_decision(self) -> Micros | None:
        """When its first claim has to be decided."""
        return self._upcoming.next_time

    def hold(self, claim: Claim) -> None:
        """Hold a claim until its start can be committed. If this node held it before, it had lost it."""
        self.lose(claim.occurrence.id)
        self.held[claim.occurrence.id] = claim
        self.decide_at(claim, claim.occurrence.due - self.timing.early)

    def decide_at(self, claim: Claim, when: Micros) -> None:
        """Decide a claim at that time."""
        self._upcoming.put(claim.schedule.owner, when, claim)

    def take_due(self, limit: int) -> list[Claim]:
        """The claims to decide now, earliest first, except those lost meanwhile. Over the limit, owners take turns."""
        held = self.held.get
        taken = self._upcoming.take(self.now, limit)
        return [claim for claim in taken if held(claim.occurrence.id) is claim or self._is_held(claim)]

    def drop(self, claim: Claim) -> None:
        """Forget a claim that this node no longer holds."""
        if self.held.get(claim.occurrence.id) is claim or self._is_held(claim):
            del self.held[claim.occurrence.id]

    def lose(self, occurrence_id: str) -> bool:
        """Give up an occurrence that another node took; its run is asked to stop, and its end does not count."""
        lost = self.held.pop(occurrence_id, None) is not None
        assignment = self.deliveries.pop(occurrence_id, None)
        if assignment is not None:
            assignment.stop(Reason.LEASE_LOST)
        if lost or assignment is not None:
            self.report([LeaseLost(occurrence_id)])
        return lost or assignment is not None

    def holds(self) -> list[Lease]:
        """All leases it holds."""
        return [*_holds(claim.occurrence for claim in self.held.values()), *self.delivering()]

    def delivering(self) -> list[Lease]:
        """The leases of deliveries."""
        return _holds(assignment.occurrence for assignment in self.deliveries.values())

    @property
    def has_sink(self) -> bool:
        """Whether there is an event sink."""
        return self.runtime.sink is not None

    def report(self, driver_events: list[DriverEvent]) -> None:
        """Send events to the sink. An exception of the sink is logged and stops nothing."""
        if self.runtime.sink is not None and driver_events:
            try:
                self.runtime.sink.report(driver_events)
            except Exception:
                logger.exception("event sink failed")

    def ping(self, schedule: Schedule, occurrence: Occurrence, moment: Moment | None) -> None:
        """Call the URL that a schedule names for a moment, if any. It is not the start of a job that pings itself."""
        if schedule.declaration.ping_urls is None or moment is None or self.runtime.pinger is None:
            return
        if moment is not Moment.START or not isinstance(schedule.declaration.target, PingTarget):
            self.runtime.pinger.ping(schedule, occurrence, moment)

    def ended(self, occurrence: Occurrence, assignment: Assignment | None = None) -> None:
        """Call the callback for the end of an occurrence, if any."""
        if self.on_end and (tell := self.on_end.pop(occurrence.id, None)) is not None:
            tell(assignment)

    def _is_held(self, claim: Claim) -> bool:
        current = self.held.get(claim.occurrence.id)
        return current is not None and current.occurrence.fence == claim.occurrence.fence


def _holds(occurrences: Iterable[Occurrence]) -> list[Lease]:
    return [Lease(occurrence_id=one.id, fence=one.fence) for one in occurrences]
