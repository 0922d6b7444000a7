"""What every trigger is: a function from instants to instants, with bounds.

The public methods speak aware datetimes; the `*_micros` ones are the same in integers, for the planner. A trigger
holds no state: the same question always has the same answer. It speaks of nominal times only; `jitter` is carried
for the planner, which adds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.instants import (
    MAX_INSTANT,
    MIN_INSTANT,
    Micros,
    from_micros,
    micros_to_seconds,
    seconds_to_micros,
    to_micros,
    to_text,
)
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from datetime import datetime

MAX_JITTER_SECONDS = 31_622_400
"""A leap year; the gap to the next fire bounds it further."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Trigger(ABC):
    """The common base of the five triggers: nominal times within `start` and `end`, both inclusive."""

    start: Micros | None
    end: Micros | None
    jitter: Micros

    type: ClassVar[str]

    def next_after(self, t: datetime) -> datetime | None:
        """The first fire strictly after `t`, in UTC."""
        try:
            after = to_micros(t)
        except ValueError as error:
            raise InvalidTrigger(str(error), field="t") from None
        found = self.next_micros(after)
        return None if found is None else from_micros(found)

    def previous_before(self, t: datetime) -> datetime | None:
        """The last fire strictly before `t`, in UTC."""
        found = self.previous_micros(instant_argument("t", t))
        return None if found is None else from_micros(found)

    def count_between(self, a: datetime, b: datetime) -> int:
        """How many fires there are with a < fire <= b; counted, not enumerated."""
        return self.count_micros(instant_argument("a", a), instant_argument("b", b))

    def next_micros(self, after: Micros) -> Micros | None:
        """The first fire strictly after an instant."""
        if self.start is not None and after < self.start:
            after = self.start - 1
        found = self._next(after)
        return None if found is None or (self.end is not None and found > self.end) else found

    def previous_micros(self, before: Micros) -> Micros | None:
        """The last fire strictly before an instant."""
        if self.end is not None and before > self.end:
            before = self.end + 1
        found = self._previous(before)
        return None if found is None or (self.start is not None and found < self.start) else found

    def count_micros(self, after: Micros, until: Micros) -> int:
        """How many fires there are with after < fire <= until."""
        if self.start is not None:
            after = max(after, self.start - 1)
        if self.end is not None:
            until = min(until, self.end)
        return self._count(after, until) if after < until else 0

    def within_bounds(self, instant: Micros) -> bool:
        """Whether the bounds admit an instant."""
        return (self.start is None or instant >= self.start) and (self.end is None or instant <= self.end)

    @property
    def start_at(self) -> datetime | None:
        """The earliest instant that may be named."""
        return None if self.start is None else from_micros(self.start)

    @property
    def end_at(self) -> datetime | None:
        """The latest instant that may be named."""
        return None if self.end is None else from_micros(self.end)

    @property
    def jitter_seconds(self) -> int | float:
        """How far a due time may lie after its nominal time."""
        return micros_to_seconds(self.jitter)

    def __repr__(self) -> str:
        """As its document reads, so that instants and lengths of time can be read too."""
        said = [f"{name}={value!r}" for name, value in self.to_document().items() if name != "type"]
        return f"{type(self).__name__}({', '.join(said)})"

    def bind(self, *, now: datetime, key: str = "") -> Self:  # noqa: ARG002 - the triggers that are relative use them
        """Fill what is relative to the moment of creation or to the schedule's key; most triggers have neither."""
        instant_argument("now", now)
        return self

    @abstractmethod
    def to_document(self) -> dict[str, Any]:
        """The JSON document that `parse_trigger` reads back into an equal trigger."""

    @abstractmethod
    def _next(self, after: Micros) -> Micros | None:
        """The first fire strictly after, ignoring the bounds."""

    @abstractmethod
    def _previous(self, before: Micros) -> Micros | None:
        """The last fire strictly before, ignoring the bounds."""

    @abstractmethod
    def _count(self, after: Micros, until: Micros) -> int:
        """Fires with after < fire <= until, ignoring the bounds; after < until."""

    def _set(self, **fields: Any) -> None:  # noqa: ANN401 - a frozen value may only be filled while it is made
        assign = object.__setattr__
        for name, value in fields.items():
            assign(self, name, value)

    def _set_bounds(
        self, start_at: datetime | None, end_at: datetime | None, jitter_seconds: float | timedelta
    ) -> None:
        jitter = 0
        if type(jitter_seconds) is not int or jitter_seconds:
            jitter = duration_argument("jitter_seconds", jitter_seconds, low=0, high=MAX_JITTER_SECONDS)
        start = None if start_at is None else instant_argument("start_at", start_at)
        end = None if end_at is None else instant_argument("end_at", end_at)
        if start is not None and end is not None and end < start:
            raise InvalidTrigger("must not be before the start", field="end_at")
        self._set(start=start, end=end, jitter=jitter)

    def _require_a_fire(self) -> None:
        """Refuse bounds, or years, that leave nothing."""
        earliest = MIN_INSTANT - 1 if self.start is None else self.start - 1
        if self.next_micros(earliest) is None:
            field = "end_at" if self.end is not None else "start_at" if self.start is not None else ""
            raise TriggerNeverFires("it names no instant at all, within its bounds", field=field)

    def _bounds_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        if self.start is not None:
            document["start_at_utc"] = to_text(self.start)
        if self.end is not None:
            document["end_at_utc"] = to_text(self.end)
        if self.jitter:
            document["jitter_seconds"] = self.jitter_seconds
        return document


def trigger_argument(value: object) -> Trigger:
    """A trigger given by a caller."""
    if isinstance(value, Trigger):
        return value
    raise InvalidTrigger(f"must be a trigger, such as CronTrigger(..), not {shown(value)}", field="trigger")


def instant_argument(name: str, value: datetime) -> Micros:
    """An aware datetime given by a caller, as microseconds."""
    try:
        return to_micros(value)
    except ValueError as error:
        raise InvalidTrigger(str(error), field=name) from None


def duration_argument(name: str, value: object, *, low: float, high: float) -> Micros:
    """A number of seconds or a `timedelta` given by a caller, as microseconds."""
    if isinstance(value, timedelta):
        value = micros_to_seconds(value // timedelta(microseconds=1))
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidTrigger(f"must be a number of seconds from {low:,} to {high:,}", field=name)
    return seconds_to_micros(value)


def in_range(micros: Micros) -> Micros | None:
    """A fire that a datetime can show, or nothing."""
    return micros if MIN_INSTANT <= micros <= MAX_INSTANT else None
