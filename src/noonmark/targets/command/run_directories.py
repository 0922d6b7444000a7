"""Run directories: a private home and working directory for each run of a command from the network.

All of one process are in a base directory that it holds a lock on. So a later process can tell which ones were left by
a process that was killed, and removes them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("noonmark.targets")
REMOVE_ATTEMPTS = 3
"""How often removal is tried: processes that a program left behind may still write meanwhile."""


class RunDirectories:
    """The run directories of one process."""

    def __init__(self) -> None:
        self._base: Path | None = None
        self._lock_fd = -1
        self._in_use = 0
        self._is_closed = False
        self._lock = Lock()

    @contextmanager
    def create(self) -> Iterator[str]:
        """Create a directory for one run; it is removed afterwards, with its content. Raises OSError."""
        with self._lock:
            directory = Path(tempfile.mkdtemp(prefix="run-", dir=self._ensure_base()))
            self._in_use += 1
        try:
            yield str(directory)
        finally:
            _remove(directory)
            with self._lock:
                self._in_use -= 1
                self._remove_base()

    def remove_stale(self) -> None:
        """Remove what ended processes of this user have left."""
        for base in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
            with suppress(OSError), _opened(base) as fd:
                if os.fstat(fd).st_uid == os.geteuid() and _try_lock(fd):
                    _remove(base)

    def close(self) -> None:
        """Create no more; the base is removed with the last directory in use."""
        with self._lock:
            self._is_closed = True
            self._remove_base()

    def _ensure_base(self) -> Path:
        if self._is_closed:
            raise OSError("this node is stopping")
        while self._base is None or not self._base.is_dir():  # a cleaner of temporary files may have removed it
            self._unlock_base()
            self._create_base()
        return self._base

    def _create_base(self) -> None:
        base = Path(tempfile.mkdtemp(prefix=_prefix()))
        # Another process that removes stale ones just now may have removed it before it was locked.
        with suppress(FileNotFoundError):
            self._lock_fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            self._base = base if _try_lock(self._lock_fd) and base.is_dir() else None

    def _remove_base(self) -> None:
        if self._is_closed and not self._in_use and self._base is not None:
            with suppress(OSError):  # a run directory could not be removed; a later process removes it
                self._base.rmdir()
            self._unlock_base()

    def _unlock_base(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._base, self._lock_fd = None, -1


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix() -> str:
    return f"noonmark-runs-{os.geteuid()}-"


def _remove(directory: Path) -> None:
    """Remove a directory, without following links; log a warning if that fails."""
    for _ in range(REMOVE_ATTEMPTS):
        with suppress(OSError, RecursionError):
            shutil.rmtree(directory)
        if not os.path.lexists(directory):
            return
        with suppress(OSError, RecursionError):
            _make_writable(directory)
    logger.warning("run directory could not be removed: %s", directory)


def _make_writable(directory: Path) -> None:
    """A program may have left directories that even their owner cannot read or change."""
    directory.chmod(0o700)
    for parent, names, _ in os.walk(directory):
        for name in names:
            if not (path := Path(parent, name)).is_symlink():
                path.chmod(0o700)
