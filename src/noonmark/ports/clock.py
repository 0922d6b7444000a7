"""The clock: the time of day and monotonic time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Clock(Protocol):
    """Three readings. Only a node's `StoreClock` combines them."""

    def micros(self) -> Micros:
        """The time of day in microseconds. It may jump in either direction."""

    def monotonic(self) -> Micros:
        """Monotonic microseconds."""

    def boot(self) -> Micros:
        """Monotonic microseconds that include sleep; the time of day is judged by it."""
