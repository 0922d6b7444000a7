"""Fork safety: a forked process starts with nothing that belongs to its parent.

SQLite must not be carried across a fork. In the child the library believes that it has the locks of the parent, and so
takes none; then one of the two removes the journal that the other writes to, and acknowledged commits are lost. So no
thread is inside a store during a fork, and nothing is open; both processes open it again on demand.

The same holds for the program's own connections, which only the program can close. So the new process remembers which
files were open, and refuses to use them.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
from contextlib import ExitStack, suppress
from typing import Protocol


class Forked(Protocol):
    """A store that may find itself in two processes."""

    def before_fork(self, until: ExitStack) -> None:
        """Keep every thread out until the stack is closed, which happens in the parent only."""

    def after_fork(self) -> None:
        """Runs in the child, where locks that another thread held are never released."""


_stores: weakref.WeakSet[Forked] = weakref.WeakSet()
_inherited: dict[int, tuple[int, int]] = {}
"""The files that were open when this process was forked, by descriptor."""
_DESCRIPTORS = "/dev/fd"
_forking = threading.local()


def watch(store: Forked) -> None:
    """Let a store know of every fork of this process."""
    _stores.add(store)


def has_inherited(path: str) -> bool:
    """Whether this process was forked while the file was open, and has not closed it since."""
    if not _inherited:
        return False
    with suppress(OSError):
        identity = _identity(os.stat(path))  # noqa: PTH116 - as it was written
        for descriptor in [one for one, file in _inherited.items() if file == identity]:
            with suppress(OSError):
                if _identity(os.fstat(descriptor)) == identity:
                    return True
            del _inherited[descriptor]
    return False


def _open_files() -> dict[int, tuple[int, int]]:
    """The regular files that are open in this process; none where the system does not say."""
    files = {}
    with suppress(OSError):
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - it may be closed again by now
            with suppress(OSError, ValueError):
                described = os.fstat(int(name))
                if stat.S_ISREG(described.st_mode):
                    files[int(name)] = _identity(described)
    return files


def _identity(described: os.stat_result) -> tuple[int, int]:
    return described.st_dev, described.st_ino


def _before() -> None:
    _forking.until = ExitStack()
    for store in list(_stores):
        store.before_fork(_forking.until)


def _in_parent() -> None:
    _forking.until.close()


def _in_child() -> None:
    _inherited.clear()
    _inherited.update(_open_files())
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
