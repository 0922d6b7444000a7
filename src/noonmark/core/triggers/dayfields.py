"""The two day fields together: which days of a month they name."""

from __future__ import annotations

from typing import NamedTuple

from noonmark.core.triggers.fields import DAY_OF_MONTH, DAY_OF_WEEK, FieldSet
from noonmark.core.triggers.wallclock import DAYS_IN_WEEK, DayRule

SUNDAY, SATURDAY = 0, 6
ANY_DAY_OF_MONTH = DAY_OF_MONTH.words["*"]
ANY_WEEKDAY = DAY_OF_WEEK.words["*"]
ONCE_A_WEEK = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28 | 1 << 35
EVERY_MONTH = frozenset(range(1, 13))


class DayFields(NamedTuple):
    """Day of month and day of week; `either` when one of them is enough, otherwise both must hold."""

    day_of_month: FieldSet
    day_of_week: FieldSet
    either: bool

    def rule(self, months: frozenset[int], years: frozenset[int] | None = None) -> DayRule | None:
        """These days, within some months of some years; nothing if there is no such day."""
        any_number = self.day_of_month is ANY_DAY_OF_MONTH
        every_day = any_number and self.day_of_week is ANY_WEEKDAY and months is EVERY_MONTH and years is None
        rule = DayRule(self.days_of, months, years, every_day=every_day)
        # Any weekday of any month is there for certain; only other combinations need a look.
        plain = any_number and self.day_of_week.values and years is None
        return rule if plain or rule.can_match() else None

    def days_of(self, length: int, weekday: int) -> int:
        """The days of a month with that many days whose first is that weekday, as bits 1 to 31."""
        in_month = (2 << length) - 2
        by_weekday = self._by_weekday(length, weekday)
        if self.day_of_month is ANY_DAY_OF_MONTH:
            return by_weekday & in_month
        by_number = self._by_number(length, weekday)
        return (by_number | by_weekday if self.either else by_number & by_weekday) & in_month

    def _by_number(self, length: int, weekday: int) -> int:
        field = self.day_of_month
        days = 0
        for day in field.values:
            days |= 1 << day
        for offset in field.last_offsets:
            days |= 1 << length >> offset
        for day in field.nearest:
            if day <= length:
                days |= 1 << _nearest_weekday(day, length, weekday)
        if field.last_weekday:
            days |= 1 << _nearest_weekday(length, length, weekday)
        return days

    def _by_weekday(self, length: int, weekday: int) -> int:
        field = self.day_of_week
        week = 0
        for wanted in field.values:
            week |= 1 << wanted
        days = week * ONCE_A_WEEK >> weekday << 1
        for wanted in field.last_of:
            days |= 1 << (length - (length - _first(wanted, weekday)) % DAYS_IN_WEEK)
        for wanted, nth in field.nth:
            days |= 1 << (_first(wanted, weekday) + (nth - 1) * DAYS_IN_WEEK)
        return days


def _first(wanted: int, weekday: int) -> int:
    """The first such weekday of a month that begins on `weekday`."""
    return (wanted - weekday) % DAYS_IN_WEEK + 1


def _nearest_weekday(day: int, length: int, weekday: int) -> int:
    """The Monday to Friday nearest to a day, without leaving the month."""
    on = (weekday + day - 1) % DAYS_IN_WEEK
    if on == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if on == SUNDAY:
        return day + 1 if day < length else day - 2
    return day
