"""Wrong clocks for single nodes."""

from pathlib import Path

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, from_micros


class WrongClock(SystemClock):
    """Off by so many seconds from the beginning, gaining so many on each second that passes, and set while it runs.

    Whoever sets it does so by a file, which says by how many seconds more its time of day is off. Like that of a
    machine, it has two readings: both gain, and only the time of day is off or set.
    """

    def __init__(self, offset=0.0, gain=0.0, file=None):
        self._offset, self._gain = int(offset * SECOND), gain
        self._file = None if file is None else Path(file)
        self._begun = super().monotonic()

    def now(self):
        return from_micros(self.micros())

    def micros(self):
        return super().micros() + self._gained() + self._offset + self._set()

    def monotonic(self):
        return super().monotonic() + self._gained()

    def _gained(self):
        return int(self._gain * (super().monotonic() - self._begun))

    def _set(self):
        if self._file is None or not self._file.exists():
            return 0
        return int(float(self._file.read_text()) * SECOND)


def set_clock(file, seconds):
    """Let the time of day of every clock that reads this file be off by so much, from one moment to the next."""
    file = Path(file)
    new = file.with_name(file.name + ".new")
    new.write_text(str(seconds))
    new.replace(file)
