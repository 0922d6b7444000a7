"""Connections to the server, and the pool that lends one to a thread for a transaction."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import conninfo, generators, pq, waiting

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres.dumpers import DUMPERS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from noonmark.stores.postgres.address import Address

T = TypeVar("T")
Row = tuple[Any, ...]

_PATIENCE = 1.5
"""A statement may take so many times the server's own limit for it before the server counts as dead."""
_PREPARED = 500
"""Prepared statements of a connection, at most."""
_INTERVAL = 0.1
"""Seconds between two looks at whether a wait was interrupted."""


class Interrupted(Exception):
    """The wait for the server was interrupted by another thread."""


class Connection(psycopg.Connection[Row]):
    """A connection that gives up on a server that does not answer.

    Statements have `$1`, `$2`, .. for parameters. The server infers their types, so that each text is prepared once.
    """

    def __init__(self, pgconn: pq.abc.PGconn, address: Address, interrupted: threading.Event | None = None) -> None:
        super().__init__(pgconn)
        self._patience = address.timeout * _PATIENCE
        self._interrupted = interrupted
        self.autocommit = True
        self.cursor_factory = psycopg.RawCursor
        self.prepare_threshold = 0
        self.prepared_max = _PREPARED
        for kind, dumper in DUMPERS.items():
            self.adapters.register_dumper(kind, dumper)
        self.backend_pid: int = pgconn.backend_pid

    def fetch(self, text: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Prepare and execute a statement; returns its rows."""
        cursor = self.send(text, parameters)
        if self._pipeline is not None:
            self._pipeline.sync()
        return [] if cursor.rownumber is None else cursor.fetchall()

    def send(self, text: str, parameters: Sequence[object] = ()) -> psycopg.Cursor[Row]:
        """Prepare and execute a statement; in a pipeline, without waiting for the server."""
        return self.execute(text, parameters, prepare=True, binary=True)

    def run(self, text: str) -> list[Row]:
        """Execute one or more statements without parameters; returns the rows of the last one."""
        cursor = self.execute(text, prepare=False)
        cursor.set_result(-1)
        return [] if cursor.rownumber is None else cursor.fetchall()

    def wait(self, gen: Generator[Any, Any, T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Wait for the server, as long as a statement may take."""
        gen = _interruptible(gen, self._interrupted)
        return super().wait(gen, interval, self._patience if timeout is None else timeout)

    @property
    def is_lost(self) -> bool:
        """Whether the server has closed this idle connection."""
        try:
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return self.closed


def connect(address: Address, interrupted: threading.Event | None = None) -> Connection:
    """Open a connection with limits that keep a node that hangs from holding up others.

    Setting `interrupted` ends every wait for the server, of the attempt and of the connection.
    """
    return Connection(connect_libpq(address, interrupted), address, interrupted)


def connect_libpq(address: Address, interrupted: threading.Event | None = None) -> pq.abc.PGconn:
    """Try the hosts of an address one after another."""
    milliseconds = int(address.timeout * 1_000)
    settings = {
        "search_path": address.schema,
        "timezone": "UTC",
        "jit": "off",
        # A plan that was made while a table was small stays in use when it has grown; every statement has its index.
        "enable_seqscan": "off",
        "statement_timeout": milliseconds,
        # A node that is frozen in the middle of a transaction must not keep its locks.
        "idle_in_transaction_session_timeout": milliseconds // 2,
        # Its next statements may already wait for locks at the server, and it would not notice that it got them.
        "lock_timeout": milliseconds // 4,
        "tcp_user_timeout": milliseconds,
    }
    parameters = conninfo.conninfo_to_dict(address.dsn)
    parameters["client_encoding"] = "UTF8"
    # A new connection is there before TCP tries to send on the old one again.
    parameters["tcp_user_timeout"] = milliseconds // 2
    parameters["options"] = " ".join(
        [str(parameters.get("options", "")), *(f"-c {name}={value}" for name, value in settings.items())]
    )
    failures: list[psycopg.Error] = []
    for attempt in _resolve_hosts(parameters, address.timeout / 2):
        connecting = _interruptible(generators.connect(conninfo.make_conninfo("", **attempt)), interrupted)
        try:
            # A new attempt gets through sooner than one that waits: TCP waits longer and longer between its tries.
            pgconn: pq.abc.PGconn = waiting.wait_conn(connecting, _INTERVAL, address.timeout / 2)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - raised by the wait functions of psycopg
            failures.append(psycopg.errors.ConnectionTimeout(f"no answer within {address.timeout / 2:g} s"))
        except psycopg.Error as error:
            failures.append(error)
        else:
            return pgconn
    raise failures[-1]


def _resolve_hosts(parameters: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """The addresses to try, one after another. In a thread: a resolver cannot be given a time limit."""
    answers: SimpleQueue[list[dict[str, Any]] | Exception] = SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(conninfo.conninfo_attempts(parameters))
        except Exception as error:  # noqa: BLE001 - raised below
            answers.put(error)

    threading.Thread(target=resolve, name="noonmark-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        answer = psycopg.errors.ConnectionTimeout(f"the host name was not resolved within {seconds:g} s")
    if isinstance(answer, Exception):
        raise answer
    return answer


def _interruptible(gen: Generator[Any, Any, T], interrupted: threading.Event | None) -> Generator[Any, Any, T]:
    """A wait that ends with Interrupted within an interval after the event is set."""
    return gen if interrupted is None else _checked(gen, interrupted)


def _checked(gen: Generator[Any, Any, T], interrupted: threading.Event) -> Generator[Any, Any, T]:
    try:
        awaited = next(gen)
        while not interrupted.is_set():
            awaited = gen.send((yield awaited))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise Interrupted


class ConnectionPool:
    """Up to `address.pool` connections, opened on demand and kept for later.

    Noonmark has its own pool because `psycopg_pool` opens connections in threads of its own, which do not survive a
    fork, and reports any failure to connect as a timeout.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._count = 0
        self._is_closed = False
        self._free = threading.Condition()
        self.backend_pids: set[int] = set()
        """The server processes of the open connections."""

    def acquire(self) -> Connection:
        """Return a working connection; waits for one when all are in use."""
        with self._free:
            self._is_closed = False
            if not self._free.wait_for(lambda: self._idle or self._count < self._address.pool, self._address.timeout):
                raise StoreUnavailable(
                    f"all {self._address.pool} connections to {self._address.shown} are in use; set a larger pool with"
                    " ?pool= in the URL"
                )
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_lost:
                    return connection
                self._close(connection)
            self._count += 1
        try:
            connection = connect(self._address)
        except BaseException as error:
            with self._free:
                self._count -= 1
                self._free.notify()
            if isinstance(error, psycopg.Error):
                raise StoreUnavailable(
                    f"cannot connect to the database {self._address.shown}: {summary(error)}"
                ) from error
            raise
        self.backend_pids.add(connection.backend_pid)
        return connection

    def release(self, connection: Connection) -> None:
        """Return a connection to the pool; it is closed if the pool was closed meanwhile and not used since."""
        with self._free:
            if self._is_closed:
                self._close(connection)
            else:
                self._idle.append(connection)
            self._free.notify()

    def discard(self, connection: Connection) -> None:
        """Close a broken connection, and all idle ones: they are most likely broken too."""
        with self._free:
            for each in (connection, *self._idle):
                self._close(each)
            self._idle.clear()
            self._free.notify_all()

    def close(self) -> None:
        """Close the idle connections now, and the others when they are released."""
        with self._free:
            self._is_closed = True
            while self._idle:
                self._close(self._idle.pop())

    def _close(self, connection: Connection) -> None:
        self._count -= 1
        self.backend_pids.discard(connection.backend_pid)
        connection.close()


class RetryableError(Exception):
    """The connection broke, or the transaction lost a race, before its commit: nothing was written."""


_LOST = ("08", "57P01", "57P02", "57P03", "57P04", "25P03")
"""SQLSTATEs, or their classes, after which the server has ended the connection."""
_RETRYABLE = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, and a lock that others held for too long."""
_UNAVAILABLE = ("53", "57", "58", "25006", "42501")
"""Lack of resources, operator intervention, system error, read-only, insufficient privilege."""
_READ_ONLY = "25006"
_PLAN_CHANGED = ("0A000", "RevalidateCachedQuery")
"""A newer node has changed a table since the statement was prepared."""


def translate_error(address: Address, error: BaseException, *, is_committing: bool = False) -> BaseException:
    """Translate a failed statement: to be retried, the store is unavailable, or a mistake of ours.

    `is_committing` if the statement was a COMMIT and there was something to commit.
    """
    if is_committing and _is_lost(error):
        return StoreUnavailable(
            f"lost the connection to {address.shown} during a commit: whether the transaction was written is unknown"
        )
    if _is_lost(error) or _plan_changed(error) or _has_state(error, _RETRYABLE):
        return RetryableError(summary(error))
    if _has_state(error, _UNAVAILABLE):
        return StoreUnavailable(f"the database {address.shown} refused a statement: {summary(error)}")
    return error


def breaks_connection(error: BaseException) -> bool:
    """Whether the connection must not be used again after this error."""
    # One that has become read-only leads to a server that is no longer the primary.
    is_useless = _is_lost(error) or _plan_changed(error) or _has_state(error, (_READ_ONLY,))
    return is_useless or not isinstance(error, Exception)


def summary(error: BaseException) -> str:
    """The first line of an error."""
    return str(error).partition("\n")[0] or type(error).__name__


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None:
        return True
    return isinstance(error, OSError) or _has_state(error, _LOST)


def _plan_changed(error: BaseException) -> bool:
    return isinstance(error, psycopg.Error) and (error.sqlstate, error.diag.source_function) == _PLAN_CHANGED


def _has_state(error: BaseException, states: tuple[str, ...]) -> bool:
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(states)
