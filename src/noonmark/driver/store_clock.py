"""The store's clock as a node knows it: the last reading plus the monotonic time since.

It is hardly ever ahead of the store's time whatever the local clock does. A local clock that runs fast is noticed by
comparing its readings with the store's. Until that is proven, `earliest` is what the store's time is at least, and
nothing starts before it: so a start may be late but never early, while the rates of both clocks are steady. A node
reads the clock again before a start if the two differ, so that it is not late either.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.clock import Clock

SLOWEST = 0.8
"""A ratio below this does not mean that the local clock runs fast: the store's clock was set back."""
OUTDATED: Micros = 600 * SECOND
"""How long clocks are compared with one reading: a clock may run fast for a while only."""
SPACING: Micros = SECOND // 8
"""Of readings that follow sooner, the sharper one is kept."""
MAX_READINGS = 240
"""More than are taken at the pace of leases until the oldest are outdated."""
CERTAIN: Micros = SECOND // 1_000
"""A start does not read the clock again for less."""


@frozen
class _Reading:
    """The store's time, taken between two monotonic readings."""

    asked: Micros
    time: Micros
    arrived: Micros

    @property
    def width(self) -> Micros:
        """How long it took."""
        return self.arrived - self.asked


@frozen
class _State:
    """A monotonic reading, the store's time then, and seconds of the store per local second since."""

    moment: Micros
    time: Micros
    rate: float = 1.0
    """Less than one only if the local clock certainly runs fast; then the lowest possible rate."""
    lowest: float = SLOWEST
    """The lowest possible rate."""


class StoreClock:
    """Any thread may read it."""

    def __init__(self, clock: Clock) -> None:
        """Uses the local clock until the store's time is first noted."""
        self._clock, self._monotonic = clock, clock.monotonic
        self.is_noted = False
        self._readings: deque[_Reading] = deque(maxlen=MAX_READINGS)
        """Those that the next one is compared with, oldest first."""
        self._bounds = (0.0, inf)
        """The lowest and the highest rate that is possible by all readings."""
        self._state = _State(clock.monotonic(), clock.micros())

    def now(self) -> Micros:
        """The store's time, or slightly earlier."""
        state = self._state
        return _after(state, self._monotonic() - state.moment, state.rate)

    def earliest(self) -> Micros:
        """What the store's time is at least, also if the local clock runs fast and that is not proven yet."""
        state = self._state
        return _after(state, self._monotonic() - state.moment, state.lowest)

    @property
    def is_certain(self) -> bool:
        """Whether `now` and `earliest` are next to the same."""
        state = self._state
        return (self._clock.monotonic() - state.moment) * (state.rate - state.lowest) <= CERTAIN

    def monotonic(self) -> Micros:
        """Monotonic microseconds."""
        return self._clock.monotonic()

    def note(self, store_time: Micros, asked_at: Micros | None = None) -> None:
        """Record the store's time, which was asked for at that monotonic reading."""
        arrived = self._clock.monotonic()
        reading = _Reading(arrived if asked_at is None else asked_at, store_time, arrived)
        lowest, highest = self._compare(reading)
        known_lowest, known_highest = self._bounds
        if lowest <= known_highest and known_lowest <= highest:  # else the rate is another one by now
            lowest, highest = max(lowest, known_lowest), min(highest, known_highest)
        self._bounds = lowest, highest
        self._remember(reading)
        self.is_noted = True
        lowest = max(SLOWEST, min(lowest, 1.0))
        self._state = _State(arrived, store_time, lowest if highest < 1.0 else 1.0, lowest)

    def _compare(self, last: _Reading) -> tuple[float, float]:
        """The lowest and the highest possible rate, by the readings that agree with the newest ones.

        One that does not agree is dropped with all before it: since then a clock was set, or runs at another rate.
        """
        lowest, highest = 0.0, inf
        for number, first in enumerate(reversed(self._readings)):
            if last.asked <= first.arrived:
                continue
            passed = last.time - first.time
            most, least = passed / (last.asked - first.arrived), passed / (last.arrived - first.asked)
            outdated = last.arrived - first.arrived > OUTDATED and highest < inf
            if outdated or most < max(lowest, SLOWEST) or least > highest:
                self._drop(len(self._readings) - number)
                break
            lowest, highest = max(lowest, least), min(highest, most)
        return lowest, highest

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._readings.popleft()

    def _remember(self, reading: _Reading) -> None:
        last = self._readings[-1] if self._readings else None
        if last is None or reading.asked - last.asked >= SPACING:
            self._readings.append(reading)
        elif reading.width < last.width:
            self._readings[-1] = reading


def _after(state: _State, passed: Micros, rate: float) -> Micros:
    return state.time + (passed if rate == 1.0 else int(passed * rate))
