"""The switch interval of the interpreter: how long a thread that computes keeps it from the threads of a driver.

A start passes from the loop to the store, back, and to the thread of a function. At each step, the next thread may have
to wait for one switch: with Python's default of 5 ms, and a thread in the program that computes all the time, a
thousand starts a second fall behind by most of a second.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT, SHORT = 0.005, 0.000_25
"""Seconds. A program that has set another interval than the default keeps it."""
_lock = Lock()
_users = 0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten the switch interval of this process, for as long as any driver runs in it."""
    _change(1)
    try:
        yield
    finally:
        _change(-1)


def _change(step: int) -> None:
    global _users
    with _lock:
        before, _users = _users, _users + step
        if not before and _is(DEFAULT):
            sys.setswitchinterval(SHORT)
        elif not _users and _is(SHORT):
            sys.setswitchinterval(DEFAULT)


def _is(seconds: float) -> bool:
    return abs(sys.getswitchinterval() - seconds) < seconds / 100


def _after_fork() -> None:
    """No driver runs in the new process."""
    global _lock, _users
    _lock, _users = Lock(), 0
    if _is(SHORT):
        sys.setswitchinterval(DEFAULT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
