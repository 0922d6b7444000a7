"""Checkpoints: they copy committed pages from the write-ahead log into the database file.

SQLite before 3.51.3 has a bug. A checkpoint reads where the log ends; if a writer then restarts the log before the
checkpoint continues, the checkpoint marks frames of the new log as copied that are not, and they are lost. So no
connection may write during a checkpoint, whatever the version:

- No connection of ours checkpoints by itself (`wal_autocheckpoint = 0`).
- A checkpoint runs on a connection of its own while the writer's connection holds the write lock (`BEGIN IMMEDIATE`).
  It is PASSIVE: the other modes ask for the lock that is held, and without it they go on as PASSIVE, unprotected.
- The last connection that closes checkpoints too, under an exclusive lock of the file, which it gets only while no
  other connection has the file open.
- Connections that only read never checkpoint, except as the last one to close.

Other processes wait while a checkpoint runs. So it comes before there is much to copy.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.stores.sqlite.errors import is_busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros

logger = logging.getLogger("noonmark.stores.sqlite")

LOG_BYTES = 8 * 1024 * 1024
"""From this size of the log on, a commit is followed by a checkpoint. A log that begins anew is cut to it
(`journal_size_limit`), so a file that is larger does hold more."""
CURRENT_WITHIN: Micros = 20 * SECOND
"""A commit is in the database file after about this long, if any process commits or watches."""
RETRY: Micros = SECOND
"""While a reader holds the log, the next checkpoint comes after so long, or when the log has doubled its excess."""
HELD_BYTES = 256 * 1024 * 1024
"""A log of this size is caused by a long reader, and logged as a warning."""
WARN_EVERY: Micros = 60 * SECOND
PATIENCE_MS = 100
"""How long a checkpoint waits for the write lock; it can come later."""


def log_of(path: str) -> str:
    """The path of the log: next to the file itself, even if the path is a link."""
    return f"{os.path.realpath(path)}-wal"


class Checkpoints:
    """Checkpoints of one file, made under the process's write lock."""

    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection], now: Callable[[], Micros]) -> None:
        """Nothing is opened yet."""
        self._path, self._log = path, log_of(path)
        self._connect, self._now = connect, now
        self.connection: sqlite3.Connection | None = None
        self._is_behind = False
        self._tried: Micros = 0
        self._tried_size = 0
        self._warned: Micros | None = None

    def begin(self) -> None:
        """The file was opened: what others left in the log is copied in time."""
        self._log = log_of(self._path)
        self._is_behind, self._tried, self._tried_size = True, self._now(), 0

    def after_commit(self, writer: sqlite3.Connection, size: int) -> None:
        """Copy the log if it has become large, or if the file has been behind for long."""
        self._is_behind = True
        if size <= LOG_BYTES:
            self._tried_size = 0
            self.keep_current(writer)
        elif size >= self._tried_size + LOG_BYTES or self._passed(RETRY):
            self.run(writer)

    def after_change(self) -> None:
        """Another process has written."""
        self._is_behind = True

    def is_due(self) -> bool:
        """Whether the file has been behind for long."""
        return self._is_behind and self._passed(CURRENT_WITHIN)

    def keep_current(self, writer: sqlite3.Connection) -> None:
        """Copy the log if the file has been behind for long."""
        if self.is_due():
            self.run(writer)

    def run(self, writer: sqlite3.Connection) -> bool:
        """Copy the log while the writer's connection blocks other writers; False unless all of it was copied.

        It never fails the commit before it. What is left is tried again.
        """
        size = self.size()
        self._tried, self._tried_size = self._now(), size
        patience = writer.execute("PRAGMA busy_timeout").fetchone()[0]
        try:
            writer.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
            writer.execute("BEGIN IMMEDIATE")
            try:
                busy, frames, copied = self._open().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                writer.execute("ROLLBACK")
            self._is_behind = bool(busy) or copied < frames
        except sqlite3.Error as error:
            if not is_busy(error):
                logger.warning("the checkpoint of %s failed, and is tried again: %s", self._log, error)
        except StoreUnavailable as error:
            logger.warning("the checkpoint of %s is tried again: %s", self._log, error)
        finally:
            writer.execute(f"PRAGMA busy_timeout = {patience}")
        self._warn(size)
        return not self._is_behind

    def close(self, writer: sqlite3.Connection | None) -> None:
        """Leave a current file behind, also where others keep it open."""
        if writer is not None and self._is_behind and not writer.in_transaction:
            self.run(writer)
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _open(self) -> sqlite3.Connection:
        if self.connection is None:
            self.connection = self._connect()
        return self.connection

    def size(self) -> int:
        """How many bytes the log has."""
        # Only its size: opening and closing the file would release every lock of this process.
        try:
            return os.stat(self._log).st_size  # noqa: PTH116 - a Path would cost more than the call
        except OSError:
            return 0

    def _passed(self, time: Micros) -> bool:
        """Whether so much time has passed since the last one; a clock that was set back counts as well."""
        return not 0 <= self._now() - self._tried < time

    def _warn(self, size: int) -> None:
        """A large log that is fully copied was one large transaction; it restarts with the next one."""
        if size < HELD_BYTES or not self._is_behind:
            return
        if self._warned is not None and 0 <= self._now() - self._warned < WARN_EVERY:
            return
        self._warned = self._now()
        logger.warning(
            "the write-ahead log %s has %s MB: a program keeps a read transaction open, and nothing can be removed from"
            " the log; end that transaction",
            self._log,
            size // (1024 * 1024),
        )
