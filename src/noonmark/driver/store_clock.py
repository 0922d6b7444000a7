"""The store's clock as a node knows it: the last reading plus the monotonic time since.

It is a lower bound of the store's time whatever the local clock does, so a start may be late but never early. A local
clock that runs fast is noticed by comparing its readings with the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.clock import Clock

SLOWEST = 0.8
"""A ratio below this does not mean that the local clock runs fast: the store's clock was set back."""
OUTDATED: Micros = 600 * SECOND
"""How long clocks are compared from one first reading: a clock may run fast for a while only."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The store's time, taken between two monotonic readings."""

    asked: Micros
    time: Micros
    arrived: Micros


class StoreClock:
    """Any thread may read it."""

    def __init__(self, clock: Clock) -> None:
        """Uses the local clock until the store's time is first noted."""
        self._clock = clock
        self.is_noted = False
        self._first: _Reading | None = None
        self._state: tuple[Micros, Micros, float] = (clock.monotonic(), clock.micros(), 1.0)
        """A monotonic reading, the store's time then, and seconds of the store per local second."""

    def now(self) -> Micros:
        """The store's time, or slightly earlier."""
        moment, time, rate = self._state
        passed = self._clock.monotonic() - moment
        return time + (passed if rate == 1.0 else int(passed * rate))

    def monotonic(self) -> Micros:
        """Monotonic microseconds."""
        return self._clock.monotonic()

    def note(self, store_time: Micros, asked_at: Micros | None = None) -> None:
        """Record the store's time, which was asked for at that monotonic reading."""
        arrived = self._clock.monotonic()
        reading = _Reading(arrived if asked_at is None else asked_at, store_time, arrived)
        self.is_noted = True
        self._state = (arrived, store_time, self._rate(reading))

    def _rate(self, last: _Reading) -> float:
        """Less than one only if the local clock certainly runs fast; then the lowest possible rate."""
        first = self._first
        if first is None or last.asked <= first.arrived:
            self._first = first or last
            return 1.0
        passed = last.time - first.time
        most, least = passed / (last.asked - first.arrived), passed / (last.arrived - first.asked)
        if most < SLOWEST or last.arrived - first.arrived > OUTDATED:
            self._first = last
        return least if SLOWEST <= most < 1.0 else 1.0
