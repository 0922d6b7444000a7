"""The keys and arguments of the commit script: what it checks, and what it writes. See `commit.lua`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from noonmark.stores.redis.transactions.table import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from noonmark.stores.redis.transactions.table import Places, Table, Values


class CommitScript:
    """One call of the script."""

    def __init__(self) -> None:
        """It checks nothing and writes nothing yet."""
        self._numbers: dict[str, int] = {}
        self.arguments: list[Any] = []

    @property
    def keys(self) -> list[str]:
        """The hashes and sorted sets that it reads or writes."""
        return list(self._numbers)

    def add(self, letter: str, key: str | None = None, *values: object) -> None:
        """Add an entry."""
        self.arguments.append(letter)
        if key is not None:
            self.arguments.append(self._numbers.setdefault(key, len(self._numbers) + 1))
        self.arguments.extend(values)

    def pairs(self, letter: str, key: str, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Add an entry with pairs of fields and values, if there are any."""
        if pairs:
            self.add(letter, key, len(pairs), *[one for pair in pairs for one in pair])

    def items(self, letter: str, key: str, items: Sequence[bytes]) -> None:
        """Add an entry with fields or members, if there are any."""
        if items:
            self.add(letter, key, len(items), *items)

    def write(
        self,
        table: Table,
        stored: Mapping[Values, tuple[bytes | None, Values | None]],
        changed: Mapping[Values, Values | None],
        field_of: Callable[[Values], bytes],
    ) -> None:
        """Write what has changed of a table: its records, and where its indexes and lookups find them."""
        put: list[tuple[bytes, bytes]] = []
        deleted: list[bytes] = []
        indexed, looked_up = _Moves(table.indexes.values()), _Moves(table.lookups.values())
        for key, record in changed.items():
            before = stored[key][1]
            if record == before:
                continue
            field = field_of(key)
            if record is None:
                deleted.append(field)
            else:
                put.append((field, table.to_text(record)))
            change = Change(table, before, record)
            indexed.add(change, field)
            looked_up.add(change, field)
        self.items("d", table.name, deleted)
        self.pairs("h", table.name, put)
        for place, members in indexed.gone.items():
            self.items("m", f"{table.name}:{place}", list(members))
        for place, members in indexed.new.items():
            self.items("a", f"{table.name}:{place}", list(members))
        for place, fields in looked_up.gone.items():
            taken = looked_up.new.get(place, {})
            self.items("d", f"{table.name}:{place}", [field for field in fields if field not in taken])
        for place, pairs in looked_up.new.items():
            self.pairs("s", f"{table.name}:{place}", list(pairs.items()))


class _Moves:
    """The members that leave indexes or lookups, and those that join them, with the fields of their records."""

    def __init__(self, places: Iterable[Places]) -> None:
        self._places = list(places)
        self.gone: defaultdict[str, dict[bytes, bytes]] = defaultdict(dict)
        self.new: defaultdict[str, dict[bytes, bytes]] = defaultdict(dict)

    def add(self, change: Change, field: bytes) -> None:
        """A record changes."""
        columns = change.columns
        for index in self._places:
            if columns is None or not columns.isdisjoint(index.reads):
                was, now = index.move(change)
                if was is not None:
                    self.gone[index.set_name(was[0])][was[1]] = field
                if now is not None:
                    self.new[index.set_name(now[0])][now[1]] = field
