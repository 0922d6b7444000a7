"""A clock that moves only when a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import MAX_INSTANT, from_micros, seconds_to_micros, to_micros

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros


class FakeClock:
    """Stands still at `start`, an aware datetime, until it is moved on."""

    def __init__(self, start: datetime) -> None:
        """Begin there."""
        self._micros = to_micros(start)

    def now(self) -> datetime:
        """What it shows, in UTC."""
        return from_micros(self._micros)

    def micros(self) -> Micros:
        """What it shows, in microseconds."""
        return self._micros

    def monotonic(self) -> Micros:
        """The same: it never jumps."""
        return self._micros

    def boot(self) -> Micros:
        """The same."""
        return self._micros

    def advance(self, seconds: float) -> None:
        """Advance the clock; nothing runs meanwhile."""
        if seconds < 0:
            raise ValueError("time does not run backwards: seconds must not be negative")
        moved = self._micros + seconds_to_micros(seconds)
        if moved > MAX_INSTANT:
            raise ValueError("the clock cannot go beyond the year 9999")
        self._micros = moved

    def move_to(self, instant: datetime) -> None:
        """Advance the clock to an instant; a past one changes nothing."""
        self._micros = max(self._micros, to_micros(instant))
