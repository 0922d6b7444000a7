"""What every trigger is: a function from instants to instants, with bounds.

The public methods speak aware datetimes; the `*_micros` ones are the same in integers, for the planner. A trigger
holds no state: the same question always has the same answer. It speaks of nominal times only; `jitter` is carried
for the planner, which adds it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.instants import (
    MAX_INSTANT,
    MIN_INSTANT,
    NAIVE,
    Micros,
    from_micros,
    micros_to_seconds,
    seconds_to_micros,
    to_micros,
    to_text,
)
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from noonmark.core.triggers.zones import Zone

MAX_JITTER_SECONDS = 31_622_400
"""A leap year; the gap to the next fire bounds it further."""
_UNZONED = f"{NAIVE}; a naive one is a local time where a Scheduler(timezone=..) declares it"
_FIELDS = {"at": "due", "start_at": "start", "end_at": "end"}
"""The field of each argument that is an instant."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Trigger:  # not an ABC, of which `isinstance` takes several times as long
    """The common base of the five triggers: nominal times within `start` and `end`, both inclusive.

    One that was given naive datetimes has no fires, and no document, until `in_zone` makes them instants.
    """

    start: Micros | None
    end: Micros | None
    jitter: Micros
    local: tuple[tuple[str, datetime], ...]
    """The naive datetimes, by the names of their arguments."""

    type: ClassVar[str]

    def __init__(self) -> None:
        """Each trigger has a constructor of its own."""
        raise TypeError(f"{type(self).__name__} is abstract; use one of the triggers of noonmark")

    def next_after(self, t: datetime) -> datetime | None:
        """The first fire strictly after `t`, in UTC."""
        try:
            after = to_micros(t)
        except ValueError as error:
            raise InvalidTrigger(str(error), field="t") from None
        fire = self.next_micros(after)
        return None if fire is None else from_micros(fire)

    def previous_before(self, t: datetime) -> datetime | None:
        """The last fire strictly before `t`, in UTC."""
        fire = self.previous_micros(instant_argument("t", t))
        return None if fire is None else from_micros(fire)

    def count_between(self, a: datetime, b: datetime) -> int:
        """How many fires there are with a < fire <= b; counted, not enumerated."""
        return self.count_micros(instant_argument("a", a), instant_argument("b", b))

    def next_micros(self, after: Micros) -> Micros | None:
        """The first fire strictly after an instant."""
        if self.local:
            self._refuse_local()
        if self.start is not None and after < self.start:
            after = self.start - 1
        fire = self._next(after)
        return None if fire is None or (self.end is not None and fire > self.end) else fire

    def previous_micros(self, before: Micros) -> Micros | None:
        """The last fire strictly before an instant."""
        if self.local:
            self._refuse_local()
        if self.end is not None and before > self.end:
            before = self.end + 1
        fire = self._previous(before)
        return None if fire is None or (self.start is not None and fire < self.start) else fire

    def count_micros(self, after: Micros, until: Micros) -> int:
        """How many fires there are with after < fire <= until."""
        if self.local:
            self._refuse_local()
        if self.start is not None:
            after = max(after, self.start - 1)
        if self.end is not None:
            until = min(until, self.end)
        return self._count(after, until) if after < until else 0

    def within_bounds(self, instant: Micros) -> bool:
        """Whether the bounds admit an instant."""
        if self.local:
            self._refuse_local()
        return (self.start is None or instant >= self.start) and (self.end is None or instant <= self.end)

    @property
    def start_at(self) -> datetime | None:
        """The earliest instant that may be named; a naive datetime as it was given."""
        return self._instant("start_at")

    @property
    def end_at(self) -> datetime | None:
        """The latest instant that may be named; a naive datetime as it was given."""
        return self._instant("end_at")

    @property
    def jitter_seconds(self) -> int | float:
        """How far a due time may lie after its nominal time."""
        return micros_to_seconds(self.jitter)

    def __repr__(self) -> str:
        """As its document reads, so that instants and lengths of time can be read too."""
        document = self._copy(local=()).to_document() | dict(self.local)
        arguments = [f"{name}={value!r}" for name, value in document.items() if name != "type"]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def bind(self, *, now: datetime, key: str = "") -> Self:  # noqa: ARG002 - the triggers that are relative use them
        """Fill what is relative to the moment of creation or to the schedule's key; most triggers have neither."""
        self._check_bind(now)
        return self

    def in_zone(self, zone: Zone | None) -> Self:
        """The trigger with its naive datetimes as local times of a zone; without a zone, they are refused."""
        if not self.local:
            return self
        if zone is None:
            self._refuse_local()
        bounds: dict[str, Micros] = {}
        for name, local in self.local:
            try:
                bounds[_FIELDS[name]] = zone.instant(local)
            except ValueError as error:
                raise InvalidTrigger(str(error), field=name) from None
        resolved = self._copy(local=(), **bounds)
        resolved._check_times()  # noqa: SLF001 - of its own class
        return resolved

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

    @property
    def _must_fire(self) -> bool:
        """Whether it names instants without being bound."""
        return False

    def _set(self, **fields: Any) -> None:
        assign = object.__setattr__
        for name, value in fields.items():
            assign(self, name, value)

    def _set_bounds(
        self, start_at: datetime | None, end_at: datetime | None, jitter_seconds: float | timedelta
    ) -> None:
        jitter = 0
        if type(jitter_seconds) is not int or jitter_seconds:
            jitter = duration_argument("jitter_seconds", jitter_seconds, low=0, high=MAX_JITTER_SECONDS)
        self._set(start=None, end=None, jitter=jitter, local=())
        if start_at is not None:
            self._set_instant("start_at", start_at)
        if end_at is not None:
            self._set_instant("end_at", end_at)
        self._check_bounds()

    def _set_instant(self, name: str, value: object) -> None:
        """Set the field of an argument; a naive datetime waits for a zone."""
        if isinstance(value, datetime) and value.tzinfo is None:
            self._set(local=(*self.local, (name, value)))
        else:
            self._set(**{_FIELDS[name]: instant_argument(name, value)})

    def _instant(self, name: str) -> datetime | None:
        micros: Micros | None = getattr(self, _FIELDS[name])
        return dict(self.local).get(name) if micros is None else from_micros(micros)

    def _copy(self, **changes: Any) -> Self:
        copied = object.__new__(type(self))
        copied._set(**{one.name: getattr(self, one.name) for one in fields(self)} | changes)
        return copied

    def _refuse_local(self) -> NoReturn:
        raise InvalidTrigger(_UNZONED, field=self.local[0][0])

    def _check_bind(self, now: datetime) -> Micros:
        """The moment of creation; refuses what has no zone yet."""
        if self.local:
            self._refuse_local()
        return instant_argument("now", now)

    def _check_times(self) -> None:
        self._check_bounds()
        if self._must_fire:
            self._require_a_fire()

    def _check_bounds(self) -> None:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidTrigger("must not be before the start", field="end_at")

    def _require_a_fire(self) -> None:
        """Refuse bounds, or years, that leave nothing. While a zone is missing, that is not known."""
        if self.local:
            return
        earliest = MIN_INSTANT - 1 if self.start is None else self.start - 1
        if self.next_micros(earliest) is None:
            field = "end_at" if self.end is not None else "start_at" if self.start is not None else ""
            raise TriggerNeverFires("it names no instant at all, within its bounds", field=field)

    def _bounds_document(self) -> dict[str, Any]:
        if self.local:
            self._refuse_local()
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


def instant_argument(name: str, value: Any) -> Micros:
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
