"""A page of a list: bounded in entries and in bytes, and read from the store a little at a time.

An entry may have a payload or a result of hundreds of kilobytes, so that a thousand of them fill the memory of a
server. What is read at once follows the size of what was read before.
"""

from __future__ import annotations

import json
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = TypeVar("Row")

MAX_BYTES = 2_097_152
"""A page ends before the entry that would make it larger, unless that is its first."""
FIRST = 25
"""So many rows are read before their size is known."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_AT_ONCE = BoundedSemaphore(8)
"""So many pages are made at a time: each takes memory, and keeps a processor from whatever else is to be answered."""


class Page(NamedTuple):
    """Entries of a list, and the row after which the next page begins; None at the end."""

    entries: list[dict[str, Any]]
    end: Any


def read_page(
    limit: int,
    fetch: Callable[[int, Row | None], Sequence[Row]],
    tell: Callable[[Sequence[Row]], list[dict[str, Any]]],
) -> Page:
    """So many entries at the most.

    `fetch` reads so many rows that follow one, or the first ones; fewer are the last. `tell` makes an entry of each.
    """
    entries: list[dict[str, Any]] = []
    size, last, step = 0, None, min(limit + 1, FIRST)
    with _AT_ONCE:
        while True:
            rows = fetch(step, last)
            told = tell(rows)
            fits, size = _fitting(told[: limit - len(entries)], size, is_first=not entries)
            entries += fits
            last = rows[len(fits) - 1] if fits else last
            if len(fits) < len(told):
                return Page(entries, last)
            if len(rows) < step:
                return Page(entries, None)
            mean = max(1, size // len(entries))
            step = max(1, min(limit + 1 - len(entries), (MAX_BYTES - size) // mean + 1))


def fitting(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the first entries as a page may have by their size."""
    return _fitting(entries, 0, is_first=True)[0]


def _fitting(entries: list[dict[str, Any]], size: int, *, is_first: bool) -> tuple[list[dict[str, Any]], int]:
    """Those of them that fit behind others of that size, and the size of all; the very first always fits."""
    for count, one in enumerate(entries):
        following = size + size_of(one)
        if following > MAX_BYTES and (count or not is_first):
            return entries[:count], size
        size = following
    return entries, size


def size_of(document: object) -> int:
    """Bytes that it takes as JSON, or a few more."""
    return len(_encode(document))
