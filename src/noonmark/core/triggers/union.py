"""Several wall-clock rules taken together: the earliest match wins and equal matches count once."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.triggers.wallclock import TimesOnDays, WallRule

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
        """What is computed while counting is kept: months repeat, and so do the sets of rules that share a day."""
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
