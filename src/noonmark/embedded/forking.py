"""Forking: a process that is forked has the schedulers of its parent, but none of their threads."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Forked(Protocol):
    def after_fork(self) -> None:
        """It finds itself in a new process."""


_alive: weakref.WeakSet[_Forked] = weakref.WeakSet()


def watch(scheduler: _Forked) -> None:
    """Let a scheduler know when it finds itself in a new process."""
    _alive.add(scheduler)


def _after_fork() -> None:
    for scheduler in list(_alive):
        scheduler.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
