"""The identity of an open database: whether its path still leads to the file that is open.

A file that was removed or replaced stays open, and takes every write until its last connection is closed; then all of
that is gone. Nothing may be acknowledged that was written to one.
"""

from __future__ import annotations

import os

from noonmark.core.errors import StoreUnavailable

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

    def check(self) -> None:
        """StoreUnavailable when the path leads elsewhere; costs two looks at the file system."""
        for path in (self._path, self._journal):
            known, found = self._known.get(path), _identity(path)
            if known is None and found is not None:
                self._known[path] = found
            elif known != found:
                what = "removed" if found is None else "replaced"
                raise StoreUnavailable(
                    f"the database cannot be used: {path} was {what} while it was open. Nothing is written until the"
                    " file is back in its place; to go on with another file, restart this process"
                )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - it is asked at every transaction
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
