"""The SQLite store: one file, one writer at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.instants import SECOND
from noonmark.ports.records import StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.rules import admission, events, plan_writes, system_events
from noonmark.stores.rules import workflows as workflow_rules
from noonmark.stores.sql import fast_path, workflows
from noonmark.stores.sql.store import SqlStore
from noonmark.stores.sql.unit_of_work import UnitOfWork
from noonmark.stores.sqlite import bootstrap
from noonmark.stores.sqlite.connections import Connections
from noonmark.stores.sqlite.session import SqliteSession

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from noonmark.core.admission import Admission, Busy
    from noonmark.core.causation import Reaction
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan
    from noonmark.core.settlement import Settlement
    from noonmark.ports.records import (
        Admitted,
        Backlog,
        Condition,
        LeaseLost,
    )
    from noonmark.ports.workflows import StepWrites

T = TypeVar("T")

WATCH_INTERVAL: Micros = SECOND // 4
_TRAITS = StoreTraits(
    is_durable=True, blocks=True, is_in_process=True, watch_interval=WATCH_INTERVAL, has_remote_clock=False
)


class SqliteStore(SqlStore):
    """Everything in one file. Methods block, and may be called from any thread."""

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], Micros],
        *,
        busy_seconds: float = 30,
        migrates: bool = True,
        creates: bool = True,
    ) -> None:
        """Leases end by this clock. Waits for other processes up to `busy_seconds`.

        An older schema is upgraded only if it `migrates`; a missing one is created only if it `creates`.
        """
        self._connections = Connections(str(path), clock, busy_seconds=busy_seconds)
        self._now = clock
        self._migrates, self._creates = migrates, creates
        self._reset_caches()
        self._seen: dict[str, tuple[int, int]] = {}
        fork_safety.watch(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return _TRAITS

    def open(self) -> None:
        """Create the file and its schema, or check them."""
        bootstrap.make_ready(self._connections, migrates=self._migrates, creates=self._creates)
        self.changed_by_others()

    def close(self) -> None:
        """Close the file."""
        self._connections.close()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - it cannot
        """Never calls back: SQLite cannot notify. Poll `changed_by_others`."""
        return do_nothing

    def before_fork(self, until: ExitStack) -> None:
        """Block other threads, and close the file."""
        self._connections.before_fork(until)

    def after_fork(self) -> None:
        """Start with new connections in the child."""
        self._connections.after_fork()
        self._reset_caches()

    def clock(self) -> Micros:
        """The time of the clock it was given."""
        return self._now()

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write plans of nodes, all in one transaction."""
        return self._write_node_state(lambda uow: plan_writes.commit_all(uow, plans))

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write the reactions to events, all in one transaction."""
        return self._write_node_state(lambda uow: events.commit(uow, reactions))

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds, all in one transaction."""

        def admit(uow: UnitOfWork) -> list[Admitted | LeaseLost | Busy]:
            started = fast_path.start_all(uow, admissions, now=now, lease=lease)
            return admission.admit_all(uow, admissions, started, now=now, lease=lease)

        return self._write_unlocked(admit)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds, all in one transaction."""

        def settle(uow: UnitOfWork) -> list[bool]:
            ended = fast_path.end_all(uow, settlements)
            return admission.settle_all(uow, settlements, ended)

        return self._write_unlocked(settle)

    def commit_steps(self, writes: Sequence[StepWrites]) -> list[bool]:
        """Write steps of workflow runs whose fence still holds, all in one transaction."""

        def commit(uow: UnitOfWork) -> list[bool]:
            done = workflows.write_plain(uow.session, writes, uow.report)
            return workflow_rules.commit_steps(uow, writes, done)

        return self._write_unlocked(commit)

    def changed_by_others(self, reader: str = "") -> bool:
        """Whether another process has written since this reader last asked."""
        with self._connections.bare() as connection:
            before = self._seen.get(reader)
            # It changes with what other connections write, and the one of this process that writes is this. While that
            # was closed, anything may have been written.
            [version] = connection.execute("PRAGMA data_version").fetchone()
            seen = self._seen[reader] = (self._connections.opened, version)
            if before != seen:
                self._connections.checkpoints.after_change()
            self._connections.checkpoints.keep_current(connection)
            return before != seen

    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits; and how large the log is."""
        return replace(super().backlog(now, limit), log_bytes=self._connections.checkpoints.size())

    def condition(self) -> Condition:
        """What SQLite finds wrong with the file, and how large its journal is."""
        return bootstrap.condition(self._connections)

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._connections.reading() as connection:
            return work(self._unit_of_work(connection))

    def _autocommit(self, work: Callable[[UnitOfWork], T]) -> T:
        with self._connections.autocommit_connection() as connection:
            return work(self._unit_of_work(connection))

    def _write_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        return self._write(work, is_durable=True)

    def _write_node_state(self, work: Callable[[UnitOfWork], T]) -> T:
        """Write what nodes decide for themselves, and would decide again after a power cut: plans, claims, leases.

        Nothing starts before a later transaction, which waits for the disk, and for all before it in the journal.
        """
        return self._write(work, is_durable=False)

    def _write(self, work: Callable[[UnitOfWork], T], *, is_durable: bool) -> T:
        try:
            with self._connections.writing(is_durable=is_durable) as connection:
                uow = self._unit_of_work(connection)
                answer = work(uow)
                uow.write()
                system_events.publish(uow)
        except BaseException:
            self._schedule_cache.forget()
            raise
        return answer

    def _start_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        return self._write_unlocked(work)

    def _write_locked(
        self,
        tenants: Iterable[str],  # noqa: ARG002 - see below
        work: Callable[[UnitOfWork], T],
        *,
        notify: bool = False,  # noqa: ARG002 - likewise
        stops_starts: bool = False,  # noqa: ARG002 - likewise
    ) -> T:
        """The same: SQLite has one writer at a time, and cannot notify other processes."""
        return self._write_unlocked(work)

    def _lock_name(self, tenant: str) -> str:  # noqa: ARG002 - all wait for the same lock
        return ""

    def _tenants(self, query: str, values: Iterable[str | int]) -> Collection[str]:  # noqa: ARG002 - none are locked
        return ()

    def _unit_of_work(self, connection: sqlite3.Connection) -> UnitOfWork:
        return UnitOfWork(SqliteSession(connection, self._now), self._schedule_cache)


def do_nothing() -> None:
    """There is nothing to end."""
