"""The SQLite library of the interpreter, and its errors.

Two SQLite libraries in one process do not see each other's locks. A program that opened its file with `sqlite3` beside
a second library of ours would remove the write-ahead log under the store, and every later commit would be lost.
"""

from __future__ import annotations

import sqlite3

from noonmark.core.errors import StoreUnavailable

__all__ = ["OLDEST", "check_version", "is_busy", "is_damaged", "unavailable"]

OLDEST = (3, 35, 0)
"""The first version with RETURNING. Statements use nothing newer."""

_SENTENCES = {
    "SQLITE_BUSY": "another process keeps it locked; if that lasts, see which process has it open",
    "SQLITE_LOCKED": "another connection keeps it locked; if that lasts, see which process has it open",
    "SQLITE_FULL": "no space left on the disk; nothing was written, and it works again when there is space",
    "SQLITE_IOERR": "the disk reports an error in reading or writing it; nothing was written",
    "SQLITE_CANTOPEN": "it cannot be opened; its folder must exist, and be writable for this user",
    "SQLITE_PERM": "this user may not open it",
    "SQLITE_READONLY": "this user may not write to it",
    "SQLITE_NOTADB": "it is not an SQLite database",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup",
}


def check_version() -> None:
    """Refuse an SQLite that is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST[:2]))
        raise StoreUnavailable(
            f"this Python has SQLite {sqlite3.sqlite_version}, and Noonmark needs {oldest} or newer; use a Python with"
            " a newer one (python -c 'import sqlite3; print(sqlite3.sqlite_version)'), or PostgreSQL"
        )


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has the lock."""
    return _name(error) in ("SQLITE_BUSY", "SQLITE_LOCKED")


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file is not a database, is damaged, or lacks tables or columns that our statements use."""
    return _name(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")


def unavailable(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """What went wrong, in a sentence that says what to do."""
    return StoreUnavailable(f"the database {path} cannot be used: {_SENTENCES.get(_name(error), str(error))}")


def _name(error: sqlite3.Error) -> str:
    """The name of the error code without its details: SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    name: str = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    return "_".join(name.split("_")[:2])
