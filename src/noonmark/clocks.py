"""The only module that reads a clock. Everything else takes `now` as an argument."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The present instant, aware and in UTC."""
        return datetime.now(UTC)

    def micros(self) -> Micros:
        """The present instant, in microseconds."""
        return time.time_ns() // 1_000

    def monotonic(self) -> Micros:
        """Microseconds since a beginning of no importance; no change of the time of day touches it."""
        return time.monotonic_ns() // 1_000

    def boot(self) -> Micros:
        """The same, but it continues while the machine sleeps, if the system has such a clock."""
        return (time.monotonic_ns() if _BOOT is None else time.clock_gettime_ns(_BOOT)) // 1_000


def _boot_clock() -> int | None:
    """The clock that goes on in sleep: Linux has one of its own, and on macOS the monotonic one of the system does.

    Elsewhere Python's own has to do. On Windows it goes on in sleep as well; where it does not, a machine that wakes
    after more than an hour looks as if the time had been set.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.CLOCK_BOOTTIME
    return getattr(time, "CLOCK_MONOTONIC", None) if sys.platform == "darwin" else None


_BOOT = _boot_clock()
