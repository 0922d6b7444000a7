"""A node's own reckoning of now: the last time that was read from the store, and the time that has passed since.

It is a lower bound of the store's time, whatever the clock of this machine does: a start may be late, but never early.
Time that passes too fast here is noticed by comparing it with what has passed in the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.clock import Clock

SLOWEST = 0.8
"""A store in which less time than this has passed has not run slower than here: its clock was set back."""
OUTDATED: Micros = 600 * SECOND
"""Time is compared over so long, and then begun anew: a clock may run fast for a while."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A time of the store, which it was between two moments of this machine."""

    asked: Micros
    time: Micros
    arrived: Micros


class StoreClock:
    """Now, as this node knows it. It may be read from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Until the store's time has been read, the clock of this machine has to do."""
        self._clock = clock
        self.is_noted = False
        self._first: _Reading | None = None
        self._state: tuple[Micros, Micros, float] = (clock.monotonic(), clock.micros(), 1.0)
        """A moment of this machine, what it was in the store, and how much passes there while a second passes here."""

    def now(self) -> Micros:
        """The store's time, or a little earlier."""
        moment, time, rate = self._state
        passed = self._clock.monotonic() - moment
        return time + (passed if rate == 1.0 else int(passed * rate))

    def monotonic(self) -> Micros:
        """The moment, to be told when the answer has come."""
        return self._clock.monotonic()

    def note(self, store_time: Micros, asked: Micros | None = None) -> None:
        """Take over a time that the store has just told to whoever asked at that moment."""
        arrived = self._clock.monotonic()
        reading = _Reading(arrived if asked is None else asked, store_time, arrived)
        self.is_noted = True
        self._state = (arrived, store_time, self._rate(reading))

    def _rate(self, last: _Reading) -> float:
        """Less than one only if it is certain that time passes too fast here; then the least that it can be."""
        first = self._first
        if first is None or last.asked <= first.arrived:
            self._first = first or last
            return 1.0
        passed = last.time - first.time
        most, least = passed / (last.asked - first.arrived), passed / (last.arrived - first.asked)
        if most < SLOWEST or last.arrived - first.arrived > OUTDATED:
            self._first = last
        return least if SLOWEST <= most < 1.0 else 1.0
