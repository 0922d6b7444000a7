"""The SQLite library: the wheel's where there is one, since it is newer than most interpreters' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as sqlite3
    except ImportError:
        import sqlite3

__all__ = ["SAFE_FOR_MANY", "is_busy", "sqlite3", "unavailable"]

SAFE_FOR_MANY = (3, 51, 3)
"""Before this version, two connections that write and checkpoint at one moment may damage the file."""

_SENTENCES = {
    "SQLITE_BUSY": "another process keeps it locked; if that lasts, see which process has it open",
    "SQLITE_LOCKED": "another connection keeps it locked; if that lasts, see which process has it open",
    "SQLITE_FULL": "there is no space left for it; nothing was written, and it works again when there is",
    "SQLITE_IOERR": "the disk reports an error in reading or writing it; nothing was written",
    "SQLITE_CANTOPEN": "it cannot be opened; its folder must exist, and be writable for this user",
    "SQLITE_PERM": "this user may not open it",
    "SQLITE_READONLY": "this user may not write to it",
    "SQLITE_NOTADB": "it is not an SQLite database",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the lock that was asked for."""
    return _name(error) in ("SQLITE_BUSY", "SQLITE_LOCKED")


def unavailable(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """What went wrong, in a sentence that says what to do."""
    return StoreUnavailable(f"the database {path} cannot be used: {_SENTENCES.get(_name(error), str(error))}")


def _name(error: sqlite3.Error) -> str:
    """The name of the error code without its details: SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    name: str = getattr(error, "sqlite_errorname", None) or _name_from_text(str(error))
    return "_".join(name.split("_")[:2])


def _name_from_text(message: str) -> str:
    """Not every build of the driver tells the code of an error, but the library's own sentences do not change."""
    known = {
        "locked": "SQLITE_BUSY",
        "full": "SQLITE_FULL",
        "disk I/O": "SQLITE_IOERR",
        "unable to open": "SQLITE_CANTOPEN",
        "readonly": "SQLITE_READONLY",
        "not a database": "SQLITE_NOTADB",
        "malformed": "SQLITE_CORRUPT",
    }
    return next((name for words, name in known.items() if words in message), "SQLITE_ERROR")
