"""Due indexes: keys in the order of their times, where moving and removing a key is cheap.

A heap with lazy deletion: a key that is moved or removed leaves its old entry in the heap, which is skipped when it
comes to the top. A heap of mostly such entries is built again, so that a lease that is renewed for days takes no more
room than one that was never renewed.
"""

from __future__ import annotations

import sys
from heapq import heapify, heappop, heappush, heapreplace, merge
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noonmark.core.instants import Micros

K = TypeVar("K", str, int)
Entry = tuple[int, int, K]
"""A time, a tie-breaker for equal times, and the key."""
SLACK = 64


class DueIndex(Generic[K]):
    """Each key has one time, or none."""

    def __init__(self) -> None:
        """Nothing has a time yet."""
        self._entries: dict[K, Entry[K]] = {}
        self._heap: list[Entry[K]] = []

    def put(self, key: K, time: Micros, tie: int = 0) -> None:
        """Set the time of a key."""
        entry = (time, tie, key)
        if self._entries.get(key) == entry:
            return
        self._entries[key] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._entries.pop(key, None)

    def time_of(self, key: K) -> Micros | None:
        """The time of a key."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def first(self) -> Entry[K] | None:
        """The earliest entry."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) != heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def last(self) -> Micros | None:
        """The latest time; this reads every key."""
        return max((entry[0] for entry in self._entries.values()), default=None)

    def some(self, time: Micros, limit: int) -> list[K]:
        """Keys up to a time, in no order, at most `limit`; of later keys, this reads only the next."""
        heap, entries, places = self._heap, self._entries, [0]
        keys: list[K] = []
        while places and len(keys) < limit:
            place = places.pop()
            if place < len(heap) and heap[place][0] <= time:
                key = heap[place][2]
                if entries.get(key) is heap[place]:  # of a key that was put twice, only the last entry counts
                    keys.append(key)
                places += (2 * place + 1, 2 * place + 2)
        return keys

    def in_order(self) -> Iterator[Entry[K]]:
        """The entries, earliest first; of later ones, this reads only the next."""
        heap, entries = self._heap, self._entries
        places = [(heap[0], 0)] if heap else []
        while places:
            entry, place = heappop(places)
            if entries.get(entry[2]) is entry:  # of a key that was put twice, only the last entry counts
                yield entry
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heappush(places, (heap[child], child))

    def until(self, time: Micros) -> list[Entry[K]]:
        """The entries up to a time, in order; unlike taking them, this reads every key."""
        return sorted(entry for entry in self._entries.values() if entry[0] <= time)


class WaitQueues:
    """The due indexes of many owners. An owner with nothing due costs nothing."""

    def __init__(self) -> None:
        """Start empty."""
        self._lines: dict[int, DueIndex[str]] = {}
        self._heads: DueIndex[int] = DueIndex()
        """Each owner by the time of the first entry, or by an earlier time: that entry may be gone."""

    def put(self, owner: int, key: str, time: Micros, tie: int) -> DueIndex[str]:
        """Set the time of a key of an owner; returns the due index that it is in."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = DueIndex()
        line.put(key, time, tie)
        head = self._heads.time_of(owner)
        if head is None or time < head:
            self._heads.put(owner, time)
        return line

    def first(self) -> Entry[str] | None:
        """An entry with the earliest time."""
        while (head := self._heads.first()) is not None:
            entry = self._refresh_head(head[2])
            if entry is not None and entry[0] == head[0]:
                return entry
        return None

    def due(self, until: Micros) -> dict[int, DueIndex[str]]:
        """The due indexes of the owners with something due by a time."""
        lines: dict[int, DueIndex[str]] = {}
        for owner in list(take([(self._heads, until)], sys.maxsize)):
            entry = self._refresh_head(owner)
            if entry is not None and entry[0] <= until:
                lines[owner] = self._lines[owner]
        return lines

    def in_order(self) -> Iterator[Entry[str]]:
        """The entries, earliest first; of later ones, this reads only the next of each owner."""
        return merge(*(line.in_order() for line in self._lines.values()))

    def until(self, time: Micros) -> list[Entry[str]]:
        """The entries up to a time, in order."""
        return sorted(entry for line in self.due(time).values() for entry in line.until(time))

    def _refresh_head(self, owner: int) -> Entry[str] | None:
        """The first entry of an owner; updates the time of the owner, or removes an owner without entries."""
        entry = self._lines[owner].first()
        if entry is None:
            self._heads.discard(owner)
            del self._lines[owner]
        else:
            self._heads.put(owner, entry[0])
        return entry


def take(indexes: Iterable[tuple[DueIndex[K], Micros]], limit: int) -> Iterator[K]:
    """Remove and yield the earliest keys of several due indexes, each up to a time of its own."""
    heads = [
        (head, number, due_index, until)
        for number, (due_index, until) in enumerate(indexes)
        if (head := due_index.first()) is not None and head[0] <= until
    ]
    heapify(heads)
    for _ in range(limit):
        if not heads:
            return
        (_, _, key), number, due_index, until = heads[0]
        due_index.discard(key)
        yield key
        head = due_index.first()
        if head is not None and head[0] <= until:
            heapreplace(heads, (head, number, due_index, until))
        else:
            heappop(heads)
