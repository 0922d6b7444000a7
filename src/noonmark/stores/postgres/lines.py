"""Lines to the server: connections, each with an event loop of its own, that a thread borrows for one call.

asyncpg speaks on an event loop. A loop that is run just while a statement is on its way needs no thread, and whoever
asks waits where it asks; so the store is called alike from a thread, from a loop's worker, and from a program that has
no loop at all.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from noonmark.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from noonmark.stores.postgres.address import Address

T = TypeVar("T")
logger = logging.getLogger("noonmark.store")

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,  # the server is going down, or somebody has ended this connection
    asyncpg.CrashShutdownError,
    asyncpg.DatabaseDroppedError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
    EOFError,
)
_AGAIN = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,  # somebody was in the way for long
    asyncpg.InvalidCachedStatementError,  # a newer node has changed a table; statements are prepared anew
)
_UNAVAILABLE = (
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientPrivilegeError,
)
_PATIENCE = 1.5
"""So many times as long as the server takes for a statement at most, before the server itself is taken for dead."""


class Lost(Exception):
    """The connection broke, or the transaction lost a race, before it was committed: nothing was written."""


class Line:
    """One connection."""

    def __init__(self, address: Address) -> None:
        """Connected when this returns."""
        self._patience = address.timeout * _PATIENCE
        self._loop = asyncio.new_event_loop()
        try:
            self._connection: Any = self._run(connect(address))
        except BaseException:
            self._loop.close()
            raise
        self.server_process: int = self._connection.get_server_pid()
        """The number of the server's process for this line."""

    def fetch(self, text: str, parameters: Sequence[object] = ()) -> list[Any]:
        """The rows of a statement."""
        found: list[Any] = self._run(self._connection.fetch(text, *parameters, timeout=self._patience))
        return found

    def execute(self, text: str) -> None:
        """Carry out statements that have no parameters."""
        self._run(self._connection.execute(text, timeout=self._patience))

    @property
    def is_closed(self) -> bool:
        """Whether the server has hung up meanwhile."""
        self._take_turn()
        return bool(self._connection.is_closed())

    def close(self) -> None:
        """Hang up, without waiting for anybody."""
        with suppress(Exception):
            self._connection.terminate()
        self._loop.run_until_complete(_end_all(asyncio.all_tasks(self._loop)))
        self._take_turn()  # the socket is closed by the loop
        self._loop.close()

    def _take_turn(self) -> None:
        """Let the loop do what it has to do at once."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)


async def _end_all(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def connect(address: Address) -> Any:  # noqa: ANN401 - asyncpg is not typed
    """A new connection, with limits that keep one that hangs from holding up others."""
    milliseconds = int(address.timeout * 1_000)
    asyncio.get_running_loop().set_exception_handler(_note)
    connection = await asyncpg.connect(
        address.dsn,
        # Another attempt gets through sooner than one that waits: between its tries, TCP waits longer and longer.
        timeout=address.timeout / 2,
        statement_cache_size=500,
        server_settings={
            "search_path": address.schema,
            "timezone": "UTC",
            "jit": "off",
            # A plan that was made while a table was small is kept when it has grown; every statement has its index.
            "enable_seqscan": "off",
            "statement_timeout": str(milliseconds),
            # A node that is frozen in the middle of a transaction must not keep its locks.
            "idle_in_transaction_session_timeout": str(milliseconds // 2),
            # Nor must what it has waiting behind that, one after another: nobody would hear that their turn has come.
            "lock_timeout": str(milliseconds // 4),
            "tcp_user_timeout": str(milliseconds),
        },
    )
    _give_up_after(connection, milliseconds // 2)
    return connection


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An attempt that is called off in its midst leaves an error behind that nobody waits for; it is no news."""
    logger.debug("%s", context["message"], exc_info=context.get("exception"))


def _give_up_after(connection: Any, milliseconds: int) -> None:  # noqa: ANN401 - asyncpg is not typed
    """Let a line break on which nothing that is sent arrives: a new one is there before TCP tries the old one again."""
    line = connection._transport.get_extra_info("socket")  # noqa: SLF001 - there is no other way to it
    if hasattr(socket, "TCP_USER_TIMEOUT") and line.family != socket.AF_UNIX:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class Lines:
    """At most so many lines; made when they are needed, and kept for the next."""

    def __init__(self, address: Address) -> None:
        """There is none yet."""
        self._address = address
        self._idle: list[Line] = []
        self._count = 0
        self._is_closed = False
        self._free = threading.Condition()
        self.server_processes: set[int] = set()
        """The server's processes for the lines that there are."""

    def take(self) -> Line:
        """A line that works; waits for one when all are in use."""
        with self._free:
            self._is_closed = False
            if not self._free.wait_for(lambda: self._idle or self._count < self._address.pool, self._address.timeout):
                raise StoreUnavailable(
                    f"all {self._address.pool} connections to {self._address.shown} are in use; a larger pool is set by"
                    " ?pool= in the URL"
                )
            while self._idle:
                line = self._idle.pop()
                if not line.is_closed:
                    return line
                self._hang_up(line)
            self._count += 1
        try:
            line = Line(self._address)
        except BaseException as error:
            self._gone()
            raise _refused(self._address, error) from error
        self.server_processes.add(line.server_process)
        return line

    def give_back(self, line: Line) -> None:
        """It is free for others; unless all were hung up meanwhile, and nobody has asked for one since."""
        with self._free:
            if self._is_closed:
                self._hang_up(line)
            else:
                self._idle.append(line)
            self._free.notify()

    def discard(self, line: Line) -> None:
        """It is of no use any more, and most likely neither are the others, which nobody has tried yet."""
        with self._free:
            for one in (line, *self._idle):
                self._hang_up(one)
            self._idle.clear()
            self._free.notify_all()

    def close(self) -> None:
        """Hang up those that nobody uses, and the others when they are given back."""
        with self._free:
            self._is_closed = True
            while self._idle:
                self._hang_up(self._idle.pop())

    def _hang_up(self, line: Line) -> None:
        self._count -= 1
        self.server_processes.discard(line.server_process)
        line.close()

    def _gone(self) -> None:
        with self._free:
            self._count -= 1
            self._free.notify()


def explained(address: Address, error: BaseException, *, is_writing: bool = False) -> BaseException:
    """What a failed statement means: to try again, that the store is away, or a mistake of ours.

    `is_writing` when it was the one that commits, and there was something to commit.
    """
    if is_writing and isinstance(error, _LOST):
        return StoreUnavailable(
            f"the connection to {address.shown} broke while a transaction was being committed: whether it was written"
            " is not known"
        )
    if isinstance(error, _LOST + _AGAIN):
        return Lost(_said(error))
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"the database {address.shown} could not do what was asked: {_said(error)}")
    return error


def breaks(error: BaseException) -> bool:
    """Whether a connection is of no use after this."""
    # One that has become read-only leads to a server that is no longer the first.
    return isinstance(error, (*_LOST, asyncpg.ReadOnlySQLTransactionError)) or not isinstance(error, Exception)


def pause_before_retry(attempt: int) -> None:
    """Give others a moment."""
    threading.Event().wait(0.01 * 4**attempt)


def _refused(address: Address, error: BaseException) -> BaseException:
    """What it means that there is no connection."""
    if isinstance(error, (asyncpg.PostgresError, *_LOST)):
        return StoreUnavailable(f"there is no connection to the database {address.shown}: {_said(error)}")
    return error


def _said(error: BaseException) -> str:
    """In one line, without what is for programmers."""
    return str(error).partition("\n")[0] or type(error).__name__
