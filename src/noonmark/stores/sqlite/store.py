"""The SQLite store: each verb of the port, in one transaction."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.admission import times_in_question
from noonmark.core.instants import SECOND
from noonmark.ports.records import StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.sql import (
    admission,
    claim_queries,
    dependencies,
    history,
    leases,
    nodes,
    plan_writes,
    snapshots,
    system_events,
    upstreams,
)
from noonmark.stores.sql import events as emitted
from noonmark.stores.sql.schedule_documents import ScheduleCache
from noonmark.stores.sql.unit_of_work import UnitOfWork
from noonmark.stores.sql.verbs import SharedVerbs
from noonmark.stores.sqlite import bootstrap
from noonmark.stores.sqlite.connections import Connections
from noonmark.stores.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

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
        Backlog,
        Condition,
        Graph,
        Heartbeat,
        Leadership,
        Lease,
        LeaseLost,
        NodeRecord,
        Renewal,
        Shares,
    )

T = TypeVar("T")

WATCH_INTERVAL: Micros = SECOND // 4


class SqliteStore(SharedVerbs):
    """Everything in one file. Any thread may call a verb; each is one transaction."""

    def __init__(self, path: str | Path, clock: Callable[[], Micros], *, busy_seconds: float = 30) -> None:
        """Leases are judged by this clock. Other processes are waited for up to `busy_seconds`."""
        self._connections = Connections(str(path), clock, busy_seconds=busy_seconds)
        self._now = clock
        self._schedule_cache = ScheduleCache()
        self._seen: tuple[int, int] | None = None
        fork_safety.watch(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=True, blocks=True, watch_interval=WATCH_INTERVAL)

    def open(self) -> None:
        """Create the file and its schema, or check them."""
        bootstrap.make_ready(self._connections)
        self.changed_by_others()

    def close(self) -> None:
        """Let go of the file."""
        self._connections.close()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - nobody can tell
        """Never rings: whoever wants to know has to look."""
        return do_nothing

    def before_fork(self, until: ExitStack) -> None:
        """Let nobody in, and let go of the file."""
        self._connections.before_fork(until)

    def after_fork(self) -> None:
        """Begin anew in a new process."""
        self._connections.after_fork()
        self._schedule_cache = ScheduleCache()

    def clock(self) -> Micros:
        """The time of the clock it was given."""
        return self._now()

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        with self._writing() as uow:
            return plan_writes.create_all(uow, plans)

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What some schedules depend on, directly and through others."""
        with self._reading() as uow:
            return dependencies.graph(uow, tenant, schedule_ids)

    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        with self._reading() as uow:
            return snapshots.by_uid(uow, uid)

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        while True:
            with self._reading() as uow:
                found, faults = snapshots.plannable(uow, now, limit)
            if not faults:
                return found
            # They would be found again and again, and stand before the others.
            with self._writing() as uow:
                uow.session.update("schedule_states", ("schedule", "fault"), list(faults.items()))

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still holds."""
        with self._writing() as uow:
            return plan_writes.commit_all(uow, plans)

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Decide on a schedule while nobody else writes."""
        with self._writing() as uow:
            return plan_writes.commit_change(uow, uid, decide)

    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        with self._writing() as uow:
            return plan_writes.add_all(uow, occurrences)

    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, in their order."""
        with self._writing() as uow:
            return emitted.emit(uow, tenant, events)

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        """Events that were not matched yet, each with schedules that may want it."""
        with self._reading() as uow:
            found, damaged = emitted.unmatched(uow, limit)
        if damaged:
            with self._writing() as uow:
                emitted.mend(uow, damaged)
        return found

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, where nothing has happened since."""
        with self._writing() as uow:
            return emitted.commit(uow, reactions)

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
        with self._writing() as uow:
            if only is not None:
                found = claim_queries.only_due(uow.session, only, routes, now=now, until=until)[:limit]
            elif shares is not None:
                found = claim_queries.due_in_turn(uow.session, routes, shares, now=now, until=until, limit=limit)
            else:
                found = claim_queries.due(uow.session, routes, now=now, until=until, limit=limit)
            if not found and only is None:
                leases.end_strays(uow.session, routes, now=now, until=until)
            claims, faults = leases.take(uow, found, node, now=now, lease=lease)
        self._end_damaged(faults)
        return claims

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds."""
        with self._writing() as uow:
            return admission.admit_all(uow, admissions, now=now, lease=lease)

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule."""
        with self._reading() as uow:
            states = uow.read_states({claim.schedule.uid for claim in claims})
            return upstreams.read(
                uow, [(states.get(one.schedule.uid), one.schedule, times_in_question(one)) for one in claims]
            )

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        with self._writing() as uow:
            return leases.renew(uow, holds, now=now, lease=lease)

    def release(self, holds: Sequence[Lease]) -> None:
        """Give claimed rows back untouched."""
        with self._writing() as uow:
            leases.release(uow, holds)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds."""
        with self._writing() as uow:
            return admission.settle_all(uow, settlements)

    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        with self._writing() as uow:
            return leases.request_stop(uow, occurrence_id)

    def cancel(self, occurrence_id: str) -> bool:
        """End what has not been started; False when there is no such row."""
        with self._writing() as uow:
            return admission.cancel(uow, occurrence_id)

    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from a source."""
        with self._reading() as uow:
            return snapshots.routes(uow.session, source)

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Remember that a node is alive, and what it serves."""
        with self._writing() as uow:
            nodes.beat(uow.session, beat, now=now)

    def leave(self, node: str) -> None:
        """Remember that a node has stopped."""
        with self._writing() as uow:
            nodes.leave(uow.session, node, now=self._now())

    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day."""
        with self._reading() as uow:
            return nodes.told(uow.session, now=self._now())

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and tell it."""
        with self._writing() as uow:
            return system_events.tell_lost(uow, node, seen, event, system_events.listening_for(uow.session, event))

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it."""
        with self._writing() as uow:
            return nodes.lead(uow.session, node, now=now, lease=lease)

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease what nobody could serve for too long."""
        with self._writing() as uow:
            found = claim_queries.lacking(uow.session, now=now, limit=limit)
            claims, faults = leases.take(uow, found, node, now=now, lease=lease)
        self._end_damaged(faults)
        return claims

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries whose deadline has come, earliest first."""
        with self._reading() as uow:
            found, faults, strays = history.overdue(uow, now=now, limit=limit)
        self._end_damaged(faults, strays)
        return found

    def changed_by_others(self) -> bool:
        """Whether another process has written since this was last asked."""
        with self._connections.bare() as connection:
            before = self._seen
            # It changes with what other connections write, and the one of this process that writes is this. While that
            # was closed, anything may have been written.
            [version] = connection.execute("PRAGMA data_version").fetchone()
            self._seen = (self._connections.opened, version)
            if before != self._seen:
                self._connections.checkpoints.after_change()
            self._connections.checkpoints.keep_current(connection)
            return before != self._seen

    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits; and how large the log is."""
        return replace(super().backlog(now, limit), log_bytes=self._connections.checkpoints.size())

    def condition(self) -> Condition:
        """What SQLite finds wrong with the file, and how large its journal is."""
        return bootstrap.condition(self._connections)

    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned, is overdue, or can be claimed."""
        with self._connections.glancing() as connection:
            return history.next_time(SqliteSession(connection, self._now), routes, now=self._now())

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        with self._writing() as uow:
            return history.prune(uow.session, before=before, keep=keep, limit=limit)

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._reading() as uow:
            return work(uow)

    def _quick(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._writing() as uow:
            return work(uow)

    def _tenants_of(self, key: int) -> Iterable[str]:  # noqa: ARG002 - likewise
        return ()

    def _careful(self, tenants: Iterable[str], work: Callable[[UnitOfWork], T]) -> T:  # noqa: ARG002 - one writes at a time
        return self._quick(work)

    @contextmanager
    def _writing(self) -> Iterator[UnitOfWork]:
        try:
            with self._connections.writing() as connection:
                uow = UnitOfWork(SqliteSession(connection, self._now), self._schedule_cache)
                yield uow
                uow.write()
                system_events.tell(uow)
        except BaseException:
            self._schedule_cache.forget()
            raise

    @contextmanager
    def _reading(self) -> Iterator[UnitOfWork]:
        with self._connections.reading() as connection:
            yield UnitOfWork(SqliteSession(connection, self._now), self._schedule_cache)


def do_nothing() -> None:
    """Nobody is told, so there is nothing to end."""
