"""A node: what it holds of the store's work, between claiming it and writing down how it ended."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core.clock_trust import PROOF, Reading, Trust, confirm, judge
from noonmark.core.fair_queue import FairQueue
from noonmark.core.reasons import Reason
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
    from noonmark.core.schedule import Owner
    from noonmark.core.settlement import Accepted, Delivered, Underway
    from noonmark.driver.store_executor import Executor
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.inspection import Position
    from noonmark.ports.records import Leadership
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment

    OnEnd = Callable[[Assignment | None], None]

logger = logging.getLogger("noonmark.driver")

KEPT_FOR_OTHERS = 10
"""One in so many places of its capacity."""
SILENT_LEASES = 3
"""After a leap others believe the time within a lease and a third, and then tell that they are alive."""
BRIEFLY = 100
"""Where there is no transaction to share, many at once gain nothing: their values would only live long enough for the
garbage collector to take them for ones that stay, and to walk over everything that is stored to find out."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A duty that fails over and over."""

    since: Micros
    """When it first failed; a moment of this machine."""
    times: int
    error: str


class Node:
    """Claims wait here for their due time, and deliveries for their end.

    Other threads touch `finished` and `underway` only.
    """

    def __init__(
        self, runtime: Runtime, executor: Executor | None = None, lease_executor: Executor | None = None
    ) -> None:
        """It holds nothing yet. Without an executor, the store is called inline.

        `lease_executor` renews leases: they must not run out while other calls wait for their turn.
        """
        self.runtime = runtime
        self.id = runtime.node
        self.store = runtime.store
        self.timing = runtime.timing
        self.batch = runtime.timing.batch if runtime.store.traits.is_durable else min(runtime.timing.batch, BRIEFLY)
        """So many are started, or settled, at once."""
        self.store_clock = StoreClock(runtime.clock)
        self.trust = Trust()
        """What it makes of the store's time."""
        self.must_rewind = False
        """The store's time fell back, or lies behind what the store remembers: what is planned ahead is looked at."""
        self.remembers_ahead: tuple[Micros, Micros] | None = None
        """The newest time that the store remembers, where that lies ahead, and the moment since when it is so."""
        self.failures: dict[str, Failure] = {}
        """The duties that have failed since they last succeeded, by name."""
        self.took_up: Micros = self.store_clock.monotonic()
        """When it last claimed anything, or was too full to; a moment of this machine."""
        self.executor: Executor = executor or InlineExecutor()
        self.lease_executor: Executor = lease_executor or self.executor
        self.held: dict[str, Claim] = {}
        self.deliveries: dict[str, Assignment] = {}
        self.holds_until: Micros | None = None
        """When what it held at the last renewal is anybody's, unless it is renewed again."""
        self.finished: deque[tuple[Assignment, Delivered | Accepted]] = deque()
        self.underway: dict[str, tuple[Assignment, Underway]] = {}
        """The last that deliveries that go on have put out, as far as that was not written yet."""
        self.on_end: dict[str, OnEnd] = {}
        """Whom to tell when an occurrence has ended."""
        self.served_last: Owner | None = None
        """Whose turn it was last, when owners shared a claim."""
        self.routes_seen: set[str] = set()
        """Routes of schedules from trusted sources that this node has looked at, whether it serves them or not."""
        self.started: Micros | None = None
        """When it first told that it is alive, by the store's time."""
        self.inspected: Position | None = None
        """Up to which row it has looked whether rows are sound."""
        self.leadership: Leadership | None = None
        """Who leads, as it was last told."""
        self._upcoming: FairQueue[Claim] = FairQueue()

    @property
    def now(self) -> Micros:
        """The store's time, as this node knows it."""
        return self.store_clock.now()

    async def time(self) -> Micros:
        """The same, for a duty that may be the first: nothing is begun by the clock of this machine."""
        if not self.store_clock.is_noted:
            await self.read_clock()
        return self.now

    async def read_clock(self, executor: Executor | None = None) -> Micros:
        """Learn the store's time. While it is in doubt, this node goes by the time that it last believed."""
        executor = executor or self.executor
        if self.trust == Trust():
            self.trust = Trust(remembered=await executor.call(self.store.newest_time))
        boot, asked = self.runtime.clock.boot(), self.store_clock.monotonic()
        time: Micros = await executor.call(self.store.clock)
        reading = Reading(boot, time, self.runtime.clock.boot())
        if self.trust.last is None:
            self.trust = replace(self.trust, older=await executor.call(self.store.newest_time, before=time - PROOF))
        before, self.trust = self.trust, judge(self.trust, reading, lease=self.timing.lease)
        logs.clock(before, self.trust)
        # Also after a doubt that came to nothing: verbs of the store that read its clock themselves may have written.
        has_returned = before.doubt is not None and self.trust.doubt is None and self.trust.unproven is before.unproven
        self.must_rewind = self.must_rewind or self.trust.has_fallen_back or has_returned
        if self.trust.doubt is None:
            self.store_clock.note(time, asked)
        return time

    async def confirm_time(self) -> None:
        """An operator says that the store's time is right."""
        boot, asked = self.runtime.clock.boot(), self.store_clock.monotonic()
        time: Micros = await self.executor.call(self.store.clock)
        before, self.trust = self.trust, confirm(self.trust, Reading(boot, time, self.runtime.clock.boot()))
        logs.clock(before, self.trust)
        self.store_clock.note(time, asked)

    async def trusts_time(self) -> bool:
        """Whether anything may be decided by the store's time, as it was last read."""
        if not self.store_clock.is_noted:
            await self.read_clock()
        return not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store's time leapt ahead, and nothing bears that out yet."""
        return self.trust.doubt is not None

    @property
    def hears_others(self) -> bool:
        """Whether others that are alive must have been heard of since the time last leapt and was taken for right."""
        leapt, last = self.trust.leapt, self.trust.last
        return leapt is None or last is None or last.asked - leapt.arrived >= SILENT_LEASES * self.timing.lease

    def note_failure(self, duty: str, error: str) -> None:
        """A duty has failed, perhaps again."""
        before = self.failures.get(duty)
        since = self.store_clock.monotonic() if before is None else before.since
        self.failures[duty] = Failure(since, 1 if before is None else before.times + 1, error)

    @property
    def load(self) -> int:
        """How many occurrences it holds."""
        return len(self.held) + len(self.deliveries)

    @property
    def leads(self) -> bool:
        """Whether it does the housekeeping, as far as it knows the store's time."""
        return self.leadership is not None and self.leadership.is_of(self.id, self.now)

    @property
    def room(self) -> int:
        """How many more it takes of whoever has them; negative when it has begun on what is kept for others."""
        return self.room_for_others - self.timing.capacity // KEPT_FOR_OTHERS

    @property
    def room_for_others(self) -> int:
        """How many more it takes of owners who hold next to nothing here."""
        return self.timing.capacity - self.load

    def holding(self, count: int) -> frozenset[Owner]:
        """The owners who hold at least so many here; this reads everything it holds."""
        held = Counter(claim.schedule.owner for claim in self.held.values())
        held.update(assignment.schedule.owner for assignment in self.deliveries.values())
        return frozenset(owner for owner, number in held.items() if number >= count)

    @property
    def next_decision(self) -> Micros | None:
        """When the first of its claims has to be decided."""
        return self._upcoming.next_time

    def hold(self, claim: Claim) -> None:
        """Keep a claim until its start can be committed. If this node had it already, it had lost it."""
        self.lose(claim.occurrence.id)
        self.held[claim.occurrence.id] = claim
        self.decide_at(claim, claim.occurrence.due - self.timing.early)

    def decide_at(self, claim: Claim, when: Micros) -> None:
        """Come back to a claim at that time."""
        self._upcoming.put(claim.schedule.owner, when, claim)

    def take_due(self, limit: int) -> list[Claim]:
        """The claims that have to be decided by now, earliest first; those that were lost meanwhile are dropped.

        When they are too many, their owners take turns.
        """
        return [claim for claim in self._upcoming.take(self.now, limit) if self._is_held(claim)]

    def drop(self, claim: Claim) -> None:
        """Forget a claim; its occurrence is somebody else's now, or nobody's."""
        if self._is_held(claim):
            del self.held[claim.occurrence.id]

    def lose(self, occurrence_id: str) -> bool:
        """Give up what another node has taken; a run is asked to stop, and its end will not count."""
        lost = self.held.pop(occurrence_id, None) is not None
        assignment = self.deliveries.pop(occurrence_id, None)
        if assignment is not None:
            assignment.stop(Reason.LEASE_LOST)
        if lost or assignment is not None:
            self.tell([LeaseLost(occurrence_id)])
        return lost or assignment is not None

    def holds(self) -> list[Lease]:
        """Every lease it has."""
        return [*_holds(claim.occurrence for claim in self.held.values()), *self.delivering()]

    def delivering(self) -> list[Lease]:
        """The leases of what is being delivered."""
        return _holds(assignment.occurrence for assignment in self.deliveries.values())

    @property
    def tells(self) -> bool:
        """Whether there is anybody to tell."""
        return self.runtime.sink is not None

    def tell(self, driver_events: list[DriverEvent]) -> None:
        """Let the sink know. One that raises breaks its promise, and nothing else."""
        if self.runtime.sink is not None and driver_events:
            try:
                self.runtime.sink.tell(driver_events)
            except Exception:
                logger.exception("the sink failed")

    def ended(self, occurrence: Occurrence, assignment: Assignment | None = None) -> None:
        """Tell whoever waits for an occurrence that it has ended."""
        if self.on_end and (tell := self.on_end.pop(occurrence.id, None)) is not None:
            tell(assignment)

    def _is_held(self, claim: Claim) -> bool:
        held = self.held.get(claim.occurrence.id)
        return held is not None and held.occurrence.fence == claim.occurrence.fence


def _holds(occurrences: Iterable[Occurrence]) -> list[Lease]:
    return [Lease(occurrence_id=one.id, fence=one.fence) for one in occurrences]
