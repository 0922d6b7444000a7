"""Transactions: each is tried again while it is certain that nothing of it was written."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres import opening
from noonmark.stores.postgres.lines import Lines, Lost, breaks, explained, pause_before_retry
from noonmark.stores.postgres.news import News
from noonmark.stores.postgres.session import PostgresSession
from noonmark.stores.sql.schedule_documents import ScheduleCache
from noonmark.stores.sql.system_events import tell
from noonmark.stores.sql.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noonmark.core.instants import Micros
    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.lines import Line

T = TypeVar("T")

_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
_AUTOMATIC = ""
"""A statement by itself needs no transaction around it."""
_TRIES = 4
_WAIT_FOR = "SELECT pg_advisory_xact_lock(value) FROM EACH(bigint) AS j"
_TELL = "SELECT pg_notify(?, '')"


class Transactions:
    """What the verbs of a store are made of. Each waits where it is called, in any thread."""

    def __init__(self, address: Address, clock: Callable[[], Micros] | None, *, migrates: bool) -> None:
        """Nothing is connected yet."""
        self._address, self._clock, self._migrates = address, clock, migrates
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lines = Lines(self._address)
        self._news = News(self._address, self._lines.server_processes)
        self._schedule_cache = ScheduleCache()

    def _make_ready(self) -> None:
        line = self._lines.take()
        try:
            opening.make_ready(line, self._address, migrates=self._migrates)
        except BaseException as error:
            self._lines.discard(line)
            raise self._unavailable(explained(self._address, error)) from error
        self._lines.give_back(line)

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        """One moment of everything."""
        return self._off_loop(partial(self._transact, _READING, work))

    def _glance(self, work: Callable[[UnitOfWork], T]) -> T:
        """One statement."""
        return self._off_loop(partial(self._transact, _AUTOMATIC, work))

    def _quick(self, work: Callable[[UnitOfWork], T]) -> T:
        """Change what nobody else is changing."""
        return self._off_loop(partial(self._transact, _WRITING, work))

    def _careful(self, tenants: Iterable[str], work: Callable[[UnitOfWork], T], *, tells: bool = False) -> T:
        """Change anything of some tenants, one at a time.

        Other nodes learn that there is news if it `tells` of what it has done, and whenever a row that waited was given
        a time: perhaps only another node can serve it.
        """
        locks = sorted(_lock_of(self._address.schema, tenant) for tenant in tenants)

        def do(uow: UnitOfWork) -> T:
            uow.session.execute(_WAIT_FOR, locks)
            answer = work(uow)
            uow.write()
            tell(uow)
            if (tells and _took_effect(answer)) or uow.woke:
                uow.session.execute(_TELL, self._address.channel)
            return answer

        return self._off_loop(partial(self._transact, _WRITING, do, is_careful=True))

    def _tenants(self, query: str, ids: Iterable[str]) -> set[str]:
        return {tenant for (tenant,) in self._glance(lambda uow: uow.session.query(query, list(ids)))}

    def _transact(self, begin: str, work: Callable[[UnitOfWork], T], *, is_careful: bool = False) -> T:
        """Do some work in a transaction; again, if it is certain that nothing of it was written."""
        for attempt in range(_TRIES):
            line = self._lines.take()
            try:
                return self._try(line, begin, work, is_careful=is_careful)
            except Lost as error:
                if attempt == _TRIES - 1:
                    raise self._unavailable(error) from error
            pause_before_retry(attempt)
        raise AssertionError("unreachable")

    def _try(self, line: Line, begin: str, work: Callable[[UnitOfWork], T], *, is_careful: bool) -> T:
        is_committing = False
        try:
            if begin:
                line.execute(begin)
            uow = UnitOfWork(PostgresSession(line, self._clock, is_careful=is_careful), self._schedule_cache)
            answer = work(uow)
            if begin:
                if begin == _WRITING:
                    uow.write()
                    is_committing = True
                line.execute("COMMIT")
        except BaseException as error:
            self._schedule_cache.forget()
            self._let_go(line, error)
            raise explained(self._address, error, is_writing=is_committing) from error
        self._lines.give_back(line)
        return answer

    def _let_go(self, line: Line, error: BaseException) -> None:
        """Undo what has begun; a line on which that fails is of no use any more."""
        if not breaks(error):
            try:
                line.execute("ROLLBACK")
            except Exception:  # noqa: BLE001 - it broke now
                self._lines.discard(line)
            else:
                self._lines.give_back(line)
            return
        self._lines.discard(line)

    def _unavailable(self, error: BaseException) -> BaseException:
        """What it means when it is not tried any more."""
        if isinstance(error, Lost):
            return StoreUnavailable(f"the database {self._address.shown} did not answer: {error}")
        return error

    def _off_loop(self, call: Callable[[], T]) -> T:
        """Make a call here; where an event loop is running, in another thread, since no two loops run in one."""
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - get_running_loop raises where there is none
            return call()
        return _in_thread(call)


def _took_effect(answer: object) -> bool:
    """Whether anything was done: of a list of answers, by any of them."""
    return any(answer) if isinstance(answer, list) else answer is not False


def _lock_of(schema: str, tenant: str) -> int:
    digest = blake2b(f"{schema}/{tenant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _in_thread(call: Callable[[], T]) -> T:
    """Make a call in a thread of its own, and wait for it."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            errors.append(error)

    thread = threading.Thread(target=run, name="noonmark-postgres", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]
