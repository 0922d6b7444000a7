"""The clock: where the time of day and the passing of time come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Clock(Protocol):
    """Three readings that only ever meet in a node's own reckoning of now."""

    def micros(self) -> Micros:
        """The time of day. It may jump, in either direction."""

    def monotonic(self) -> Micros:
        """Time that passes evenly, from a beginning of no importance."""

    def boot(self) -> Micros:
        """The same, and it passes in sleep too; the time of day is judged by it."""
