"""The test bench of a store: a clock that is set by hand, and one call for each step of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Claim, Start
from noonmark.core.frozen import frozen
from noonmark.core.ids import event, manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.settlement import Settlement
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted, Lease
from noonmark.testing import factories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.core.admission import Admission, Busy
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import LeaseLost, Shares, StoredSchedule
    from noonmark.ports.store import Store

LEASE: Micros = 15 * SECOND
LOOKAHEAD: Micros = 2 * SECOND
ROUTE = "function:work"


class HandClock:
    """The time that a test says it is."""

    def __init__(self, now: Micros = factories.NOW) -> None:
        """It stands still until it is moved."""
        self.now = now

    def __call__(self) -> Micros:
        """The time of the store."""
        return self.now


@frozen
class Bench:
    """A store, its clock, and shorthands."""

    store: Store
    clock: HandClock

    @property
    def now(self) -> Micros:
        """What the store takes for now."""
        return self.clock.now

    def advance(self, micros: Micros) -> None:
        """Let time pass."""
        self.clock.now += micros

    def create(self, uid: str = "uid-1", **changes: Any) -> Schedule:
        """Create a schedule with its first plan."""
        schedule = factories.schedule(uid, **{"created": self.now} | changes)
        assert self.store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
        return schedule

    def create_quiet(self, uid: str = "uid-1", **changes: Any) -> Schedule:
        """Create a schedule that has no occurrences but those that are added."""
        return self.create(uid, trigger=EventTrigger("seen"), **changes)

    def add(self, of: Schedule, key: str, after: Micros = 0, **changes: Any) -> Occurrence:
        """Add a manual occurrence, due so much after the beginning."""
        occurrence = factories.occurrence(of, manual(key), nominal=factories.NOW + after, **changes)
        assert self.store.add([occurrence]) == [True]
        return occurrence

    def add_event(self, of: Schedule, key: str, after: Micros = 0, **changes: Any) -> Occurrence:
        """Add an occurrence that an event asked for."""
        occurrence = factories.occurrence(of, event(key), nominal=factories.NOW + after, **changes)
        assert self.store.add([occurrence]) == [True]
        return occurrence

    def snapshot(self, of: Schedule) -> Snapshot:
        """The schedule as planning reads it."""
        snapshot = self.store.snapshot(of.uid)
        assert snapshot is not None
        return snapshot

    def stored(self, of: Schedule) -> StoredSchedule:
        """The schedule as callers read it."""
        stored = self.store.find(of.owner.tenant, of.schedule_id)
        assert stored is not None
        return stored

    def commit(self, plan: Plan) -> bool:
        """Write one plan."""
        [done] = self.store.commit_plans([plan])
        return done

    def row(self, occurrence: Occurrence | str) -> Occurrence:
        """An occurrence as it stands."""
        row = self.store.occurrence(occurrence if isinstance(occurrence, str) else occurrence.id)
        assert row is not None
        return row

    def claim(
        self,
        node: str = "node-a",
        *,
        routes: Collection[str] = (ROUTE,),
        until: Micros | None = None,
        limit: int = 100,
        shares: Shares | None = None,
    ) -> list[Claim]:
        """Claim what can be claimed now."""
        until = self.now if until is None else until
        return self.store.claim(node, routes, now=self.now, until=until, limit=limit, lease=LEASE, shares=shares)

    def claim_one(self, node: str = "node-a") -> Claim:
        """Claim the one occurrence that can be claimed now."""
        [claim] = self.claim(node)
        return claim

    def admit(self, admission: Admission) -> Admitted | LeaseLost | Busy:
        """Carry out one admission."""
        [answer] = self.store.admit([admission], now=self.now, lease=LEASE)
        return answer

    def decide(self, admission: Admission) -> Occurrence:
        """Carry out an admission that must take effect; the answer is what is stored then."""
        answer = self.admit(admission)
        assert isinstance(answer, Admitted), answer
        assert self.row(answer.occurrence) == answer.occurrence
        return answer.occurrence

    def start(self, claim: Claim) -> Occurrence:
        """Start what was claimed."""
        return self.decide(start(claim))

    def run(self, of: Schedule, key: str, after: Micros = 0) -> Occurrence:
        """Add, claim and start one occurrence; nothing else may be due."""
        self.add(of, key, after)
        return self.start(self.claim_one())

    def settle(self, occurrence: Occurrence, **changes: Any) -> bool:
        """Settle what was started; without more, it succeeded."""
        [done] = self.store.settle([self.settlement(occurrence, **changes)])
        return done

    def settlement(self, occurrence: Occurrence, **changes: Any) -> Settlement:
        """The end of a delivery that took no time."""
        run = Run(
            id=f"{occurrence.id}-{occurrence.fence}",
            occurrence_id=occurrence.id,
            attempt=occurrence.attempt,
            node="node-a",
            started=self.now,
            ended=self.now,
            outcome=Outcome.COMPLETED,
        )
        success = Settlement(
            occurrence=occurrence,
            tenant="acme",
            phase=Phase.COMPLETED,
            reason=Reason.SUCCEEDED,
            run=run,
            attempt=occurrence.attempt,
        )
        return replace(success, **changes)

    def fail(self, occurrence: Occurrence, pause_after: int | None = None) -> bool:
        """Settle what was started: it failed for good."""
        return self.settle(occurrence, phase=Phase.FAILED, reason=Reason.FAILED, pause_after=pause_after)

    def retry(self, occurrence: Occurrence, retry_at: Micros) -> bool:
        """Settle what was started: it failed, and is tried again."""
        return self.settle(occurrence, phase=Phase.PENDING, reason=Reason.RETRY_SCHEDULED, retry_at=retry_at)


def start(claim: Claim) -> Start:
    """Start it under what its schedule declares, as one that must not overlap."""
    declared = claim.schedule.declaration
    has_begun = claim.occurrence.has_begun
    return Start(
        claim=claim,
        takes_slot=not claim.occurrence.holds_slot,
        concurrency=declared.concurrency,
        max_runs=None if has_begun else declared.max_runs,
    )


def hold(held: Claim | Occurrence) -> Lease:
    """The lease of a claim, or of what was started."""
    occurrence = held.occurrence if isinstance(held, Claim) else held
    return Lease(occurrence_id=occurrence.id, fence=occurrence.fence)


CASES: list[Callable[[Bench], None]] = []


def case(test: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """One thing that every store does."""
    CASES.append(test)
    return test


def try_case(test: Callable[[Bench], None], make_store: Callable[[Callable[[], Micros]], Store]) -> None:
    """Try one case on a new and empty store, which is made with the clock it is to use."""
    clock = HandClock()
    store = make_store(clock)
    store.open()
    try:
        test(Bench(store, clock))
    finally:
        store.close()
