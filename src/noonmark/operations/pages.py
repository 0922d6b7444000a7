"""Pages of a list: bounded in entries and in bytes, and read from the store in small steps.

An entry may have a payload or a result of hundreds of kilobytes, and a thousand of those would fill the memory of a
server. So the number of rows in each step depends on the size of the rows before.
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
"""How many rows are read before their size is known."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_AT_ONCE = BoundedSemaphore(8)
"""How many pages are built at a time: each takes memory, and the processor from other requests."""


class Page(NamedTuple):
    """Entries of a list, and the row after which the next page begins; None on the last page."""

    entries: list[dict[str, Any]]
    end: Any


def read_page(
    limit: int,
    fetch: Callable[[int, Row | None], Sequence[Row]],
    serialize: Callable[[Sequence[Row]], list[dict[str, Any]]],
) -> Page:
    """Read a page of at most `limit` entries.

    `fetch` reads a number of rows after a row, or the first ones; fewer mean the end. `serialize` makes the entries.
    """
    entries: list[dict[str, Any]] = []
    size, last, step = 0, None, min(limit + 1, FIRST)
    with _AT_ONCE:
        while True:
            rows = fetch(step, last)
            documents = serialize(rows)
            fits, size = _fitting(documents[: limit - len(entries)], size, is_first=not entries)
            entries += fits
            last = rows[len(fits) - 1] if fits else last
            if len(fits) < len(documents):
                return Page(entries, last)
            if len(rows) < step:
                return Page(entries, None)
            mean = max(1, size // len(entries))
            step = max(1, min(limit + 1 - len(entries), (MAX_BYTES - size) // mean + 1))


def fitting(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first entries that fit into a page by their size."""
    return _fitting(entries, 0, is_first=True)[0]


def _fitting(entries: list[dict[str, Any]], size: int, *, is_first: bool) -> tuple[list[dict[str, Any]], int]:
    """The entries that fit after others of that size, and the size of all; the first of a page always fits."""
    for count, entry in enumerate(entries):
        following = size + size_of(entry)
        if following > MAX_BYTES and (count or not is_first):
            return entries[:count], size
        size = following
    return entries, size


def size_of(document: object) -> int:
    """The bytes of a document as JSON, or a few more."""
    return len(_encode(document))
