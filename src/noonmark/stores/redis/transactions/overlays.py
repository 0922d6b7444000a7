"""Overlays: what a transaction changes of indexes and lookups, so that it sees its own writes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.stores.redis.transactions.table import Entry, Values

_NONE: set[bytes] = set()


class IndexOverlay:
    """What a transaction changes of an index: the members that leave each partition, and those that join it."""

    def __init__(self, changed: Iterable[Values]) -> None:
        self.stale = set(changed)
        """The keys of records that have changed since."""
        self._entries: dict[Values, tuple[Entry, Entry]] = {}
        self._gone: defaultdict[str, set[bytes]] = defaultdict(set)
        self._new: defaultdict[str, set[bytes]] = defaultdict(set)

    def of(self, partition: str) -> tuple[set[bytes], set[bytes]]:
        """The members that leave a partition, and those that join it."""
        return self._gone.get(partition, _NONE), self._new.get(partition, _NONE)

    def set(self, key: Values, before: Entry, after: Entry) -> None:
        """A record moves from one entry to another."""
        previous = self._entries.pop(key, None)
        if previous is not None:
            for members, entry in zip((self._gone, self._new), previous, strict=True):
                if entry is not None:
                    members[entry[0]].discard(entry[1])
        if before != after:
            self._entries[key] = (before, after)
            if before is not None:
                self._gone[before[0]].add(before[1])
            if after is not None:
                self._new[after[0]].add(after[1])


class LookupOverlay:
    """What a transaction changes of a lookup: the records that it has changed, by field."""

    def __init__(self, changed: Iterable[Values]) -> None:
        self.stale = set(changed)
        self.records: dict[bytes, Values] = {}
        self._fields: dict[Values, bytes] = {}

    def set(self, key: Values, record: Values | None, field: bytes | None) -> None:
        """A record is found by another field, or by none."""
        before = self._fields.pop(key, None)
        if before is not None and self.records.get(before, ())[: len(key)] == key:
            del self.records[before]
        if record is not None and field is not None:
            self._fields[key] = field
            self.records[field] = record
