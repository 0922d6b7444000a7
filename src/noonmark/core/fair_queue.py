"""The fair queue: of what is due, every owner has one taken before any owner has a second.

Each owner has a line, ordered by time. Lines with something due form a ring; a served line goes to its end. An owner
that comes late waits until the others are served once, however much they have.

Turns alone do not help if what was taken stays for long. So no owner may hold more places than are free.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from noonmark.core.instants import Micros

T = TypeVar("T")


def rounds(lines: Sequence[Sequence[T]], limit: int) -> list[T]:
    """The first of each line, then the second of each, and so on, up to `limit`."""
    longest = max((len(line) for line in lines), default=0)
    in_turn = (line[place] for place in range(longest) for line in lines if place < len(line))
    return list(islice(in_turn, limit))


class Places:
    """A number of places, which owners hold for as long as they like.

    One owner alone gets half of them, two get a third each, and so on: the next owner finds one, unless there are
    nearly as many owners as places.
    """

    def __init__(self, limit: int) -> None:
        """All of them are free."""
        self._held: Counter[Hashable] = Counter()
        self.free = limit

    def may_have_one(self, owner: Hashable) -> bool:
        """Whether this owner may have one more: only as many as are left for the others then."""
        return self._held[owner] < self.free

    def take(self, owner: Hashable) -> None:
        """One more is this owner's."""
        self._held[owner] += 1
        self.free -= 1

    def give_back(self, owner: Hashable) -> None:
        """One of this owner's is free again."""
        self.free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]


@dataclass(slots=True, eq=False)
class _Line(Generic[T]):
    owner: Hashable
    entries: list[tuple[Micros, int, T]] = field(default_factory=list)
    """A heap; never empty, once something was put into it."""
    is_in_ring: bool = False


class FairQueue(Generic[T]):
    """Things that have an owner and a time each."""

    def __init__(self) -> None:
        """There is nothing yet."""
        self._lines: dict[Hashable, _Line[T]] = {}
        self._ring: deque[_Line[T]] = deque()
        self._later: list[tuple[Micros, int, _Line[T]]] = []
        """A heap of the lines outside the ring, by their first entries; those that were the first once are passed over
        when their time comes."""
        self._last: _Line[T] | None = None
        """The line into which something was put last: mostly it is the next one's too."""
        self._numbers = count()

    def put(self, owner: Hashable, time: Micros, thing: T) -> None:
        """Add a thing; of one owner, the earlier is taken first, and of equal times what was put first."""
        line = self._last
        if line is None or line.owner is not owner:
            line = self._last = self._lines.get(owner) or self._new_line(owner)
        number = next(self._numbers)
        heappush(line.entries, (time, number, thing))
        if not line.is_in_ring and line.entries[0][1] == number:
            heappush(self._later, (time, number, line))

    @property
    def next_time(self) -> Micros | None:
        """The earliest time of all; of those that were due already, any."""
        if self._ring:
            return self._ring[0].entries[0][0]
        return self._later[0][0] if self._later else None

    @property
    def later_time(self) -> Micros | None:
        """The earliest time of the owners of whom nothing was due when last something was asked for."""
        return self._later[0][0] if self._later else None

    def take_one(self, now: Micros, may: Callable[[Hashable], bool] | None = None) -> T | None:
        """The thing whose turn it is, if anything is due; owners who may not are passed over."""
        entry = self._take(now, may)
        return None if entry is None else entry[2]

    def take(self, now: Micros, limit: int) -> list[T]:
        """Up to `limit` due items, by turns; if that is all of them, in the order of their times."""
        taken: list[tuple[Micros, int, T]] = []
        while len(taken) < limit and (entry := self._take(now)) is not None:
            taken.append(entry)
        if not self._ring:
            taken.sort()
        return [entry[2] for entry in taken]

    def remove(self, may: Callable[[T], bool]) -> list[T]:
        """Take out everything of which that is so, due or not, in the order of times."""
        everything = sorted(
            ((entry, line.owner) for line in self._lines.values() for entry in line.entries), key=lambda one: one[0][:2]
        )
        self.clear()
        removed: list[T] = []
        for (time, _, thing), owner in everything:
            if may(thing):
                removed.append(thing)
            else:
                self.put(owner, time, thing)
        return removed

    def clear(self) -> None:
        """Remove everything."""
        self._lines.clear()
        self._ring.clear()
        self._later.clear()
        self._last = None

    def __len__(self) -> int:
        """How many things there are."""
        return sum(len(line.entries) for line in self._lines.values())

    def _take(self, now: Micros, may: Callable[[Hashable], bool] | None = None) -> tuple[Micros, int, T] | None:
        while self._later and self._later[0][0] <= now:
            self._call_up()
        ring, passed = self._ring, 0
        while passed < len(ring):
            line = ring[0]
            entry = line.entries[0]
            if entry[0] > now:  # the clock was set back
                self._leave_ring(line)
                continue
            if may is not None and not may(line.owner):
                ring.rotate(-1)
                passed += 1
                continue
            heappop(line.entries)
            if not line.entries:
                self._end(line)
            elif line.entries[0][0] > now:
                self._leave_ring(line)
            elif len(ring) > 1:
                ring.rotate(-1)
            return entry
        return None

    def _new_line(self, owner: Hashable) -> _Line[T]:
        line = self._lines[owner] = _Line[T](owner)
        return line

    def _end(self, line: _Line[T]) -> None:
        """Nothing is left of the first line in the ring."""
        self._ring.popleft()
        del self._lines[line.owner]
        self._last = None

    def _call_up(self) -> None:
        """Add the line with the earliest entry to the ring."""
        _, number, line = heappop(self._later)
        if not line.is_in_ring and line.entries[0][1] == number:
            line.is_in_ring = True
            self._ring.append(line)

    def _leave_ring(self, line: _Line[T]) -> None:
        """Take the first owner out of the ring until its next entry is due."""
        self._ring.popleft()
        line.is_in_ring = False
        time, number, _ = line.entries[0]
        heappush(self._later, (time, number, line))
