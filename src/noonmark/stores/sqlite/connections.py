"""The connections to one SQLite file: one that writes, one that reads beside it.

Whoever writes has the lock of this process, then that of the file, for one short transaction. SQLite itself waits for
other processes; nobody is told that the database was locked for a moment.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.sqlite import driver
from noonmark.stores.sqlite.driver import is_busy, sqlite3, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITER_CACHE_KIB = 32_768
_READER_CACHE_KIB = 8_192
_JOURNAL_BYTES = 64 * 1024 * 1024
_JOURNAL_PAGES = 8_192
"""So many pages, 32 MB of them, are written before they are moved into the database, each then once: what a burst
writes again and again is moved seldom. It is what a restart after a crash has to read."""
_TRIES = 10
_abandoned: list[sqlite3.Connection] = []
"""Connections of a parent process: using or closing them here would break its locks."""


class Connections:
    """Opens them on demand, and again in a process that was forked."""

    def __init__(self, path: str, *, busy_seconds: float) -> None:
        """Nothing is opened yet."""
        self.path = path
        self._busy_seconds = busy_seconds
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._writing, self._reading = RLock(), RLock()
        # An SQLite with the bug is safe while it has the file to itself, with one connection.
        self.is_alone = sqlite3.sqlite_version_info < driver.SAFE_FOR_MANY

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that may write: all of it is kept, or nothing."""
        self._after_fork()
        with self._writing, self._explained():
            connection = self._open_writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has undone it already.
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view, beside whoever writes."""
        with self.glancing() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    @contextmanager
    def glancing(self) -> Iterator[sqlite3.Connection]:
        """The same for one statement, read to its end: by itself, that is consistent without a transaction."""
        self._after_fork()
        with self._writing if self.is_alone else self._reading, self._explained():
            yield self._open_writer() if self.is_alone else self._open_reader()

    @contextmanager
    def bare(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, outside any transaction."""
        self._after_fork()
        with self._writing, self._explained():
            yield self._open_writer()

    def close(self) -> None:
        """Let go of the file."""
        self._after_fork()
        with self._reading, self._writing:
            # The writer last: whoever is last moves the journal into the database.
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def connect(self) -> sqlite3.Connection:
        """A connection of its own."""
        return sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=512
        )

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _abandoned.extend(one for one in (self._writer, self._reader) if one is not None)
            self._writer = self._reader = None
            self._writing, self._reading = RLock(), RLock()  # the parent may have held them
            self._pid = os.getpid()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            if is_busy(error) and self.is_alone:
                raise StoreUnavailable(
                    f"the database {self.path} is open in another process, and SQLite {sqlite3.sqlite_version} is not"
                    " safe for several; stop the other one, or install pysqlite3"
                ) from error
            raise unavailable(self.path, error) from error

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            _create_private(self.path)
            connection = self.connect()
            try:
                if self.is_alone:
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                _use_wal(connection)
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_JOURNAL_PAGES}")
                _tune(connection, _WRITER_CACHE_KIB)
            except BaseException:
                connection.close()
                raise
            self._writer = connection
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
    """SQLite gives the files beside it the mode of the database."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except FileNotFoundError as error:
        folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - as it was written, not as a Path would put it
        raise StoreUnavailable(f"the database {path} cannot be opened: there is no folder {folder}") from error
    except OSError as error:
        raise StoreUnavailable(f"the database {path} cannot be opened: {error.strerror}") from error


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
