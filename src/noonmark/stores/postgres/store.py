"""The PostgreSQL store: each verb of the port, in one transaction, or in a quick one and a careful one."""

from __future__ import annotations

import atexit
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from noonmark.core.admission import times_in_question
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.ports.records import StoreTraits
from noonmark.ports.soundness import Condition
from noonmark.stores import forking
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.transactions import Transactions
from noonmark.stores.sql import (
    admitting,
    claiming,
    dependents,
    finding,
    history,
    nodes,
    plain,
    planning,
    sharing,
    snapshots,
    telling,
    upstreams,
)
from noonmark.stores.sql import events as emitted
from noonmark.stores.sql.verbs import SharedVerbs
from noonmark.stores.sql.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import ExitStack

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.events import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.reactions import Audience, Reaction
    from noonmark.core.settlement import Settlement
    from noonmark.ports.records import (
        Admitted,
        Beat,
        Graph,
        Hold,
        Leadership,
        LeaseLost,
        NodeRecord,
        Renewal,
        Shares,
    )
    from noonmark.stores.sql.ledger import Ledger

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
        forking.watch(self)
        _stores.add(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=True, blocks=True, watch_interval=WATCH_INTERVAL, lines=self._address.pool - 1)

    def open(self) -> None:
        """Create the schema, or check it."""
        self._make_ready()

    def close(self) -> None:
        """Hang up."""
        self._listener.close()
        self._pool.close()

    def before_fork(self, until: ExitStack) -> None:
        """Nothing to wait for: a connection belongs to the process that made it."""

    def after_fork(self) -> None:
        """Begin anew in a new process; what the parent has open is left alone."""
        _inherited.append((self._pool, self._listener))
        self._begin_anew()

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring when another process has written."""
        return self._listener.listen(ring)

    def clock(self) -> Micros:
        """The time of the server."""
        return self._glance(lambda ledger: ledger.now())

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}
        return self._careful(tenants, lambda ledger: planning.create_all(ledger, plans), tells=True)

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What some schedules depend on, directly and through others."""
        return self._read(lambda ledger: dependents.graph(ledger, tenant, schedule_ids))

    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        return self._read(lambda ledger: snapshots.by_uid(ledger, uid))

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        while True:
            found, faults = self._read(lambda ledger: snapshots.plannable(ledger, now, limit))
            if not faults:
                return found
            # They would be found again and again, and stand before the others.
            for fault in faults.items():
                self._quick(partial(_note_fault, fault=fault))

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still holds."""
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}
        return self._careful(tenants, lambda ledger: planning.commit_all(ledger, plans), tells=True)

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Decide on a schedule while its row is locked."""
        tenants = self._tenants(_TENANTS_OF_UIDS, [uid])
        return self._careful(tenants, lambda ledger: planning.commit_change(ledger, uid, decide), tells=True)

    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        tenants = self._tenants(_TENANTS_OF_UIDS, (one.uid for one in occurrences))
        return self._careful(tenants, lambda ledger: planning.add_all(ledger, occurrences), tells=True)

    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, in their order."""
        return self._careful({tenant}, lambda ledger: emitted.emit(ledger, tenant, events), tells=True)

    def unmatched(self, limit: int) -> list[Audience]:
        """Events that were not matched yet, each with schedules that may want it."""
        found, damaged = self._read(lambda ledger: emitted.unmatched(ledger, limit))
        if damaged:
            self._careful(damaged, lambda ledger: emitted.mend(ledger, damaged))
        return found

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, where nothing has happened since."""
        tenants = {one.audience.tenant for one in reactions}
        return self._careful(tenants, lambda ledger: emitted.commit(ledger, reactions))

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

        def claim(ledger: Ledger) -> tuple[list[Claim], claiming.Faults]:
            # A node whose own clock runs ahead must not take what others still hold.
            at = min(now, ledger.now())
            if only is not None:
                found = finding.only_due(ledger.session, only, routes, now=at, until=until)[:limit]
            elif shares is not None:
                found = sharing.due_in_turn(ledger.session, routes, shares, now=at, until=until, limit=limit)
            else:
                found = finding.due(ledger.session, routes, now=at, until=until, limit=limit)
            if not found and only is None:
                claiming.end_strays(ledger.session, routes, now=at, until=until)
            return claiming.take(ledger, found, node, now=at, lease=lease)

        claims, faults = self._quick(claim)
        self._end_damaged(faults)
        return claims

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds: the plain ones quickly, then the others."""
        started = self._quick(lambda ledger: plain.start_all(ledger.session, admissions, now=now, lease=lease))
        others = [one for one in admissions if one.claim.occurrence.id not in started]
        tenants = {one.claim.schedule.owner.tenant for one in others}

        def admit(ledger: Ledger) -> list[Admitted | LeaseLost | Busy]:
            return admitting.admit_others(ledger, admissions, started, now=now, lease=lease)

        return self._careful(tenants, admit) if others else admitting.all_started(admissions, started)

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule."""

        def read(ledger: Ledger) -> list[Standings]:
            sheets = ledger.read_sheets({claim.schedule.uid for claim in claims})
            return upstreams.read(
                ledger, [(sheets.get(one.schedule.uid), one.schedule, times_in_question(one)) for one in claims]
            )

        return self._read(read)

    def renew(self, holds: Sequence[Hold], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        return self._quick(lambda ledger: claiming.renew(ledger, holds, now=now, lease=lease))

    def release(self, holds: Sequence[Hold]) -> None:
        """Give claimed rows back untouched."""
        tenants = self._tenants(_TENANTS_OF_ROWS, (hold.occurrence_id for hold in holds))
        self._careful(tenants, lambda ledger: claiming.release(ledger, holds), tells=True)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds: the plain ones quickly, then the others."""
        ended = self._quick(lambda ledger: plain.end_all(ledger.session, settlements, now=ledger.now()))
        others = [one.occurrence.id for one in settlements if one.occurrence.id not in ended]
        if not others:
            return [True] * len(settlements)
        tenants = self._tenants(_TENANTS_OF_ROWS, others)
        # Whoever ends something looks for what that frees, but not one that is about to stop and hands its work back.
        tells = any(one.run.outcome is Outcome.LEASE_LOST for one in settlements)
        return self._careful(tenants, lambda ledger: admitting.settle_others(ledger, settlements, ended), tells=tells)

    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._careful(tenants, lambda ledger: claiming.request_stop(ledger, occurrence_id), tells=True)

    def cancel(self, occurrence_id: str) -> bool:
        """End what has not been started; False when there is no such row."""
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._careful(tenants, lambda ledger: admitting.cancel(ledger, occurrence_id), tells=True)

    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from a source."""
        return self._glance(lambda ledger: snapshots.routes(ledger.session, source))

    def beat(self, beat: Beat, *, now: Micros) -> None:
        """Remember that a node is alive, and what it serves."""
        self._quick(lambda ledger: nodes.beat(ledger.session, beat, now=now))

    def leave(self, node: str) -> None:
        """Remember that a node has stopped."""
        # What it ended in the end may have freed somebody's turn, and it does not look for that any more.
        self._careful((), lambda ledger: nodes.leave(ledger.session, node, now=ledger.now()), tells=True)

    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day."""
        return self._read(lambda ledger: nodes.told(ledger.session, now=ledger.now()))

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and tell it."""
        tenants = self._glance(lambda ledger: telling.listening_for(ledger.session, event))
        return self._careful(tenants, lambda ledger: telling.tell_lost(ledger, node, seen, event, tenants))

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it."""

        def lead(ledger: Ledger) -> Leadership:
            # A node whose own clock runs ahead must not take what another still holds.
            return nodes.lead(ledger.session, node, now=min(now, ledger.now()), lease=lease)

        return self._quick(lead)

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease what nobody could serve for too long."""

        def claim(ledger: Ledger) -> tuple[list[Claim], claiming.Faults]:
            found = finding.lacking(ledger.session, now=min(now, ledger.now()), limit=limit)
            return claiming.take(ledger, found, node, now=now, lease=lease)

        claims, faults = self._quick(claim)
        self._end_damaged(faults)
        return claims

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries whose deadline has come, earliest first."""
        found, faults, strays = self._read(lambda ledger: history.overdue(ledger, now=now, limit=limit))
        self._end_damaged(faults, strays)
        return found

    def changed_by_others(self) -> bool:
        """Perhaps: whoever listens is told, and this is asked in case it was not."""
        return True

    def condition(self) -> Condition:
        """What it runs on. The server sees to its own files."""

        def look(ledger: Ledger) -> Condition:
            [(version,)] = ledger.session.query("SHOW server_version")
            found = ledger.session.query("SELECT version_num FROM alembic_version")
            schema = "" if not found else str(found[0][0])
            return Condition(kind="postgresql", version=version, schema=schema, expected_schema=VERSION)

        return self._read(look)

    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned, is overdue, or can be claimed."""
        return self._glance(lambda ledger: history.next_time(ledger.session, routes, now=ledger.now()))

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        return self._quick(lambda ledger: history.prune(ledger.session, before=before, keep=keep, limit=limit))

    def _tenants_of(self, key: int) -> list[str]:
        found = self._glance(lambda ledger: ledger.session.query(_TENANTS_OF_KEYS, [key]))
        return [tenant for (tenant,) in found]


_stores: WeakSet[PostgresStore] = WeakSet()


# Registered before any scheduler is, and so called after all of them have handed back what they held.
@atexit.register
def _hang_up() -> None:
    """Close the connections of stores that the program has left open."""
    for store in list(_stores):
        store._listener.close()  # noqa: SLF001 - its own module
        store._pool.close()  # noqa: SLF001 - likewise


_inherited: list[Any] = []
"""Lines of the process that this one was forked from. They are never closed here: that would hang up on the parent."""


def _note_fault(ledger: Ledger, *, fault: tuple[int, str]) -> None:
    ledger.session.update("schedule_states", ("schedule", "fault"), [fault])
