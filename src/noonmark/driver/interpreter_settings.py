"""Settings of the interpreter that are different while a driver runs in this process.

The switch interval is how long a thread that computes keeps the interpreter from the threads of a driver. A start
passes from the loop to the store, back, and to the thread of a function. At each step, the next thread may have to wait
for one switch: with 5 ms, and a thread in the program that computes all the time, a thousand starts a second fall
behind by most of a second.

The garbage collector runs after a number of new objects. With 700, or the 2,000 of Python 3.13, what a burst has in
progress survives several runs and is promoted to the oldest generation. The collector then soon scans everything that
the program holds, in the middle of the burst: a sixth of its time on PostgreSQL.
"""

from __future__ import annotations

import gc
import math
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A setting with the default of Python and its value for drivers. A program that has set another one keeps it."""

    read: Callable[[], float]
    write: Callable[[float], None]
    default: float
    value: float

    def replace(self, before: float, after: float) -> bool:
        """Set it if it has the value that is expected; returns whether it had."""
        is_expected = math.isclose(self.read(), before, rel_tol=0.01)
        if is_expected:
            self.write(after)
        return is_expected


SWITCH_INTERVAL = Setting(sys.getswitchinterval, sys.setswitchinterval, 0.005, 0.000_07)
"""In seconds."""
NEW_OBJECTS = Setting(
    lambda: gc.get_threshold()[0],
    lambda count: gc.set_threshold(int(count)),
    700 if sys.version_info < (3, 13) else 2_000,
    20_000,
)
"""How many new objects the collector waits for."""
_SETTINGS = (SWITCH_INTERVAL, NEW_OBJECTS)
_lock = Lock()
_users = 0
_changed: list[Setting] = []


@contextmanager
def driver_settings() -> Iterator[None]:
    """Change the settings of this process for as long as any driver runs in it."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(step: int) -> None:
    global _users
    with _lock:
        before, _users = _users, _users + step
        if not before:
            _changed.extend(one for one in _SETTINGS if one.replace(one.default, one.value))
        elif not _users:
            _restore()


def _restore() -> None:
    while _changed:
        setting = _changed.pop()
        setting.replace(setting.value, setting.default)


def _after_fork() -> None:
    """No driver runs in the new process."""
    global _lock, _users
    _lock, _users = Lock(), 0
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
