"""The memory store: each verb of the port, in one step."""

from __future__ import annotations

from heapq import merge
from threading import RLock
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.ports.records import Condition, Inspected, Renewal, StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.memory import (
    admission,
    completion,
    dependencies,
    due_index,
    history,
    leases,
    plan_writes,
    slots,
    system_events,
)
from noonmark.stores.memory import events as emitted
from noonmark.stores.memory.atomic import atomic
from noonmark.stores.memory.clock_repair import ClockRepairVerbs
from noonmark.stores.memory.reads import ReadVerbs
from noonmark.stores.memory.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import ExitStack

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.reactions import Reaction, UnmatchedEvent
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.ports.records import (
        Admitted,
        Backlog,
        Graph,
        Heartbeat,
        Leadership,
        Lease,
        LeaseLost,
        NodeRecord,
        Position,
        Shares,
    )
    from noonmark.stores.memory.records import Row, ScheduleState

LEASED = frozenset({Phase.CLAIMED, Phase.DISPATCHING})
UNCOMMITTED = frozenset({Phase.PENDING, Phase.CLAIMED})


class MemoryStore(ReadVerbs, ClockRepairVerbs):
    """Forgets everything when the process ends. Any thread may call a verb; a lock makes each one atomic."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """Leases are judged by this clock."""
        self._uow = UnitOfWork(clock)
        self._lock = RLock()
        fork_safety.watch(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=False, blocks=False)

    def before_fork(self, until: ExitStack) -> None:
        """Nobody is in the middle of something: the copy of the child is whole."""
        self._lock.acquire()
        until.callback(self._lock.release)

    def after_fork(self) -> None:
        """The child has a copy of its own."""
        self._lock = RLock()

    def open(self) -> None:
        """Nothing to make ready."""

    def close(self) -> None:
        """Nothing to let go of."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - there are no others
        """Never rings."""
        return _do_nothing

    @atomic
    def clock(self) -> Micros:
        """The time of the clock it was given."""
        return self._uow.now()

    @atomic
    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        return [plan_writes.create(self._uow, plan) for plan in plans]

    @atomic
    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What some schedules depend on, directly and through others."""
        return dependencies.graph(self._uow, tenant, schedule_ids)

    @atomic
    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        state = self._uow.states.get(uid)
        return None if state is None else self._snapshot(state)

    @atomic
    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        uow = self._uow
        uids = list(due_index.take([(uow.plans, now)], limit))
        for uid in uids:
            uow.file_plan(uow.states[uid])  # to take is to remove, and reading must change nothing
        return [self._snapshot(uow.states[uid]) for uid in uids]

    @atomic
    def set_aside(self, uid: str, problem: str) -> None:
        """Plan a schedule no more."""
        if (state := self._uow.states.get(uid)) is not None:
            state.fault = problem
            self._uow.file_plan(state)

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:  # noqa: ARG002 - as the port has it
        """There are no rows that could be damaged."""
        return Inspected()

    def condition(self) -> Condition:
        """As sound as the process."""
        return Condition(kind="memory")

    def damage(self) -> Mapping[str, int]:
        """None was found."""
        return {}

    @atomic
    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still holds."""
        return [plan_writes.commit(self._uow, plan) for plan in plans]

    @atomic
    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Decide on a schedule while nobody else changes anything."""
        state = self._uow.states.get(uid)
        plan = None if state is None else decide(self._snapshot(state), self._uow.now())
        return plan is not None and plan_writes.commit(self._uow, plan)

    @atomic
    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        return [plan_writes.add(self._uow, one) for one in occurrences]

    @atomic
    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, in their order."""
        return [emitted.emit(self._uow, tenant, one) for one in events]

    @atomic
    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        """Events that were not matched yet, each with schedules that may want it."""
        return emitted.unmatched(self._uow, limit)

    @atomic
    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, where nothing has happened since."""
        return [emitted.commit(self._uow, one) for one in reactions]

    @atomic
    def claim(  # noqa: PLR0913 - as the port has it
        self,
        node: str,
        routes: Collection[str],
        *,
        now: Micros,
        until: Micros,
        limit: int,
        lease: Micros,
        only: str | None = None,
        shares: Shares | None = None,
    ) -> list[Claim]:
        """Lease what is due, and what others let go."""
        uow, known = self._uow, set(routes)
        if only is not None:
            found = leases.only_due(uow, only, known, now=now, until=until)[:limit]
        elif shares is not None:
            found = leases.due_in_turn(uow, known, shares, now=now, until=until, limit=limit)
        else:
            found = leases.due(uow, known, now=now, until=until, limit=limit)
        return [leases.lease(uow, row, node, now=now, until=self._until(now, lease)) for row in found]

    @atomic
    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds."""
        return [admission.admit(self._uow, one, now=now, lease=lease) for one in admissions]

    @atomic
    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule."""
        return [dependencies.of_claim(self._uow, claim) for claim in claims]

    @atomic
    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        held = {hold.occurrence_id: self._held(hold) for hold in holds}
        for row in held.values():
            if row is not None:
                row.lease_end = self._until(now, lease)
                self._uow.file(row)
        return Renewal(
            lost=frozenset(one for one, row in held.items() if row is None),
            stop={
                one: row.occurrence.stop
                for one, row in held.items()
                if row is not None and row.occurrence.stop is not None
            },
        )

    @atomic
    def release(self, holds: Sequence[Lease]) -> None:
        """Give claimed rows back untouched."""
        for hold in holds:
            row = self._held(hold)
            if row is not None and row.occurrence.phase is Phase.CLAIMED:
                row.occurrence = evolve(row.occurrence, phase=Phase.PENDING, node=None)
                row.lease_end = None
                self._uow.file(row)
                slots.free_key_if_held(self._uow, row)

    @atomic
    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds."""
        return [admission.settle(self._uow, one) for one in settlements]

    @atomic
    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        """Keep what deliveries that go on have put out so far."""
        return [admission.progress(self._uow, one) for one in interims]

    @atomic
    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        row = self._uow.rows.get(occurrence_id)
        if row is None or row.occurrence.phase is not Phase.DISPATCHING:
            return False
        row.occurrence = evolve(row.occurrence, stop=Reason.CANCELLED)
        return True

    @atomic
    def cancel(self, occurrence_id: str) -> bool:
        """End what has not been started; False when there is no such row."""
        row = self._uow.rows.get(occurrence_id)
        if row is None or row.occurrence.phase not in UNCOMMITTED:
            return False
        completion.cancel(self._uow, row, Reason.CANCELLED)
        completion.complete_if_done(self._uow, self._uow.state_of(row))
        return True

    @atomic
    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from a source."""
        schedules = [state.schedule for state in self._uow.states.values()]
        here = [one for one in schedules if one.source == source and one.phase is not SchedulePhase.DELETED]
        return sorted({one.declaration.target.route for one in here})

    @atomic
    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Remember that a node is alive, and what it serves."""
        self._uow.nodes.beat(beat, now=now)

    @atomic
    def leave(self, node: str) -> None:
        """Remember that a node has stopped."""
        self._uow.nodes.leave(node, now=self._uow.now())

    @atomic
    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day."""
        return self._uow.nodes.told(now=self._uow.now())

    @atomic
    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and tell it."""
        if not self._uow.nodes.miss(node, seen):
            return False
        system_events.tell_all(self._uow, event)
        return True

    @atomic
    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it."""
        return self._uow.nodes.lead(node, now=now, lease=lease)

    @atomic
    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease what nobody could serve for too long."""
        uow = self._uow
        unserved = [*uow.unserved(uow.ready, now), *uow.unserved(uow.leases, now)]
        rows = [uow.rows[one] for _, _, one in merge(*(each.until(now) for each in unserved))]
        lacking = [row for row in rows if uow.lacks_target(row, now)]
        return [leases.lease(uow, row, node, now=now, until=self._until(now, lease)) for row in lacking[:limit]]

    @atomic
    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries whose deadline has come, earliest first."""
        uow = self._uow
        rows = [uow.rows[one] for one in due_index.take([(uow.deadlines, now)], limit)]
        for row in rows:
            uow.file(row)  # to take is to remove, and reading must change nothing
        return [row.occurrence for row in rows]

    @atomic
    def changed_by_others(self) -> bool:
        """Nobody else can write to it."""
        return False

    @atomic
    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned or claimed."""
        uow = self._uow
        known = set(routes)
        agendas: list[due_index.DueIndex[str] | due_index.WaitLines] = [uow.plans, uow.deadlines]
        agendas += [uow.ready[route] for route in known & uow.ready.keys()]
        agendas += [uow.leases[route] for route in known & uow.leases.keys()]
        times = [first[0] for one in agendas if (first := one.first()) is not None]
        return min(times if uow.behind.first() is None else [uow.now(), *times], default=None)

    @atomic
    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits."""
        return leases.backlog(self._uow, now=now, limit=limit)

    @atomic
    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        return history.prune(self._uow, before=before, keep=keep, limit=limit)

    def _snapshot(self, state: ScheduleState) -> Snapshot:
        return self._uow.snapshot(state, dependencies.of_schedule(self._uow, state))

    def _held(self, hold: Lease) -> Row | None:
        row = self._uow.rows.get(hold.occurrence_id)
        holds = row is not None and row.occurrence.fence == hold.fence and row.occurrence.phase in LEASED
        return row if holds else None

    def _until(self, now: Micros, lease: Micros) -> Micros:
        """When a lease ends; whoever asked for it may have waited a while for its turn."""
        return max(now, self._uow.now()) + lease


def _do_nothing() -> None:
    """Nobody is told, so there is nothing to end."""
