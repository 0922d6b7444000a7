"""The PostgreSQL store: each verb of the port, in one transaction, or in a quick one and a careful one."""

from __future__ import annotations

import atexit
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from noonmark.core.admission import times_in_question
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.ports.records import Condition, StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.transactions import Transactions
from noonmark.stores.sql import (
    admission,
    claim_queries,
    dependencies,
    fast_path,
    history,
    leases,
    nodes,
    plan_writes,
    snapshots,
    system_events,
    upstreams,
)
from noonmark.stores.sql import events as emitted
from noonmark.stores.sql.verbs import SharedVerbs
from noonmark.stores.sql.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import ExitStack

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.reactions import Reaction, UnmatchedEvent
    from noonmark.core.settlement import Settlement
    from noonmark.ports.records import (
        Admitted,
        Graph,
        Heartbeat,
        Leadership,
        Lease,
        LeaseLost,
        NodeRecord,
        Renewal,
        Shares,
    )
    from noonmark.stores.sql.unit_of_work import UnitOfWork

WATCH_INTERVAL: Micros = 5 * SECOND
"""News wake whoever listens; this is the net beneath them."""
_TENANTS_OF_UIDS = """
    SELECT DISTINCT tenant FROM schedule_states CROSS JOIN schedules ON schedules.key = schedule
    WHERE uid IN EACH(text)
"""
_TENANTS_OF_ROWS = """
    SELECT DISTINCT tenant FROM occurrences CROSS JOIN schedules ON schedules.key = schedule WHERE id IN EACH(text)
"""
_TENANTS_OF_KEYS = """
    SELECT DISTINCT tenant FROM occurrences CROSS JOIN schedules ON schedules.key = schedule
    WHERE occurrences.key IN EACH(bigint)
"""


