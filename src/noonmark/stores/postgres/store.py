"""The PostgreSQL store: transactions, retried as long as it is certain that nothing of them was written."""

from __future__ import annotations

import atexit
import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from noonmark.core.errors import NoonmarkError, StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.ports.records import Condition, StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.postgres import bootstrap
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import ConnectionPool, RetryableError, breaks_connection, translate_error
from noonmark.stores.postgres.listener import make_listener
from noonmark.stores.postgres.session import CLOCK, PostgresSession
from noonmark.stores.rules.system_events import publish
from noonmark.stores.sql.schema.version import VERSION
from noonmark.stores.sql.store import SqlStore
from noonmark.stores.sql.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack

    from noonmark.core.instants import Micros
    from noonmark.stores.postgres.connections import Connection

T = TypeVar("T")

WATCH_INTERVAL: Micros = 5 * SECOND
"""Notifications wake a node; it polls in case one was lost."""
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_AUTOCOMMIT = ""
_LOCK = "SELECT pg_advisory_xact_lock(tenant) FROM unnest('{{{}}}'::bigint[]) AS tenant"
_LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared({})"
_STARTS = "starts of all tenants"
"""The name of the lock that starts share; it cannot be that of a tenant."""
_NOTIFY = "SELECT pg_notify(?, '')"
_ATTEMPTS = 4
_FIRST_PAUSE = 0.01
"""Seconds before the second attempt; four times as long before each further one."""


