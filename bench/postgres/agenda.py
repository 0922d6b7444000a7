"""What every contestant is given, and what it gives back."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Jobs whose due times are spread evenly over some seconds; 0: all at one instant."""

    count: int
    seconds: float = 0
    lead: float
    """How long before the first is due they begin to be stored."""
    patience: float
    """How long to wait for them after the last is due."""

    def begin(self) -> Agenda:
        """The times of these jobs; to be asked for when all is ready and the jobs can be stored."""
        return Agenda(load=self, begin=round(time.time() + self.lead, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """A load whose time has been fixed."""

    load: Load
    begin: float

    def dues(self) -> list[float]:
        """When each job is due, in seconds since the epoch."""
        count, seconds = self.load.count, self.load.seconds
        return [self.begin + seconds * number / count for number in range(count)]

    def all_stored(self) -> None:
        """Check that no job was due before all were stored: that would measure storing them."""
        assert time.time() < self.begin, "they were due before all of them were there"

    @property
    def is_over(self) -> bool:
        """Whether to wait no longer."""
        return time.time() > self.begin + self.load.seconds + self.load.patience

    def outcome(self, lateness: list[float]) -> Outcome:
        """What came of it, to be called as soon as the last end is seen to be written."""
        return Outcome(lateness=list(lateness), seconds=time.time() - self.begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How late each job that ran has started, and how long after the first due time the last end was written."""

    lateness: list[float]
    seconds: float
