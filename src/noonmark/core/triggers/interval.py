"""Interval: elapsed time from an anchor, without drift; zones and daylight saving do not matter to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.instants import MAX_INSTANT, Micros, from_micros, micros_to_seconds
from noonmark.core.triggers.trigger import Trigger, duration_argument, in_range

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

UNITS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
MIN_EVERY_SECONDS = 0.001
MAX_EVERY_SECONDS = 3_155_760_000
"""A century."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class IntervalTrigger(Trigger):
    """Fires at `start_at`, then at every interval. Without a start it has no fire until `bind` anchors it."""

    every: Micros

    type: ClassVar[str] = "interval"

    def __init__(  # noqa: PLR0913 - the public signature, mostly defaults
        self,
        every_seconds: float | timedelta | None = None,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        jitter_seconds: float | timedelta = 0,
    ) -> None:
        """From a millisecond to a century; `end_at` is inclusive.

        The interval is `every_seconds`, or else the sum of `seconds`, `minutes`, `hours` and `days`.
        """
        lengths = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        if given := {unit: length for unit, length in lengths.items() if length}:
            every_seconds = _sum_of(given, every_seconds)
        if every_seconds is None:
            raise InvalidTrigger("give every_seconds, or seconds, minutes, hours and days", field="every_seconds")
        every = duration_argument("every_seconds", every_seconds, low=MIN_EVERY_SECONDS, high=MAX_EVERY_SECONDS)
        self._set(every=every)
        self._set_bounds(start_at, end_at, jitter_seconds)

    @property
    def every_seconds(self) -> int | float:
        """The time between two fires."""
        return micros_to_seconds(self.every)

    def bind(self, *, now: datetime, key: str = "") -> IntervalTrigger:  # noqa: ARG002 - every trigger binds alike
        """Anchor it: without a start, the first fire is one interval after creation."""
        moment = self._check_bind(now)
        if self.start is not None:
            return self
        start = moment + self.every
        if start > (MAX_INSTANT if self.end is None else self.end):
            raise TriggerNeverFires("it ends before its first fire, one interval after now", field="end_at")
        return IntervalTrigger(self.every_seconds, from_micros(start), self.end_at, jitter_seconds=self.jitter_seconds)

    def to_document(self) -> dict[str, Any]:
        """With its anchor, if it has one, so that it reads back the same whenever it is read."""
        return {"type": self.type, "every_seconds": self.every_seconds} | self._bounds_document()

    def _next(self, after: Micros) -> Micros | None:
        if self.start is None:
            return None
        return in_range(after + self.every - (after - self.start) % self.every)

    def _previous(self, before: Micros) -> Micros | None:
        if self.start is None:
            return None
        return in_range(before - 1 - (before - 1 - self.start) % self.every)

    def _count(self, after: Micros, until: Micros) -> int:
        if self.start is None:
            return 0
        return (until - self.start) // self.every - (after - self.start) // self.every


def _sum_of(lengths: Mapping[str, object], every_seconds: object) -> float:
    """Lengths of time by their unit, as seconds."""
    if every_seconds is not None:
        raise InvalidTrigger(
            "give every_seconds, or seconds, minutes, hours and days, which are added up, but not both",
            field="every_seconds",
        )
    total: float = 0
    for unit, length in lengths.items():
        if isinstance(length, bool) or not isinstance(length, int | float) or not 0 < length <= MAX_EVERY_SECONDS:
            raise InvalidTrigger(f"must be a number from 0 to {MAX_EVERY_SECONDS:,}", field=unit)
        total += length * UNITS[unit]
    return total
