"""The memory store: each verb of the port, in one step."""

from __future__ import annotations

from heapq import merge
from threading import RLock
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.values import altered
from noonmark.ports.records import Renewal, StoreTraits
from noonmark.ports.soundness import Condition, Inspected
from noonmark.stores import forking
from noonmark.stores.memory import admitting, agenda, claiming, dependents, endings, history, places, planning, telling
from noonmark.stores.memory import events as emitted
from noonmark.stores.memory.atomic import atomic
from noonmark.stores.memory.callers import CallersVerbs
from noonmark.stores.memory.ledger import Ledger
from noonmark.stores.memory.repair import RepairVerbs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import ExitStack

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.events import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.reactions import Audience, Reaction
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.ports.records import (
        Admitted,
        Backlog,
        Beat,
        Graph,
        Hold,
        Leadership,
        LeaseLost,
        NodeRecord,
        Shares,
    )
    from noonmark.ports.soundness import Position
    from noonmark.stores.memory.rows import Row, Sheet

LEASED = frozenset({Phase.CLAIMED, Phase.DISPATCHING})
UNCOMMITTED = frozenset({Phase.PENDING, Phase.CLAIMED})


class MemoryStore(CallersVerbs, RepairVerbs):
    """Forgets everything when the process ends. Any thread may call a verb; a lock makes each one atomic."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """Leases are judged by this clock."""
        self._ledger = Ledger(clock)
        self._lock = RLock()
        forking.watch(self)

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

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - there are no others
        """Never rings."""
        return _do_nothing

    @atomic
    def clock(self) -> Micros:
        """The time of the clock it was given."""
        return self._ledger.now()

    @atomic
    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        return [planning.create(self._ledger, plan) for plan in plans]

    @atomic
    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What some schedules depend on, directly and through others."""
        return dependents.graph(self._ledger, tenant, schedule_ids)

    @atomic
    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        sheet = self._ledger.sheets.get(uid)
        return None if sheet is None else self._snapshot(sheet)

    @atomic
    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        ledger = self._ledger
        uids = list(agenda.take([(ledger.plans, now)], limit))
        for uid in uids:
            ledger.file_plan(ledger.sheets[uid])  # to take is to remove, and reading must change nothing
        return [self._snapshot(ledger.sheets[uid]) for uid in uids]

    @atomic
    def set_aside(self, uid: str, problem: str) -> None:
        """Plan a schedule no more."""
        if (sheet := self._ledger.sheets.get(uid)) is not None:
            sheet.fault = problem
            self._ledger.file_plan(sheet)

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
        return [planning.commit(self._ledger, plan) for plan in plans]

    @atomic
    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Decide on a schedule while nobody else changes anything."""
        sheet = self._ledger.sheets.get(uid)
        plan = None if sheet is None else decide(self._snapshot(sheet), self._ledger.now())
        return plan is not None and planning.commit(self._ledger, plan)

    @atomic
    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        return [planning.add(self._ledger, one) for one in occurrences]

    @atomic
    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, in their order."""
        return [emitted.emit(self._ledger, tenant, one) for one in events]

    @atomic
    def unmatched(self, limit: int) -> list[Audience]:
        """Events that were not matched yet, each with schedules that may want it."""
        return emitted.unmatched(self._ledger, limit)

    @atomic
    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, where nothing has happened since."""
        return [emitted.commit(self._ledger, one) for one in reactions]

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
        ledger, known = self._ledger, set(routes)
        if only is not None:
            found = claiming.only_due(ledger, only, known, now=now, until=until)[:limit]
        elif shares is not None:
            found = claiming.due_in_turn(ledger, known, shares, now=now, until=until, limit=limit)
        else:
            found = claiming.due(ledger, known, now=now, until=until, limit=limit)
        return [claiming.lease(ledger, row, node, now=now, until=self._until(now, lease)) for row in found]

    @atomic
    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds."""
        return [admitting.admit(self._ledger, one, now=now, lease=lease) for one in admissions]

    @atomic
    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule."""
        return [dependents.of_claim(self._ledger, claim) for claim in claims]

    @atomic
    def renew(self, holds: Sequence[Hold], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        held = {hold.occurrence_id: self._held(hold) for hold in holds}
        for row in held.values():
            if row is not None:
                row.lease_end = self._until(now, lease)
                self._ledger.file(row)
        return Renewal(
            lost=frozenset(one for one, row in held.items() if row is None),
            stop={
                one: row.occurrence.stop
                for one, row in held.items()
                if row is not None and row.occurrence.stop is not None
            },
        )

    @atomic
    def release(self, holds: Sequence[Hold]) -> None:
        """Give claimed rows back untouched."""
        for hold in holds:
            row = self._held(hold)
            if row is not None and row.occurrence.phase is Phase.CLAIMED:
                row.occurrence = altered(row.occurrence, phase=Phase.PENDING, node=None)
                row.lease_end = None
                self._ledger.file(row)
                places.free_key_if_held(self._ledger, row)

    @atomic
    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds."""
        return [admitting.settle(self._ledger, one) for one in settlements]

    @atomic
    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        """Keep what deliveries that go on have put out so far."""
        return [admitting.progress(self._ledger, one) for one in interims]

    @atomic
    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        row = self._ledger.rows.get(occurrence_id)
        if row is None or row.occurrence.phase is not Phase.DISPATCHING:
            return False
        row.occurrence = altered(row.occurrence, stop=Reason.CANCELLED)
        return True

    @atomic
    def cancel(self, occurrence_id: str) -> bool:
        """End what has not been started; False when there is no such row."""
        row = self._ledger.rows.get(occurrence_id)
        if row is None or row.occurrence.phase not in UNCOMMITTED:
            return False
        endings.cancel(self._ledger, row, Reason.CANCELLED)
        endings.complete_if_done(self._ledger, self._ledger.sheet_of(row))
        return True

    @atomic
    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from a source."""
        schedules = [sheet.schedule for sheet in self._ledger.sheets.values()]
        here = [one for one in schedules if one.source == source and one.phase is not SchedulePhase.DELETED]
        return sorted({one.declaration.target.route for one in here})

    @atomic
    def beat(self, beat: Beat, *, now: Micros) -> None:
        """Remember that a node is alive, and what it serves."""
        self._ledger.nodes.beat(beat, now=now)

    @atomic
    def leave(self, node: str) -> None:
        """Remember that a node has stopped."""
        self._ledger.nodes.leave(node, now=self._ledger.now())

    @atomic
    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day."""
        return self._ledger.nodes.told(now=self._ledger.now())

    @atomic
    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and tell it."""
        if not self._ledger.nodes.miss(node, seen):
            return False
        telling.tell_all(self._ledger, event)
        return True

    @atomic
    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it."""
        return self._ledger.nodes.lead(node, now=now, lease=lease)

    @atomic
    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease what nobody could serve for too long."""
        ledger = self._ledger
        unserved = [*ledger.unserved(ledger.ready, now), *ledger.unserved(ledger.leases, now)]
        rows = [ledger.rows[one] for _, _, one in merge(*(each.until(now) for each in unserved))]
        lacking = [row for row in rows if ledger.lacks_target(row, now)]
        return [claiming.lease(ledger, row, node, now=now, until=self._until(now, lease)) for row in lacking[:limit]]

    @atomic
    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries whose deadline has come, earliest first."""
        ledger = self._ledger
        rows = [ledger.rows[one] for one in agenda.take([(ledger.deadlines, now)], limit)]
        for row in rows:
            ledger.file(row)  # to take is to remove, and reading must change nothing
        return [row.occurrence for row in rows]

    @atomic
    def changed_by_others(self) -> bool:
        """Nobody else can write to it."""
        return False

    @atomic
    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned or claimed."""
        ledger = self._ledger
        known = set(routes)
        agendas: list[agenda.Agenda[str] | agenda.Lines] = [ledger.plans, ledger.deadlines]
        agendas += [ledger.ready[route] for route in known & ledger.ready.keys()]
        agendas += [ledger.leases[route] for route in known & ledger.leases.keys()]
        times = [first[0] for one in agendas if (first := one.first()) is not None]
        return min(times if ledger.behind.first() is None else [ledger.now(), *times], default=None)

    @atomic
    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits."""
        return claiming.backlog(self._ledger, now=now, limit=limit)

    @atomic
    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        return history.prune(self._ledger, before=before, keep=keep, limit=limit)

    def _snapshot(self, sheet: Sheet) -> Snapshot:
        return self._ledger.snapshot(sheet, dependents.of_schedule(self._ledger, sheet))

    def _held(self, hold: Hold) -> Row | None:
        row = self._ledger.rows.get(hold.occurrence_id)
        holds = row is not None and row.occurrence.fence == hold.fence and row.occurrence.phase in LEASED
        return row if holds else None

    def _until(self, now: Micros, lease: Micros) -> Micros:
        """When a lease ends; whoever asked for it may have waited a while for its turn."""
        return max(now, self._ledger.now()) + lease


def _do_nothing() -> None:
    """Nobody is told, so there is nothing to end."""
