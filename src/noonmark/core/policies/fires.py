"""Fires from a list, or those of a trigger without some of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros
    from noonmark.core.policies.jitter import Fires

Stretch = tuple["Micros", "Micros"]
"""A first and a last nominal time."""


@frozen
class Listed:
    """Exactly these fires, in order, each due at its nominal time."""

    nominals: tuple[Micros, ...]
    jitter: Micros = 0

    def next_micros(self, after: Micros) -> Micros | None:
        """The first fire strictly after an instant."""
        return next(iter(self.nominals[bisect_right(self.nominals, after) :]), None)

    def previous_micros(self, before: Micros) -> Micros | None:
        """The last fire strictly before an instant."""
        return next(reversed(self.nominals[: bisect_left(self.nominals, before)]), None)

    def count_micros(self, after: Micros, until: Micros) -> int:
        """How many fires there are with after < fire <= until."""
        return bisect_right(self.nominals, until) - bisect_right(self.nominals, after)


@frozen
class Without:
    """Fires without those in some stretches, which are in order and disjoint."""

    fires: Fires
    stretches: tuple[Stretch, ...]

    @property
    def jitter(self) -> Micros:
        """That of the fires."""
        return self.fires.jitter

    def next_micros(self, after: Micros) -> Micros | None:
        """The first fire strictly after an instant."""
        fire = self.fires.next_micros(after)
        for first, last in self.stretches:
            if fire is not None and first <= fire <= last:
                fire = self.fires.next_micros(last)
        return fire

    def previous_micros(self, before: Micros) -> Micros | None:
        """The last fire strictly before an instant."""
        fire = self.fires.previous_micros(before)
        for first, last in reversed(self.stretches):
            if fire is not None and first <= fire <= last:
                fire = self.fires.previous_micros(first)
        return fire

    def count_micros(self, after: Micros, until: Micros) -> int:
        """How many fires there are with after < fire <= until."""
        count = self.fires.count_micros
        others = [count(max(after, first - 1), min(until, last)) for first, last in self.stretches]
        return count(after, until) - sum(others)


def without(fires: Fires, stretches: Iterable[Stretch]) -> Fires:
    """The fires without those in the stretches, which are in order and may overlap."""
    apart: list[Stretch] = []
    for first, last in stretches:
        if apart and first <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    return Without(fires, tuple(apart)) if apart else fires
