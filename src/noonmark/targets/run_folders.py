"""Run folders: a private folder for each run of a command that came over the network, its home and working folder.

All of one process are in a folder that it holds a lock on, so that a later one can tell what was left by one that was
killed, and removes that.
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
TRIES = 3
"""How often a folder is removed: what a program left behind may still write while that goes on."""


class RunFolders:
    """The folders of one process."""

    def __init__(self) -> None:
        """There are none yet."""
        self._base: Path | None = None
        self._held = -1
        self._lent = 0
        self._is_closed = False
        self._lock = Lock()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """A folder for one run; it is removed afterwards, with everything in it. Raises OSError."""
        with self._lock:
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._ready()))
            self._lent += 1
        try:
            yield str(folder)
        finally:
            _remove(folder)
            with self._lock:
                self._lent -= 1
                self._leave()

    def sweep(self) -> None:
        """Remove what processes of this user have left that are gone."""
        for left in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
            with suppress(OSError), _opened(left) as held:
                if os.fstat(held).st_uid == os.geteuid() and _is_locked(held):
                    _remove(left)

    def close(self) -> None:
        """Lend no more; what is left goes with the last one that was lent."""
        with self._lock:
            self._is_closed = True
            self._leave()

    def _ready(self) -> Path:
        if self._is_closed:
            raise OSError("this node is about to stop")
        while self._base is None or not self._base.is_dir():  # who tidies up temporary files may have taken it away
            self._let_go()
            self._begin()
        return self._base

    def _begin(self) -> None:
        base = Path(tempfile.mkdtemp(prefix=_prefix()))
        # Another process that sweeps just now may have taken it for one that was left, and removed it.
        with suppress(FileNotFoundError):
            self._held = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            self._base = base if _is_locked(self._held) and base.is_dir() else None

    def _leave(self) -> None:
        if self._is_closed and not self._lent and self._base is not None:
            with suppress(OSError):  # a run could not be removed; its base is left for a later process
                self._base.rmdir()
            self._let_go()

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
        self._base, self._held = None, -1


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield number
    finally:
        os.close(number)


def _is_locked(number: int) -> bool:
    """Lock it, unless somebody else has."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix() -> str:
    return f"noonmark-runs-{os.geteuid()}-"


def _remove(folder: Path) -> None:
    """Remove a folder, without following a link; what cannot be removed is told of."""
    for _ in range(TRIES):
        with suppress(OSError, RecursionError):
            shutil.rmtree(folder)
        if not os.path.lexists(folder):
            return
        with suppress(OSError, RecursionError):
            _open_up(folder)
    logger.warning("the folder of a run could not be removed: %s", folder)


def _open_up(folder: Path) -> None:
    """A program may have left folders that even their owner cannot look into or change."""
    folder.chmod(0o700)
    for here, inner, _ in os.walk(folder):
        for name in inner:
            if not (path := Path(here, name)).is_symlink():
                path.chmod(0o700)
