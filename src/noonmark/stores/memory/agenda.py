"""Agendas: keys in the order of their times, where moving and removing one costs next to nothing.

A heap with lazy deletion: what was moved or removed leaves its old entry behind, which is passed over when it comes to
the top. When the heap is mostly such entries it is built again, so that a lease that is renewed for days takes no more
room than one that was never renewed.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noonmark.core.instants import Micros

Entry = tuple[int, int, str]
"""A time, what decides between equal times, and the key."""
SLACK = 64


class Agenda:
    """Each key has one time, or none."""

    def __init__(self) -> None:
        """Nothing has a time yet."""
        self._entries: dict[str, Entry] = {}
        self._heap: list[Entry] = []

    def put(self, key: str, time: Micros, tie: int = 0) -> None:
        """Give a key its time, in place of the one it had."""
        entry = (time, tie, key)
        self._entries[key] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def discard(self, key: str) -> None:
        """Take a key's time away; one that has none is left alone."""
        self._entries.pop(key, None)

    def first(self) -> Entry | None:
        """The earliest entry."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) != heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def until(self, time: Micros) -> list[Entry]:
        """The entries up to a time, in order; unlike taking them, this reads every key."""
        return sorted(entry for entry in self._entries.values() if entry[0] <= time)


def take(agendas: Iterable[tuple[Agenda, Micros]], limit: int) -> Iterator[str]:
    """Remove and yield the earliest keys of several agendas, each up to a time of its own."""
    heads = [
        (head, number, agenda, until)
        for number, (agenda, until) in enumerate(agendas)
        if (head := agenda.first()) is not None and head[0] <= until
    ]
    heapify(heads)
    for _ in range(limit):
        if not heads:
            return
        (_, _, key), number, agenda, until = heads[0]
        agenda.discard(key)
        yield key
        head = agenda.first()
        if head is not None and head[0] <= until:
            heapreplace(heads, (head, number, agenda, until))
        else:
            heappop(heads)
