"""Fire changes: which fires of a schedule stay, move, are added or are removed when its times change."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros

COMPARED = 12
"""How many fires of the rarer rule are compared."""
KNOWN = 1_000
"""How many fires of each rule are listed."""


@frozen
class FireChange:
    """A fire that moves, is added (nothing before) or is removed (nothing after)."""

    before: Micros | None
    after: Micros | None

    @property
    def at(self) -> Micros:
        """The earlier of both times."""
        return min(one for one in (self.before, self.after) if one is not None)


@frozen(kw_only=True)
class FireChanges:
    """What becomes of the fires up to a time."""

    until: Micros
    kept: int
    changes: tuple[FireChange, ...]

    @property
    def moved(self) -> int:
        """How many fires move."""
        return sum(one.before is not None and one.after is not None for one in self.changes)

    @property
    def added(self) -> int:
        """How many fires are new."""
        return sum(one.before is None for one in self.changes)

    @property
    def removed(self) -> int:
        """How many fires are gone."""
        return sum(one.after is None for one in self.changes)


def compare_fires(before: Sequence[Micros], after: Sequence[Micros], *, now: Micros) -> FireChanges:
    """Compare the next fires of two rules, at most `KNOWN` of each: a list with so many may have more to come.

    They are compared up to the twelfth fire of the rarer rule, as far as both are known. A fire that is gone and one
    that is new are one that moves, if neither has a nearer one.
    """
    ends = [fires[:COMPARED][-1] for fires in (before, after) if fires]
    # The last one known may move to one that is not.
    until = min([max(ends, default=now), *(fires[-2] for fires in (before, after) if len(fires) >= KNOWN)])
    old, new = set(before), set(after)
    gone, added = sorted(old - new), sorted(new - old)
    pairs = {one: other for one in gone if (other := _nearest(added, one)) is not None and _nearest(gone, other) == one}
    targets = set(pairs.values())
    changes = [FireChange(one, pairs.get(one)) for one in gone]
    changes += [FireChange(None, one) for one in added if one not in targets]
    changed = sorted((one for one in changes if one.at <= until), key=lambda one: one.at)
    return FireChanges(until=until, kept=sum(one <= until for one in old & new), changes=tuple(changed))


def _nearest(instants: Sequence[Micros], instant: Micros) -> Micros | None:
    """The one nearest to an instant, the earlier of two."""
    at = bisect_left(instants, instant)
    return min(instants[max(0, at - 1) : at + 1], key=lambda one: abs(one - instant), default=None)
