"""Wall-clock rules: which times of which days a recurrence names, in a world without zones.

A wall second is a count of seconds since 1970-01-01T00:00 on some wall clock. A rule answers three questions
about them by arithmetic on sorted tuples: the first match from here, the last match before here, how many
matches between. It never walks over minutes.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from datetime import date
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Protocol

from noonmark.core.instants import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_DAY = date.min.toordinal() - EPOCH_ORDINAL
LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL
DAYS_IN_WEEK = 7
FEBRUARY = 2
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
EPOCH_WEEKDAY = 4
"""1970-01-01 was a Thursday; Sunday is 0."""


class WallRule(Protocol):
    """What a recurrence needs to know; `None` means nothing more in the years 1 to 9999."""

    def at_or_after(self, wall: int) -> int | None:
        """The first matching wall second from `wall` on."""

    def before(self, wall: int) -> int | None:
        """The last matching wall second before `wall`."""

    def count(self, low: int, high: int) -> int:
        """How many match from `low` up to, not including, `high`."""


class DayRule:
    """The days a rule names: a choice of days within each month of some months (of some years).

    The days of a month are one integer, bit 1 for the first day to bit 31. `days_of(length, weekday)` gives them for
    a month that has that many days and begins on that weekday; a month's days depend on nothing else, so at most 28
    such integers are ever computed.
    """

    __slots__ = ("_days_of", "_known", "_loaded", "_months", "_ordered_years", "_years", "every_day")

    def __init__(
        self,
        days_of: Callable[[int, int], int],
        months: frozenset[int],
        years: frozenset[int] | None = None,
        *,
        every_day: bool = False,
    ) -> None:
        """`every_day` spares the search where the answer is always the day itself."""
        self._days_of = days_of
        self._months = months
        self._years = years
        self._ordered_years = tuple(sorted(years)) if years else ()
        self._known: dict[int, int] = {}
        self._loaded = (0, 0, 0)
        self.every_day = every_day

    @property
    def repeats(self) -> bool:
        """Whether every 400 years are alike."""
        return self._years is None

    def can_match(self) -> bool:
        """Whether any day of any year is named: every month meets every first weekday sooner or later."""
        if self._years is not None:
            # A year is like any other that begins on the same weekday and is as long: there are 14 kinds.
            kinds = {(date(year, 1, 1).weekday(), _length(year, FEBRUARY)): year for year in self._years}
            firsts = [(year, month, date(year, month, 1)) for year in kinds.values() for month in self._months]
            return any(self._month(year, month, on.toordinal() - EPOCH_ORDINAL)[2] for year, month, on in firsts)
        lengths = {MONTH_LENGTHS[month - 1] for month in self._months} | ({29} if FEBRUARY in self._months else set())
        return any(self._days(length, weekday) for length in lengths for weekday in range(DAYS_IN_WEEK))

    def meaning(self) -> tuple[object, ...]:
        """What the rule names, however it was written: the days of every kind of month, the months and the years."""
        days = tuple(self._days(length, weekday) for length in range(28, 32) for weekday in range(DAYS_IN_WEEK))
        return days, tuple(sorted(self._months)), self._ordered_years

    def next_day(self, day: int) -> int | None:
        """The first named day from this one on, as days since the epoch."""
        if self.every_day:
            return day
        first, end, days = self._loaded
        if not first <= day < end:
            day = max(day, FIRST_DAY)
            first, end, days = self.month_of(day)
        left = days >> (day - first + 1)
        if left:
            return day + (left & -left).bit_length() - 1
        return self._search(end, 1)

    def previous_day(self, day: int) -> int | None:
        """The last named day up to this one."""
        if self.every_day:
            return day
        first, end, days = self._loaded
        if not first <= day < end:
            day = min(day, LAST_DAY)
            first, end, days = self.month_of(day)
        passed = days & ((2 << (day - first + 1)) - 1)
        if passed:
            return first + passed.bit_length() - 2
        return self._search(first - 1, -1)

    def count_days(self, low: int, high: int) -> int:
        """How many days are named from `low` up to, not including, `high`."""
        if self.every_day:
            return high - low
        total = 0
        while low < high:
            first, end, days = self.month_of(low)
            width = min(high, end) - low
            total += (days >> (low - first + 1) & ((1 << width) - 1)).bit_count()
            low = end
        return total

    def month_of(self, day: int) -> tuple[int, int, int]:
        """The month that holds a day: its first day, the first day after it, and the days that are named."""
        if not FIRST_DAY <= day <= LAST_DAY:
            return day, day + 1, 0
        on = date.fromordinal(day + EPOCH_ORDINAL)
        self._loaded = loaded = self._month(on.year, on.month, day - on.day + 1)
        return loaded

    def _month(self, year: int, month: int, first: int) -> tuple[int, int, int]:
        length = _length(year, month)
        if month not in self._months or (self._years is not None and year not in self._years):
            return first, first + length, 0
        return first, first + length, self._days(length, (first + EPOCH_WEEKDAY) % DAYS_IN_WEEK)

    def _days(self, length: int, weekday: int) -> int:
        key = length * DAYS_IN_WEEK + weekday
        days = self._known.get(key)
        if days is None:
            days = self._known[key] = self._days_of(length, weekday)
        return days

    def _search(self, day: int, direction: int) -> int | None:
        """Look month by month from the edge of one; the rarest date, a 29 February on one weekday, is 40 years off."""
        if not FIRST_DAY <= day <= LAST_DAY:
            return None
        on = date.fromordinal(day + EPOCH_ORDINAL)
        year, month = on.year, on.month
        while True:
            if month in self._months:
                loaded = self._month(year, month, date(year, month, 1).toordinal() - EPOCH_ORDINAL)
                first, _, days = loaded
                if days:
                    self._loaded = loaded
                    return first - 1 + (days if direction < 0 else days & -days).bit_length() - 1
            month += direction
            if not 1 <= month <= len(MONTH_LENGTHS):
                month = 1 if direction > 0 else len(MONTH_LENGTHS)
                next_year = self._next_year(year, direction)
                if next_year is None:
                    return None
                year = next_year

    def _next_year(self, year: int, direction: int) -> int | None:
        if self._years is None:
            year += direction
            return year if date.min.year <= year <= date.max.year else None
        years = self._ordered_years
        index = bisect_left(years, year + 1) if direction > 0 else bisect_left(years, year) - 1
        return years[index] if 0 <= index < len(years) else None


class TimesOnDays:
    """The times of day of one expression, on the days it names: minutes of the day times seconds of the minute."""

    __slots__ = ("_every_day", "_minutes", "_seconds", "days")

    def __init__(
        self, days: DayRule, hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]
    ) -> None:
        """All tuples are sorted and not empty."""
        self.days = days
        self._every_day = days.every_day
        self._minutes = _minutes_of_day(hours, minutes)
        self._seconds = seconds

    def meaning(self) -> tuple[object, ...]:
        """What the expression names, however it was written."""
        return (*self.days.meaning(), tuple(self._minutes), tuple(self._seconds))

    def at_or_after(self, wall: int) -> int | None:
        """The first matching wall second from `wall` on."""
        today, time = divmod(wall, DAY_SECONDS)
        day = today if self._every_day else self.days.next_day(today)
        if day == today:
            minutes, seconds = self._minutes, self._seconds
            # The match lies in the first minute whose last second is not over yet.
            index = bisect_left(minutes, time - seconds[-1])
            if index < len(minutes):
                passed = time - minutes[index]
                second = seconds[0] if passed <= seconds[0] else seconds[bisect_left(seconds, passed)]
                return wall - passed + second
            day = self.days.next_day(today + 1)
        return None if day is None else day * DAY_SECONDS + self._minutes[0] + self._seconds[0]

    def before(self, wall: int) -> int | None:
        """The last matching wall second before `wall`."""
        today, time = divmod(wall, DAY_SECONDS)
        day = self.days.previous_day(today)
        if day == today:
            place = self.count_below(time)
            if place:
                minute, second = divmod(place - 1, len(self._seconds))
                return today * DAY_SECONDS + self._minutes[minute] + self._seconds[second]
            day = self.days.previous_day(today - 1)
        return None if day is None else day * DAY_SECONDS + self._minutes[-1] + self._seconds[-1]

    def count(self, low: int, high: int) -> int:
        """How many match from `low` up to, not including, `high`."""
        first_day, first_time = divmod(low, DAY_SECONDS)
        last_day, last_time = divmod(high, DAY_SECONDS)
        total = self.days.count_days(first_day, last_day) * len(self._minutes) * len(self._seconds)
        # Asked this way, a day that is not named costs no search for the next one that is.
        if first_time and self.days.count_days(first_day, first_day + 1):
            total -= self.count_below(first_time)
        if last_time and self.days.count_days(last_day, last_day + 1):
            total += self.count_below(last_time)
        return total

    def count_below(self, time: int) -> int:
        """How many times of one day come before this one."""
        second = time % 60
        index = bisect_left(self._minutes, time - second)
        total = index * len(self._seconds)
        if index < len(self._minutes) and self._minutes[index] == time - second:
            total += bisect_left(self._seconds, second)
        return total

    def bits(self) -> int:
        """The times of a day as one integer with a bit for every second named."""
        in_minute = sum(1 << second for second in self._seconds)
        return sum(in_minute << minute for minute in self._minutes)


def _length(year: int, month: int) -> int:
    return MONTH_LENGTHS[month - 1] if month != FEBRUARY else monthrange(year, month)[1]


@lru_cache(maxsize=256)
def _minutes_of_day(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[int, ...]:
    """Seconds of the day at which a named minute begins; shared, since most schedules use the same few."""
    return tuple([hour * 3600 + minute * 60 for hour in hours for minute in minutes])


CYCLE_DAYS = 146_097
"""The calendar repeats every 400 years, weekdays included."""

Month = tuple[int, ...]
"""For every rule, the days of a month that it names, as bits."""


def unite(rules: Sequence[TimesOnDays]) -> WallRule | None:
    """One rule for all of them, or nothing for none."""
    if len(rules) > 1:
        return Union(tuple(rules))
    return rules[0] if rules else None


class Union:
    """Matches where any of its rules does."""

    __slots__ = ("_bits", "_months", "_rules", "_sizes")

    def __init__(self, rules: tuple[TimesOnDays, ...]) -> None:
        """Cached while counting: months repeat, and so do the sets of rules that share a day."""
        self._rules = rules
        self._bits: tuple[int, ...] | None = None
        self._sizes: dict[tuple[int, ...], int] = {}
        self._months: dict[Month, int] = {}

    def at_or_after(self, wall: int) -> int | None:
        """The first match of any rule."""
        return min((match for rule in self._rules if (match := rule.at_or_after(wall)) is not None), default=None)

    def before(self, wall: int) -> int | None:
        """The last match of any rule."""
        return max((match for rule in self._rules if (match := rule.before(wall)) is not None), default=None)

    def count(self, low: int, high: int) -> int:
        """Matches from `low` up to `high`, each instant once: whole months by their pattern, the rest by day."""
        first_day, first_time = divmod(low, DAY_SECONDS)
        last_day, last_time = divmod(high, DAY_SECONDS)
        total = self._count_days(first_day, last_day)
        if first_time:
            total -= self._count_below(first_day, first_time)
        if last_time:
            total += self._count_below(last_day, last_time)
        return total

    def _count_days(self, low: int, high: int) -> int:
        cycles = (high - low) // CYCLE_DAYS
        if cycles > 1:
            rest = self._count_days(low + cycles * CYCLE_DAYS, high)
            return cycles * self._count_days(low, low + CYCLE_DAYS) + rest
        total = 0
        while low < high:
            first, end, month = self._month_of(low)
            if low == first and end <= high:
                total += self._month_total(month)
            else:
                until = min(end, high)
                total += sum(self._size(_sharing(month, day - first + 1)) for day in range(low, until))
            low = end
        return total

    def _count_below(self, day: int, time: int) -> int:
        first, _, month = self._month_of(day)
        return (self._union_bits(_sharing(month, day - first + 1)) & ((1 << time) - 1)).bit_count()

    def _month_of(self, day: int) -> tuple[int, int, Month]:
        months = [rule.days.month_of(day) for rule in self._rules]
        first, end, _ = months[0]
        return first, end, tuple(days for _, _, days in months)

    def _month_total(self, month: Month) -> int:
        total = self._months.get(month)
        if total is None:
            total = self._months[month] = sum(self._size(_sharing(month, day)) for day in range(1, 32))
        return total

    def _size(self, sharing: tuple[int, ...]) -> int:
        size = self._sizes.get(sharing)
        if size is None:
            size = self._sizes[sharing] = self._union_bits(sharing).bit_count()
        return size

    def _union_bits(self, sharing: tuple[int, ...]) -> int:
        if self._bits is None:
            self._bits = tuple(rule.bits() for rule in self._rules)
        return reduce(or_, (self._bits[index] for index in sharing), 0)


def _sharing(month: Month, day: int) -> tuple[int, ...]:
    """Which rules name this day of the month."""
    return tuple(index for index, days in enumerate(month) if days >> day & 1)
