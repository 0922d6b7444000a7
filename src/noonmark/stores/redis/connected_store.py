"""Transactions of the Redis store: each is tried again while others change what it has read."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, suppress
from random import random  # noqa: TID251 - for pauses
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.ports.records import Condition, StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.redis import bootstrap
from noonmark.stores.redis.address import parse_address
from noonmark.stores.redis.listener import make_listener
from noonmark.stores.redis.schedule_records import RowKeys
from noonmark.stores.redis.transactions.client import Client, ConnectionLost, FormatChanged, NoAnswer
from noonmark.stores.redis.transactions.transaction import Transaction
from noonmark.stores.redis.unit_of_work import UnitOfWork
from noonmark.stores.rules.system_events import publish
from noonmark.stores.sql.schedule_documents import ScheduleCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.transaction import Stray

T = TypeVar("T")
logger = logging.getLogger("noonmark.store")

WATCH_INTERVAL: Micros = 5 * SECOND
"""Messages wake a node; it polls in case one was lost."""
_HASTY = 4
"""After so many attempts, which others were in the way of, a transaction waits for its turn."""
_ATTEMPTS = 2 * _HASTY
"""When it is its turn, nothing is in its way, unless it takes too long."""
_PAUSE = 0.001
"""Seconds before the second attempt, at most; each further pause may be longer by as much."""
_LOSS_PAUSES = (0.01, 0.04, 0.16)
"""Seconds before a transaction whose connection was lost is tried again: most likely, a new one can be made."""
_inherited: list[Any] = []
"""Connections of the parent process. They are never closed here: that would end them for the parent."""


class _Losses:
    """Lost connections of one transaction."""

    def __init__(self) -> None:
        self._pauses = list(_LOSS_PAUSES)

    def wait(self, error: ConnectionLost) -> None:
        """Wait for a while; raises the error if that was done often enough."""
        if not self._pauses:
            raise error
        threading.Event().wait(self._pauses.pop(0))


class ConnectedStore:
    """The connections, the clock and the transactions of a store."""

    def __init__(self, url: str, clock: Callable[[], Micros] | None = None, *, migrates: bool = True) -> None:
        """Time is the server's; only tests pass another clock. An empty database is used only if it `migrates`."""
        self._address, self._clock, self._migrates = parse_address(url), clock, migrates
        self._format: str | None = None
        """The format of the data, once they were checked."""
        self._reset()
        fork_safety.watch(self)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=not self._address.is_volatile, blocks=True, watch_interval=WATCH_INTERVAL)

    def open(self) -> None:
        """Check the server, and the format of what it has."""
        facts = bootstrap.make_ready(self._client, self._address, migrates=self._migrates)
        bootstrap.log_promise(facts, self._address)
        self._format = self._client.format = bootstrap.FORMAT
        self._client.notify()  # a user who may not do that could not commit

    def close(self) -> None:
        """Close the connections."""
        self._listener.close()
        self._client.close()

    def before_fork(self, until: ExitStack) -> None:
        """Nothing to wait for: a connection belongs to the process that opened it."""

    def after_fork(self) -> None:
        """Start with new connections in the child; those of the parent are left alone."""
        _inherited.append((self._client, self._listener))
        self._reset()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call back when another process has written."""
        return self._listener.listen(wake)

    def changed_by_others(self, reader: str = "") -> bool:
        """Whether another process has committed since this reader last asked."""
        before = self._seen.get(reader)
        self._seen[reader] = self._client.foreign_commits()
        return self._seen[reader] != before

    def condition(self) -> Condition:
        """What the server says about itself."""
        return bootstrap.condition(self._client, self._address)

    def clock(self) -> Micros:
        """The store's time."""
        return self._client.time() if self._clock is None else self._clock()

    def wants_timed_uids(self) -> bool:
        """Nothing is stored in the order of ids."""
        return False

    # Transactions

    def _reset(self) -> None:
        self._client = Client(self._address)
        self._client.format = self._format
        self._listener = make_listener(self._address, self._client)
        self._seen: dict[str, int] = {}
        self._schedule_cache = ScheduleCache()
        self._row_keys = RowKeys()
        self._lock = threading.RLock()

    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Read as things were at one moment."""
        return self._transact(work, writes=False)

    def _glance(self, work: Callable[[UnitOfWork], T]) -> T:
        """Read a page of a list, or a few records: what changes meanwhile may be seen or not."""
        losses = _Losses()
        while True:
            try:
                return work(self._unit_of_work())
            except ConnectionLost as error:
                losses.wait(error)
            except FormatChanged:
                self._begin_again()

    def _write(self, work: Callable[[UnitOfWork], T], *, notify: bool = False) -> T:
        """Change something.

        Other nodes are notified if `notify` is set, and whenever a waiting row became due: perhaps only another node
        can serve it.
        """
        with self._lock:  # transactions of one process would only be in each other's way
            return self._transact(work, writes=True, notify=notify)

    def _transact(self, work: Callable[[UnitOfWork], T], *, writes: bool, notify: bool = False) -> T:
        answer, strays = self._answer(work, writes=writes, notify=notify)
        self._remove_strays(strays)
        return answer

    def _answer(self, work: Callable[[UnitOfWork], T], *, writes: bool, notify: bool) -> tuple[T, Sequence[Stray]]:
        with ExitStack() as until:
            name, losses = "", _Losses()
            for attempt in range(_ATTEMPTS):
                if attempt == _HASTY:  # it would perhaps go on like this: others are quicker
                    name = until.enter_context(self._client.turn())
                uow = self._unit_of_work()
                uow.transaction.name = name
                try:
                    answers = self._try(uow, work, writes=writes, notify=notify)
                except ConnectionLost as error:  # nothing was written yet
                    losses.wait(error)
                    continue
                except FormatChanged:
                    self._begin_again()
                    continue
                if answers:
                    return answers[0], uow.transaction.strays
                threading.Event().wait(random() * _PAUSE * (attempt + 1))  # noqa: S311 - not a secret
        raise StoreUnavailable(f"Redis at {self._address.shown}: other nodes kept changing what was read")

    def _try(self, uow: UnitOfWork, work: Callable[[UnitOfWork], T], *, writes: bool, notify: bool) -> list[T]:
        """Try a transaction once; its answer, if it is committed."""
        try:
            answer = work(uow)
            if writes:
                uow.write()
                publish(uow)
                uow.write()
                uow.transaction.notifies = notify or uow.wakes_nodes
        except StoreUnavailable:
            raise
        except Exception:
            if uow.transaction.is_current():
                raise
            return []
        if not (self._commit(uow.transaction) if writes else uow.transaction.is_current()):
            return []
        uow.cache_schedules()
        return [answer]

    def _begin_again(self) -> None:
        """The server has lost the store: create it anew if its URL accepts that, and refuse it otherwise."""
        bootstrap.make_ready(self._client, self._address, migrates=self._address.is_volatile)
        logger.warning("Redis at %s has lost the store; it is empty now", self._address.shown)

    def _commit(self, transaction: Transaction) -> bool:
        try:
            return transaction.commit()
        except NoAnswer as error:
            raise StoreUnavailable(f"{error.message}: whether the transaction was written is unknown") from error

    def _remove_strays(self, strays: Sequence[Stray]) -> None:
        """Remove entries of indexes that do not belong to their records, as damage leaves them."""

        def remove(uow: UnitOfWork) -> None:
            for table, index, partition, member in strays:
                uow.transaction.records(table).remove_stray(index, partition, member)

        if strays:
            with suppress(StoreUnavailable):  # they are found again
                self._write(remove)

    def _unit_of_work(self) -> UnitOfWork:
        transaction = Transaction(self._client, self._clock, self._schedule_cache.damage.note)
        return UnitOfWork(transaction, self._schedule_cache, self._row_keys)