class PostgresStore(Transactions, SharedVerbs):
    """Everything in one schema of a database. Verbs may be called from any thread; each waits where it is called."""

    def __init__(self, url: str, clock: Callable[[], Micros] | None = None, *, migrates: bool = True) -> None:
        """Time is the server's own; only a test gives it another clock. Its schema is changed only if it `migrates`."""
        super().__init__(parse_address(url), clock, migrates=migrates)
        fork_safety.watch(self)
        _stores.add(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=True, blocks=True, watch_interval=WATCH_INTERVAL, lines=self._address.pool - 1)

    def open(self) -> None:
        """Create the schema, or check it."""
        self._off_loop(self._make_ready)

    def close(self) -> None:
        """Hang up."""
        self._news.close()
        self._off_loop(self._lines.close)

    def before_fork(self, until: ExitStack) -> None:
        """Nothing to wait for: a connection belongs to the process that made it."""

    def after_fork(self) -> None:
        """Begin anew in a new process; what the parent has open is left alone."""
        _inherited.append((self._lines, self._news))
        self._begin_anew()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Ring when another process has written."""
        return self._news.listen(wake)

    def clock(self) -> Micros:
        """The time of the server."""
        return self._glance(lambda uow: uow.now())

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}
        return self._careful(tenants, lambda uow: plan_writes.create_all(uow, plans), tells=True)

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What some schedules depend on, directly and through others."""
        return self._read(lambda uow: dependencies.graph(uow, tenant, schedule_ids))

    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        return self._read(lambda uow: snapshots.by_uid(uow, uid))

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        while True:
            found, faults = self._read(lambda uow: snapshots.plannable(uow, now, limit))
            if not faults:
                return found
            # They would be found again and again, and stand before the others.
            for fault in faults.items():
                self._quick(partial(_note_fault, fault=fault))

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still holds."""
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}
        return self._careful(tenants, lambda uow: plan_writes.commit_all(uow, plans), tells=True)

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Decide on a schedule while its row is locked."""
        tenants = self._tenants(_TENANTS_OF_UIDS, [uid])
        return self._careful(tenants, lambda uow: plan_writes.commit_change(uow, uid, decide), tells=True)

    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        tenants = self._tenants(_TENANTS_OF_UIDS, (one.uid for one in occurrences))
        return self._careful(tenants, lambda uow: plan_writes.add_all(uow, occurrences), tells=True)

    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, in their order."""
        return self._careful({tenant}, lambda uow: emitted.emit(uow, tenant, events), tells=True)

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        """Events that were not matched yet, each with schedules that may want it."""
        found, damaged = self._read(lambda uow: emitted.unmatched(uow, limit))
        if damaged:
            self._careful(damaged, lambda uow: emitted.mend(uow, damaged))
        return found

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, where nothing has happened since."""
        tenants = {one.audience.tenant for one in reactions}
        return self._careful(tenants, lambda uow: emitted.commit(uow, reactions))

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

        def claim(uow: UnitOfWork) -> tuple[list[Claim], leases.Faults]:
            # A node whose own clock runs ahead must not take what others still hold.
            at = min(now, uow.now())
            if only is not None:
                found = claim_queries.only_due(uow.session, only, routes, now=at, until=until)[:limit]
            elif shares is not None:
                found = claim_queries.due_in_turn(uow.session, routes, shares, now=at, until=until, limit=limit)
            else:
                found = claim_queries.due(uow.session, routes, now=at, until=until, limit=limit)
            if not found and only is None:
                leases.end_strays(uow.session, routes, now=at, until=until)
            return leases.take(uow, found, node, now=at, lease=lease)

        claims, faults = self._quick(claim)
        self._end_damaged(faults)
        return claims

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds: the plain ones quickly, then the others."""
        started = self._quick(lambda uow: fast_path.start_all(uow.session, admissions, now=now, lease=lease))
        others = [one for one in admissions if one.claim.occurrence.id not in started]
        tenants = {one.claim.schedule.owner.tenant for one in others}

        def admit(uow: UnitOfWork) -> list[Admitted | LeaseLost | Busy]:
            return admission.admit_others(uow, admissions, started, now=now, lease=lease)

        return self._careful(tenants, admit) if others else admission.all_started(admissions, started)

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule."""

        def read(uow: UnitOfWork) -> list[Standings]:
            states = uow.read_states({claim.schedule.uid for claim in claims})
            return upstreams.read(
                uow, [(states.get(one.schedule.uid), one.schedule, times_in_question(one)) for one in claims]
            )

        return self._read(read)

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        return self._quick(lambda uow: leases.renew(uow, holds, now=now, lease=lease))

    def release(self, holds: Sequence[Lease]) -> None:
        """Give claimed rows back untouched."""
        tenants = self._tenants(_TENANTS_OF_ROWS, (hold.occurrence_id for hold in holds))
        self._careful(tenants, lambda uow: leases.release(uow, holds), tells=True)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds: the plain ones quickly, then the others."""
        ended = self._quick(lambda uow: fast_path.end_all(uow.session, settlements, now=uow.now()))
        others = [one.occurrence.id for one in settlements if one.occurrence.id not in ended]
        if not others:
            return [True] * len(settlements)
        tenants = self._tenants(_TENANTS_OF_ROWS, others)
        # Whoever ends something looks for what that frees, but not one that is about to stop and hands its work back.
        tells = any(one.run.outcome is Outcome.LEASE_LOST for one in settlements)
        return self._careful(tenants, lambda uow: admission.settle_others(uow, settlements, ended), tells=tells)

    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._careful(tenants, lambda uow: leases.request_stop(uow, occurrence_id), tells=True)

    def cancel(self, occurrence_id: str) -> bool:
        """End what has not been started; False when there is no such row."""
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._careful(tenants, lambda uow: admission.cancel(uow, occurrence_id), tells=True)

    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from a source."""
        return self._glance(lambda uow: snapshots.routes(uow.session, source))

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Remember that a node is alive, and what it serves."""
        self._quick(lambda uow: nodes.beat(uow.session, beat, now=now))

    def leave(self, node: str) -> None:
        """Remember that a node has stopped."""
        # What it ended in the end may have freed somebody's turn, and it does not look for that any more.
        self._careful((), lambda uow: nodes.leave(uow.session, node, now=uow.now()), tells=True)

    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day."""
        return self._read(lambda uow: nodes.told(uow.session, now=uow.now()))

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and tell it."""
        tenants = self._glance(lambda uow: system_events.listening_for(uow.session, event))
        return self._careful(tenants, lambda uow: system_events.tell_lost(uow, node, seen, event, tenants))

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it."""

        def lead(uow: UnitOfWork) -> Leadership:
            # A node whose own clock runs ahead must not take what another still holds.
            return nodes.lead(uow.session, node, now=min(now, uow.now()), lease=lease)

        return self._quick(lead)

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease what nobody could serve for too long."""

        def claim(uow: UnitOfWork) -> tuple[list[Claim], leases.Faults]:
            found = claim_queries.lacking(uow.session, now=min(now, uow.now()), limit=limit)
            return leases.take(uow, found, node, now=now, lease=lease)

        claims, faults = self._quick(claim)
        self._end_damaged(faults)
        return claims

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries whose deadline has come, earliest first."""
        found, faults, strays = self._read(lambda uow: history.overdue(uow, now=now, limit=limit))
        self._end_damaged(faults, strays)
        return found

    def changed_by_others(self) -> bool:
        """Perhaps: whoever listens is told, and this is asked in case it was not."""
        return True

    def condition(self) -> Condition:
        """What it runs on. The server sees to its own files."""

        def look(uow: UnitOfWork) -> Condition:
            [(version,)] = uow.session.query("SHOW server_version")
            found = uow.session.query("SELECT version_num FROM alembic_version")
            schema = "" if not found else str(found[0][0])
            return Condition(kind="postgresql", version=version, schema=schema, expected_schema=VERSION)

        return self._read(look)

    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned, is overdue, or can be claimed."""
        return self._glance(lambda uow: history.next_time(uow.session, routes, now=uow.now()))

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        return self._quick(lambda uow: history.prune(uow.session, before=before, keep=keep, limit=limit))

    def _tenants_of(self, key: int) -> list[str]:
        found = self._glance(lambda uow: uow.session.query(_TENANTS_OF_KEYS, [key]))
        return [tenant for (tenant,) in found]


_stores: WeakSet[PostgresStore] = WeakSet()


# Registered before any scheduler is, and so called after all of them have handed back what they held.
@atexit.register
def _hang_up() -> None:
    """A program ends without having closed its stores: an event loop that is left open may complain of that."""
    for store in list(_stores):
        store._lines.close()  # noqa: SLF001 - its own module


_inherited: list[Any] = []
"""Lines of the process that this one was forked from. They are never closed here: that would hang up on the parent."""


def _note_fault(uow: UnitOfWork, *, fault: tuple[int, str]) -> None:
    uow.session.update("schedule_states", ("schedule", "fault"), [fault])