class PostgresStore(SqlStore):
    """Everything in one schema of a database. Methods block, and may be called from any thread."""

    def __init__(self, url: str, clock: Callable[[], Micros] | None = None, *, migrates: bool = True) -> None:
        """Time is the server's; only tests pass another clock. The schema is created or upgraded only if `migrates`."""
        self._address, self._clock, self._migrates = parse_address(url), clock, migrates
        self._reset()
        fork_safety.watch(self)
        _stores.add(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(
            is_durable=True, blocks=True, watch_interval=WATCH_INTERVAL, max_concurrency=self._address.pool - 1
        )

    def open(self) -> None:
        """Create or upgrade the schema, or only check it."""
        connection = self._pool.acquire()
        try:
            bootstrap.make_ready(connection, self._address, migrates=self._migrates)
        except BaseException as error:
            self._pool.discard(connection)
            raise self._unavailable(translate_error(self._address, error)) from error
        self._pool.release(connection)

    def close(self) -> None:
        """Close the connections."""
        self._listener.close()
        self._pool.close()

    def before_fork(self, until: ExitStack) -> None:
        """Nothing to wait for: a connection belongs to the process that opened it."""

    def after_fork(self) -> None:
        """Start with new connections in the child; those of the parent are left alone."""
        _inherited.append((self._pool, self._listener))
        self._reset()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call back when another process has written."""
        return self._listener.listen(wake)

    def clock(self) -> Micros:
        """The time of the server."""
        return self._autocommit(lambda uow: uow.now())

    def changed_by_others(self, reader: str = "") -> bool:  # noqa: ARG002 - for all of them
        """Always: it is asked only in case a notification was lost."""
        return True

    def condition(self) -> Condition:
        """Versions of the server and the schema. The server checks its own files."""

        def look(uow: UnitOfWork) -> Condition:
            [(version,)] = uow.session.query("SHOW server_version")
            [(table,)] = uow.session.query("SELECT to_regclass('alembic_version')::text")
            rows = [] if table is None else uow.session.query("SELECT version_num FROM alembic_version")
            schema = "" if not rows else str(rows[0][0])
            return Condition(kind="postgresql", version=version, schema=schema, expected_schema=VERSION)

        return self._read(look)

    def _reset(self) -> None:
        self._pool = ConnectionPool(self._address)
        self._listener = make_listener(self._address, self._pool.backend_pids)
        self._reset_caches()

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        return self._transact(_READING, work)

    def _autocommit(self, work: Callable[[UnitOfWork], T]) -> T:
        return self._transact(_AUTOCOMMIT, work)

    def _write_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        return self._transact(_WRITING, work)

    def _start_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        # A halt waits for the starts that did not see it, and later ones see it.
        return self._transact(f"{_WRITING}; {_LOCK_SHARED.format(_lock_of(self._address.schema, _STARTS))}", work)

    def _write_locked(
        self,
        tenants: Iterable[str],
        work: Callable[[UnitOfWork], T],
        *,
        notify: bool = False,
        stops_starts: bool = False,
    ) -> T:
        names = {*tenants, _STARTS} if stops_starts else tenants
        locks = sorted(_lock_of(self._address.schema, name) for name in names)

        def do(uow: UnitOfWork) -> T:
            answer = work(uow)
            uow.write()
            publish(uow)
            if (notify and _took_effect(answer)) or uow.wakes_nodes:
                uow.session.execute(_NOTIFY, self._address.channel)
            return answer

        # The locks are taken in ascending order, so that no two transactions deadlock.
        begin = f"{_WRITING}; {_LOCK.format(','.join(map(str, locks)))}"
        return self._transact(begin, do, locks_rows=True)

    def _lock_name(self, tenant: str) -> str:
        return tenant

    def _tenants(self, query: str, values: Iterable[str | int]) -> set[str]:
        return {tenant for (tenant,) in self._autocommit(lambda uow: uow.session.query(query, list(values)))}

    def _transact(self, begin: str, work: Callable[[UnitOfWork], T], *, locks_rows: bool = False) -> T:
        """Do some work in a transaction; retry it while it is certain that nothing was written."""
        for attempt in range(_ATTEMPTS):
            connection = self._pool.acquire()
            try:
                return self._try(connection, begin, work, locks_rows=locks_rows)
            except RetryableError as error:
                if attempt == _ATTEMPTS - 1:
                    raise self._unavailable(error) from error
            threading.Event().wait(_FIRST_PAUSE * 4**attempt)
        raise AssertionError("unreachable")

    def _try(self, connection: Connection, begin: str, work: Callable[[UnitOfWork], T], *, locks_rows: bool) -> T:
        is_writing, is_committing, began = begin not in (_AUTOCOMMIT, _READING), False, None
        try:
            if is_writing:  # one round trip for the locks and the time
                [(began,)] = connection.run(f"{begin}; {CLOCK}")
            elif begin:
                connection.run(begin)
            session = PostgresSession(connection, self._clock, began=began, locks_rows=locks_rows)
            uow = UnitOfWork(session, self._schedule_cache)
            answer = work(uow)
            if begin:
                if is_writing:
                    uow.write()
                    is_committing = True
                connection.commit()
        except BaseException as error:
            self._schedule_cache.forget()
            self._give_up(connection, error)
            raise translate_error(self._address, error, is_committing=is_committing) from error
        self._pool.release(connection)
        return answer

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        """Roll back; a connection on which that fails is discarded."""
        if not breaks_connection(error):
            try:
                connection.rollback()
            except Exception:  # noqa: BLE001 - the connection is broken
                self._pool.discard(connection)
            else:
                self._pool.release(connection)
            return
        self._pool.discard(connection)

    def _unavailable(self, error: BaseException) -> BaseException:
        """Translate an error of the last attempt."""
        if isinstance(error, RetryableError):
            return StoreUnavailable(f"the database {self._address.shown} did not answer: {error}")
        return error


def _took_effect(answer: object) -> bool:
    """Whether anything was changed; for a list of answers, by any of them. A refusal is an answer too."""
    if isinstance(answer, list):
        return any(one and not isinstance(one, NoonmarkError) for one in answer)
    return answer is not False


def _lock_of(schema: str, tenant: str) -> int:
    digest = blake2b(f"{schema}/{tenant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


_stores: WeakSet[PostgresStore] = WeakSet()


# Registered before any scheduler is, and so called after all of them have handed back what they held.
@atexit.register
def _close_connections() -> None:
    """Close the connections of stores that the program left open."""
    for store in list(_stores):
        store._listener.close()  # noqa: SLF001 - its own module
        store._pool.close()  # noqa: SLF001 - likewise


_inherited: list[Any] = []
"""Connections of the parent process. They are never closed here: that would end them for the parent."""
