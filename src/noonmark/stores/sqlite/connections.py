"""The connections to one SQLite file: one for writing, one for reading, and one for checkpoints.

A writer takes the lock of this process, then that of the file, for one short transaction. It waits for other processes,
so a database that is locked for a moment is not an error.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NoReturn

from noonmark.core.errors import StoreUnavailable
from noonmark.stores import fork_safety
from noonmark.stores.sqlite.checkpoint import LOG_BYTES, Checkpoints
from noonmark.stores.sqlite.errors import check_version, is_busy, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from noonmark.core.instants import Micros


JOURNAL = "-wal"


class FileIdentity:
    """Device and inode of a database and of its journal, as they were when it was opened."""

    def __init__(self, path: str) -> None:
        """Nothing is open yet."""
        self._path = path
        self.forget()

    def forget(self) -> None:
        """It is opened anew, or by another process."""
        self._known: dict[str, tuple[int, int]] = {}
        self._journal = os.path.realpath(self._path) + JOURNAL  # SQLite keeps it beside the file, not beside a link

    def check(self) -> int:
        """How many bytes the journal has; StoreUnavailable if the path leads to another file.

        Costs two calls of the file system.
        """
        size = 0
        for path in (self._path, self._journal):
            known, (current, size) = self._known.get(path), _identity(path)
            if known is None and current is not None:
                self._known[path] = current
            elif known != current:
                what = "removed" if current is None else "replaced"
                raise StoreUnavailable(
                    f"the database cannot be used: {path} was {what} while it was open. Nothing is written until the"
                    " file is back in its place; to go on with another file, restart this process"
                )
        return size


def _identity(path: str) -> tuple[tuple[int, int] | None, int]:
    """The device and the inode of a file, and its size."""
    try:
        status = os.stat(path)  # noqa: PTH116 - it is asked at every transaction
    except FileNotFoundError:
        return None, 0
    return (status.st_dev, status.st_ino), status.st_size


PAGE_BYTES = 1_024
"""The page size of new files. Each commit writes whole pages, one for each index that changes: with SQLite's default of
4,096 bytes, a fire writes four times as much. SQLite cannot change it later in this journal mode."""
_DURABLE, _NOT_DURABLE = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"
_WRITER_CACHE_KIB = 32_768
_READER_CACHE_KIB = 8_192
_ROUND_MS = 25
"""A writer waits in rounds of this many milliseconds. SQLite has no queue for its lock: it tries after 1, 2, 5, 10 and
then every 100 ms. Beside processes that write all the time, it would get the lock only after seconds."""
_TRIES = 10
_inherited: set[str] = set()
"""Files that were open when this process was forked: in it, SQLite takes the locks of the parent for its own."""


class Connections:
    """Opens them on demand, and again after a fork, in both processes."""

    def __init__(self, path: str, now: Callable[[], Micros], *, busy_seconds: float) -> None:
        """Nothing is opened yet. Checkpoints go by the clock `now`."""
        # It is opened again after a fork, and the current folder may be another one by then.
        self.path = os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow links
        self._busy_seconds = busy_seconds
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self.opened = 0
        """How often the one that writes was opened."""
        self._identity = FileIdentity(self.path)
        self._is_durable = True
        """Whether the writer waits for the disk when it commits."""
        self._writing, self._reading = RLock(), RLock()
        self.checkpoints = Checkpoints(self.path, self.connect, now)

    def __del__(self) -> None:
        """Python 3.13 and later warn about unclosed connections, and a scheduler need not be closed."""
        for connection in self._all:
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    @contextmanager
    def writing(self, *, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction that may write. One that is not durable is on the disk with the next that is."""
        with self._writing:
            try:
                connection = self._open_writer()
                if self._is_durable is not is_durable:
                    connection.execute(_DURABLE if is_durable else _NOT_DURABLE)
                    self._is_durable = is_durable
                self._begin(connection)
                try:
                    self._identity.check()
                    yield connection
                    connection.execute("COMMIT")
                    journal_bytes = self._identity.check()  # what went into a file that is gone is not acknowledged
                except BaseException:
                    # After some errors SQLite has undone it already.
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
                self.checkpoints.after_commit(connection, journal_bytes)
            except sqlite3.DatabaseError as error:
                self._raise_explained(error)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent snapshot, concurrent with a writer."""
        with self.autocommit_connection() as connection:
            connection.execute("BEGIN")
            try:
                self._identity.check()
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        # If no node watches the file, readers keep it current.
        if self.checkpoints.is_due() and self._writing.acquire(blocking=False):
            try:
                if self._writer is not None and not self._writer.in_transaction:
                    self.checkpoints.run(self._writer)
            finally:
                self._writing.release()

    @contextmanager
    def autocommit_connection(self) -> Iterator[sqlite3.Connection]:
        """The same for one statement, read to its end: by itself, that is consistent without a transaction."""
        with self._reading:
            try:
                yield self._open_reader()
            except sqlite3.DatabaseError as error:
                self._raise_explained(error)

    @contextmanager
    def bare(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, outside any transaction. Each of its statements waits for others by itself."""
        with self._writing:
            try:
                connection = self._open_writer()
                connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1_000)}")
                try:
                    yield connection
                finally:
                    with suppress(sqlite3.Error):
                        connection.execute(f"PRAGMA busy_timeout = {_ROUND_MS}")
            except sqlite3.DatabaseError as error:
                self._raise_explained(error)

    def close(self) -> None:
        """Close all connections."""
        with self._reading, self._writing:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            # The writer last: the last connection of all removes the log, once it is copied.
            self.checkpoints.close(self._writer)
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def before_fork(self, until: ExitStack) -> None:
        """Wait for calls in progress, and close the file."""
        for lock in (self._reading, self._writing):
            if not lock.acquire(timeout=self._busy_seconds):
                return
            until.callback(lock.release)
        if not any(one is not None and one.in_transaction for one in self._all):
            with suppress(sqlite3.Error):
                self.close()

    def after_fork(self) -> None:
        """This process is new. A connection that is still open belongs to its parent, and the file with it."""
        self._writing, self._reading = RLock(), RLock()
        for connection in self._all:
            if connection is not None:
                _inherited.add(self.path)
                # Never closed here, not even at the end of the process: that would undo what the parent does.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._writer = self._reader = self.checkpoints.connection = None

    def connect(self) -> sqlite3.Connection:
        """A connection of its own, which never checkpoints by itself, to a file that is there.

        Beside one that is open, never to another: SQLite would make a file where there is none, take the journal for
        its own, and remove it with all that was committed to it.
        """
        if self._writer is not None:
            self._identity.check()
        connection = sqlite3.connect(
            f"{Path(self.path).as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    @property
    def _all(self) -> tuple[sqlite3.Connection | None, ...]:
        return self._reader, self.checkpoints.connection, self._writer

    def _raise_explained(self, error: sqlite3.DatabaseError) -> NoReturn:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise error
        raise unavailable(self.path, error) from error

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction that writes, in as many rounds as make up the time to wait for others."""
        for remaining in reversed(range(max(1, round(self._busy_seconds * 1_000 / _ROUND_MS)))):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not remaining:
                    raise
            else:
                return

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            check_version()
            if self.path in _inherited or fork_safety.has_inherited(self.path):
                raise StoreUnavailable(
                    f"the database {self.path} was in use in the process that this one was forked from; close every"
                    " connection to it before the fork, also those of sqlite3 and SQLAlchemy (engine.dispose()), or"
                    " start the process anew"
                )
            _create_private(self.path)
            connection = self.connect()
            try:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # without effect on a file that has pages
                _use_wal(connection)
                connection.execute(_DURABLE)
                self._is_durable = True
                connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
                _tune(connection, _WRITER_CACHE_KIB)
                connection.execute(f"PRAGMA busy_timeout = {_ROUND_MS}")
            except BaseException:
                connection.close()
                raise
            self._writer = connection
            self._identity.forget()
            self.opened += 1
            self.checkpoints.begin()
        return self._writer

    def _open_reader(self) -> sqlite3.Connection:
        if self._reader is None:
            with self._writing:
                self._open_writer()
            connection = self.connect()
            connection.execute("PRAGMA query_only = 1")
            _tune(connection, _READER_CACHE_KIB)
            self._reader = connection
        return self._reader


def _create_private(path: str) -> None:
    """SQLite gives its other files the mode of the database.

    One that is there is not even opened: to close it again would let go of every lock that this process has on it.
    """
    file = os.path.realpath(path)  # a link may lead to where none is yet
    _refuse_journal_alone(file)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if os.path.isdir(path):  # noqa: PTH112 - as it was written
            raise StoreUnavailable(f"the database {path} cannot be opened: Is a directory") from None
    except FileNotFoundError as error:
        folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - as it was written, not as a Path would put it
        raise StoreUnavailable(f"the database {path} cannot be opened: there is no folder {folder}") from error
    except OSError as error:
        raise StoreUnavailable(f"the database {path} cannot be opened: {error.strerror}") from error


def _refuse_journal_alone(path: str) -> None:
    """SQLite removes a journal that it finds beside a new file, with whatever was committed to it."""
    journal = path + JOURNAL
    with suppress(OSError):
        # In this order: a process that creates both right now creates the database first.
        if os.stat(journal).st_size and not os.path.lexists(path):  # noqa: PTH116 - likewise
            raise StoreUnavailable(
                f"the database {path} is not there, but its journal is: {journal} may hold what was committed last. Put"
                " the database back in its place; or, to begin anew, move the journal away"
            )


def _tune(connection: sqlite3.Connection, cache_kib: int) -> None:
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the journal; SQLite does not wait for another process that does the same, so its lock is waited for."""
    for remaining in reversed(range(_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not remaining:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return
