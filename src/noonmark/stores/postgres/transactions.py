"""Transactions: each is tried again while it is certain that nothing of it was written."""

from __future__ import annotations

import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres import opening
from noonmark.stores.postgres.connections import ConnectionPool, RetryableError, breaks_connection, translate_error
from noonmark.stores.postgres.listener import NotificationListener
from noonmark.stores.postgres.session import PostgresSession
from noonmark.stores.sql.schedule_documents import ScheduleCache
from noonmark.stores.sql.system_events import tell
from noonmark.stores.sql.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noonmark.core.instants import Micros
    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.connections import Connection

T = TypeVar("T")

_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_AUTOMATIC = ""
"""A statement by itself needs no transaction around it."""
_TRIES = 4
_FIRST_PAUSE = 0.01
"""Seconds before the second try, four times as long before each other."""
_LOCK = "SELECT pg_advisory_xact_lock({})"
_TELL = "SELECT pg_notify(?, '')"


class Transactions:
    """What the verbs of a store are made of. Each waits where it is called, in any thread."""

    def __init__(self, address: Address, clock: Callable[[], Micros] | None, *, migrates: bool) -> None:
        """Nothing is connected yet."""
        self._address, self._clock, self._migrates = address, clock, migrates
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pool = ConnectionPool(self._address)
        self._listener = NotificationListener(self._address, self._pool.backend_pids)
        self._schedule_cache = ScheduleCache()

    def _make_ready(self) -> None:
        connection = self._pool.acquire()
        try:
            opening.make_ready(connection, self._address, migrates=self._migrates)
        except BaseException as error:
            self._pool.discard(connection)
            raise self._unavailable(translate_error(self._address, error)) from error
        self._pool.release(connection)

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        """One moment of everything."""
        return self._transact(_READING, work)

    def _glance(self, work: Callable[[UnitOfWork], T]) -> T:
        """One statement."""
        return self._transact(_AUTOMATIC, work)

    def _quick(self, work: Callable[[UnitOfWork], T]) -> T:
        """Change what nobody else is changing."""
        return self._transact(_WRITING, work)

    def _careful(self, tenants: Iterable[str], work: Callable[[UnitOfWork], T], *, tells: bool = False) -> T:
        """Change anything of some tenants, one at a time.

        Other nodes learn that there is news if it `tells` of what it has done, and whenever a row that waited was given
        a time: perhaps only another node can serve it.
        """
        locks = sorted(_lock_of(self._address.schema, tenant) for tenant in tenants)

        def do(uow: UnitOfWork) -> T:
            answer = work(uow)
            uow.write()
            tell(uow)
            if (tells and _took_effect(answer)) or uow.woke:
                uow.session.execute(_TELL, self._address.channel)
            return answer

        # In one message to the server: each round trip makes others wait for the locks.
        begin = "; ".join([_WRITING, *map(_LOCK.format, locks)])
        return self._transact(begin, do, is_careful=True)

    def _tenants(self, query: str, ids: Iterable[str]) -> set[str]:
        return {tenant for (tenant,) in self._glance(lambda uow: uow.session.query(query, list(ids)))}

    def _transact(self, begin: str, work: Callable[[UnitOfWork], T], *, is_careful: bool = False) -> T:
        """Do some work in a transaction; again, if it is certain that nothing of it was written."""
        for attempt in range(_TRIES):
            connection = self._pool.acquire()
            try:
                return self._try(connection, begin, work, is_careful=is_careful)
            except RetryableError as error:
                if attempt == _TRIES - 1:
                    raise self._unavailable(error) from error
            threading.Event().wait(_FIRST_PAUSE * 4**attempt)
        raise AssertionError("unreachable")

    def _try(self, connection: Connection, begin: str, work: Callable[[UnitOfWork], T], *, is_careful: bool) -> T:
        is_committing = False
        try:
            if begin:
                connection.run(begin)
            uow = UnitOfWork(PostgresSession(connection, self._clock, is_careful=is_careful), self._schedule_cache)
            answer = work(uow)
            if begin:
                if begin != _READING:
                    uow.write()
                    is_committing = True
                connection.commit()
        except BaseException as error:
            self._schedule_cache.forget()
            self._let_go(connection, error)
            raise translate_error(self._address, error, is_committing=is_committing) from error
        self._pool.release(connection)
        return answer

    def _let_go(self, connection: Connection, error: BaseException) -> None:
        """Undo what has begun; a line on which that fails is of no use any more."""
        if not breaks_connection(error):
            try:
                connection.rollback()
            except Exception:  # noqa: BLE001 - it broke now
                self._pool.discard(connection)
            else:
                self._pool.release(connection)
            return
        self._pool.discard(connection)

    def _unavailable(self, error: BaseException) -> BaseException:
        """What it means when it is not tried any more."""
        if isinstance(error, RetryableError):
            return StoreUnavailable(f"the database {self._address.shown} did not answer: {error}")
        return error


def _took_effect(answer: object) -> bool:
    """Whether anything was done: of a list of answers, by any of them."""
    return any(answer) if isinstance(answer, list) else answer is not False


def _lock_of(schema: str, tenant: str) -> int:
    digest = blake2b(f"{schema}/{tenant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
