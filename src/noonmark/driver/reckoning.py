"""A node's own reckoning of now: the last time that was read from the store, and the time that has passed since.

It is a lower bound of the store's time, whatever the clock of this machine does: a start may be late, but never early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.clock import Clock


class Reckoning:
    """Now, as this node knows it. It may be read from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Until the store's time has been read, the clock of this machine has to do."""
        self._clock = clock
        self.is_noted = False
        self._ahead = clock.micros() - clock.monotonic()

    def now(self) -> Micros:
        """The store's time, or a little earlier."""
        return self._clock.monotonic() + self._ahead

    def note(self, store_time: Micros) -> None:
        """Take over a time that the store has just told."""
        self.is_noted = True
        self._ahead = store_time - self._clock.monotonic()
