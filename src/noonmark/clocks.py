"""The only module that reads a clock. Everything else takes `now` as an argument."""

from __future__ import annotations

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
