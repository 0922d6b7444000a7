"""A page of a list: bounded in entries and in bytes, and read from the store a little at a time.

An entry may have a payload or a result of hundreds of kilobytes, so that a thousand of them fill the memory of a
server. What is read at once follows the size of what was read before.
"""

from __future__ import annotations

import json
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

Row = TypeVar("Row")

MAX_BYTES = 2_097_152
"""A page ends before the entry that would make it larger, unless that is its first."""
FIRST = 25
"""So many rows are read before their size is known."""
_AT_ONCE = BoundedSemaphore(8)
"""So many pages are made at a time: each takes memory, and keeps a processor from whatever else is to be answered."""


class Page(NamedTuple):
    """Entries of a list, and the row after which the next page begins; None at the end."""

    entries: list[dict[str, Any]]
    end: Any


async def read_page(
    limit: int,
    fetch: Callable[[int, Row | None], Awaitable[Sequence[Row]]],
    tell: Callable[[Sequence[Row]], Awaitable[list[dict[str, Any]]]],
) -> Page:
    """So many entries at the most.

    `fetch` reads so many rows that follow one, or the first ones; fewer are the last. `tell` makes an entry of each.
    """
    entries: list[dict[str, Any]] = []
    size, last, step = 0, None, min(limit + 1, FIRST)
    with _AT_ONCE:
        while True:
            rows = await fetch(step, last)
            for row, entry in zip(rows, await tell(rows), strict=True):
                size += size_of(entry)
                if len(entries) == limit or (entries and size > MAX_BYTES):
                    return Page(entries, last)
                entries.append(entry)
                last = row
            if len(rows) < step:
                return Page(entries, None)
            mean = max(1, size // len(entries))
            step = max(1, min(limit + 1 - len(entries), (MAX_BYTES - size) // mean + 1))


def fitting(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the first entries as a page may have by their size."""
    found: list[dict[str, Any]] = []
    size = 0
    for one in entries:
        size += size_of(one)
        if found and size > MAX_BYTES:
            break
        found.append(one)
    return found


def size_of(document: object) -> int:
    """Bytes that it takes as JSON, or a few more."""
    return len(json.dumps(document, separators=(",", ":")))
