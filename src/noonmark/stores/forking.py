"""Forking: a process that is forked begins with nothing that belongs to its parent.

SQLite must not be carried across a fork. In the child the library believes that it has the locks of the parent, and so
takes none; then one of the two removes the journal that the other writes to, and what was acknowledged is lost. So
nobody is inside a store while the process is forked, and nothing is open; both processes open it again on demand.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import ExitStack
from typing import Protocol


class Forked(Protocol):
    """A store that may find itself in two processes."""

    def before_fork(self, until: ExitStack) -> None:
        """Let nobody in until the stack is closed, which happens in the parent only."""

    def after_fork(self) -> None:
        """This is the child. Locks that anybody held are held for good."""


_stores: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking = threading.local()


def watch(store: Forked) -> None:
    """Let a store know of every fork of this process."""
    _stores.add(store)


def _before() -> None:
    _forking.until = ExitStack()
    for store in list(_stores):
        store.before_fork(_forking.until)


def _in_parent() -> None:
    _forking.until.close()


def _in_child() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
