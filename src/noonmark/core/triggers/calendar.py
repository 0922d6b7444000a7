"""Calendar: named wall-clock values, field by field; all fields must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.errors import InvalidTrigger, TriggerNeverFires
from noonmark.core.json_values import shown
from noonmark.core.triggers.cron_expression import ANY_DAY_OF_MONTH, ANY_WEEKDAY, EVERY_MONTH, DayFields, FieldSet
from noonmark.core.triggers.recurrence import (
    FIXED,
    WILDCARD,
    DstOverride,
    Recurrence,
    WallTrigger,
    dst_argument,
    zone_argument,
)
from noonmark.core.triggers.wallclock import TimesOnDays

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

Values = int | Iterable[int] | None
"""What a field may be given as: one value, several, or any."""

RANGES = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_month": (1, 31),
    "month": (1, 12),
    "day_of_week": (0, 7),
    "year": (1, 9999),
}
MAX_VALUES = 10_000
MAX_SHOWN = 5


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CalendarTrigger(WallTrigger):
    """Fires at every wall-clock time whose fields all match; a field that is `None` matches anything."""

    second: tuple[int, ...] | None
    minute: tuple[int, ...] | None
    hour: tuple[int, ...] | None
    day_of_month: tuple[int, ...] | None
    month: tuple[int, ...] | None
    day_of_week: tuple[int, ...] | None
    year: tuple[int, ...] | None
    rule: TimesOnDays = field(compare=False)

    type: ClassVar[str] = "calendar"

    def __init__(  # noqa: PLR0913 - a calendar has that many fields
        self,
        *,
        second: Values = 0,
        minute: Values = None,
        hour: Values = None,
        day_of_month: Values = None,
        month: Values = None,
        day_of_week: Values = None,
        year: Values = None,
        timezone: str | ZoneInfo = "UTC",
        dst: Mapping[str, str] | DstOverride | None = None,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter_seconds: float | timedelta = 0,
    ) -> None:
        """Sunday is 0 or 7. `second` is 0 unless it is given."""
        given = {
            "second": second,
            "minute": minute,
            "hour": hour,
            "day_of_month": day_of_month,
            "month": month,
            "day_of_week": day_of_week,
            "year": year,
        }
        self._set(**{name: calendar_values(name, value) for name, value in given.items()})
        zone = zone_argument(timezone)
        self._set(timezone=zone.name, dst=dst_argument(dst))
        dst_rule = self.dst.over(FIXED if self.minute is not None and self.hour is not None else WILDCARD)
        self._set(rule=self._wall_rule())
        self._set(_recurrence=Recurrence(zone, [(self.rule, dst_rule)]))
        self._set_bounds(start_at, end_at, jitter_seconds)
        # The one time of a calendar with years may have been skipped by its zone.
        if start_at is not None or end_at is not None or self.year is not None:
            self._require_a_fire()

    @property
    def rules(self) -> tuple[TimesOnDays, ...]:
        """Its one wall-clock rule."""
        return (self.rule,)

    @property
    def fixed_rules(self) -> tuple[TimesOnDays, ...]:
        """The rule itself if it names a fixed time of day, which is what a clock change can hit."""
        return (self.rule,) if self.minute is not None and self.hour is not None else ()

    def to_document(self) -> dict[str, Any]:
        """Every field that restricts, and the zone."""
        document: dict[str, Any] = {"type": self.type, "timezone": self.timezone}
        for name in RANGES:
            values = getattr(self, name)
            if name == "second" and values is None:
                document[name] = {"kind": "any"}
            elif values is not None and (name, values) != ("second", (0,)):
                document[name] = {"kind": "values", "values": list(values)}
        if dst := self.dst.to_document():
            document["dst"] = dst
        return document | self._bounds_document()

    def _wall_rule(self) -> TimesOnDays:
        days = DayFields(
            ANY_DAY_OF_MONTH if self.day_of_month is None else FieldSet(self.day_of_month),
            ANY_WEEKDAY if self.day_of_week is None else FieldSet(self.day_of_week),
            either=False,
        )
        years = None if self.year is None else frozenset(self.year)
        rule = days.rule(EVERY_MONTH if self.month is None else frozenset(self.month), years)
        if rule is None:
            raise TriggerNeverFires("can never fire: no month it names has such a day", field="day_of_month")
        sixty = tuple(range(60))
        return TimesOnDays(rule, self.hour or tuple(range(24)), self.minute or sixty, self.second or sixty)


def calendar_values(name: str, given: object) -> tuple[int, ...] | None:
    """A field as sorted values without repeats, or None for any."""
    if given is None:
        return None
    low, high = RANGES[name]
    listed = list(given) if isinstance(given, Iterable) else [given]
    if not 1 <= len(listed) <= MAX_VALUES:
        raise InvalidTrigger(f"must hold 1 to {MAX_VALUES:,} values from {low} to {high}", field=name)
    values: set[int] = set()
    wrong: list[str] = []
    for value in listed:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            values.add(value % 7 if name == "day_of_week" else value)
        else:
            wrong.append(shown(value))
    if wrong:
        rejected = ", ".join(wrong[:MAX_SHOWN]) + (" .." if len(wrong) > MAX_SHOWN else "")
        raise InvalidTrigger(f"must hold integers from {low} to {high}, not {rejected}", field=name)
    return tuple(sorted(values))
