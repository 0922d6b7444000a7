"""Tables: records with a key, which indexes find.

A record is a tuple of its columns. All records of a table are the fields of one hash. An index is a number of sorted
sets, one for each value of its `partition`: the records of a tenant, or what is ready on a route. In a sorted set,
records are in the order of the index's columns. A *lookup* is a unique index without an order: one hash.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from noonmark.stores.redis.transactions.ordered import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.stores.redis.transactions.ordered import Value

_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
Values = tuple[Any, ...]
Entry = tuple[str, bytes] | None
"""A partition of an index, and a member of it; None for a record that is not in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An order of some records of a table."""

    name: str
    partition: tuple[str, ...]
    """The columns whose values name the sorted set; without any, there is one."""
    order: tuple[str, ...]
    """The columns by which it is sorted, or derived values; the record's key follows."""
    where: Callable[[dict[str, Any]], bool] | None = None
    """Which records are in it, all by default; takes the columns that `needs` and the others name."""
    needs: tuple[str, ...] = ()
    """Further columns that `where` and derived values read."""
    derived: Mapping[str, Callable[[dict[str, Any]], Value]] = field(default_factory=dict)
    """Names in `order` that are not columns: how they are computed."""
    derived_from: tuple[str, ...] = ()
    """The columns that derived values are computed from."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A unique index: the key of the one record that has these values."""

    name: str
    columns: tuple[str, ...]
    where: Callable[[dict[str, Any]], bool] | None = None
    """Which records are in it, all by default; takes the columns that `needs` names."""
    needs: tuple[str, ...] = ()


class Table:
    """A kind of record."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        key: int = 1,
        indexes: Sequence[Index] = (),
        lookups: Sequence[Lookup] = (),
        binary: Sequence[str] = (),
    ) -> None:
        """The first `key` columns are the primary key; the `binary` ones are bytes."""
        self.name, self.columns, self.key_size = name, tuple(columns), key
        self.indexes = {index.name: _IndexPlaces(self, index) for index in indexes}
        self.lookups = {lookup.name: _LookupPlaces(self, lookup) for lookup in lookups}
        self._binary = [self.columns.index(column) for column in binary]

    def key_of(self, values: Values) -> Values:
        """The primary key of a record."""
        return values[: self.key_size]

    def named(self, values: Values) -> dict[str, Any]:
        """The columns of a record, by name."""
        return dict(zip(self.columns, values, strict=True))

    def to_text(self, values: Values) -> bytes:
        """A record as it is stored."""
        if self._binary:
            values = tuple(
                b64encode(one).decode() if place in self._binary else one for place, one in enumerate(values)
            )
        return _to_json(values).encode("utf-8", "surrogatepass")

    def from_text(self, text: bytes) -> Values:
        """A record that was stored; raises ValueError if it is damaged.

        Columns that an earlier version did not have are None.
        """
        values = json.loads(text.decode("utf-8", "surrogatepass"))
        if not isinstance(values, list) or len(values) < self.key_size:
            raise ValueError("it is not a record")
        values += [None] * (len(self.columns) - len(values))
        for place in self._binary:
            values[place] = b64decode(values[place])
        return tuple(values[: len(self.columns)])


def partition_name(values: Sequence[Value]) -> str:
    """The part of a key's name that tells partitions apart; people read it, too."""
    return _joined(tuple(values))


@lru_cache(maxsize=8_192)
def _joined(values: tuple[Value, ...]) -> str:
    return "/".join("%" if value is None else quote(str(value), safe=" :@", errors="surrogatepass") for value in values)


class Change:
    """A record before and after a change, and the places of the columns that differ; None if all do."""

    def __init__(self, table: Table, before: Values | None, after: Values | None) -> None:
        """At least one of them is a record."""
        self.before, self.after = before, after
        self.names_before = {} if before is None else table.named(before)
        self.names_after = {} if after is None else table.named(after)
        self.columns: set[int] | None = None
        if before is not None and after is not None:
            self.columns = {place for place, was in enumerate(before) if was != after[place]}


class _IndexPlaces:
    """An index, with the places of its columns."""

    def __init__(self, table: Table, index: Index) -> None:
        self.name, self.where = index.name, index.where
        place_of = table.columns.index
        placed = [one for one in (*index.partition, *index.order, *index.derived_from) if one not in index.derived]
        self._named = tuple({column: place_of(column) for column in (*placed, *index.needs)}.items())
        self._placed = frozenset(place_of(column) for column in placed)
        self._partition, self._order = index.partition, index.order
        self._derived = index.derived
        self._key_size = table.key_size
        self.reads = frozenset(place for _, place in self._named)
        """The places of the columns that it depends on."""

    def set_name(self, partition: str) -> str:
        """The name of the sorted set of a partition, within the table."""
        return f"{self.name}:{partition}"

    def entry(self, values: Values) -> Entry:
        """The partition of a record and its member there."""
        named = {name: values[place] for name, place in self._named}
        return self._entry(values, named) if self._has(named) else None

    def move(self, change: Change) -> tuple[Entry, Entry]:
        """The entries of a record before and after a change; none if it stays where it is."""
        is_before = change.before is not None and self._has(change.names_before)
        is_after = change.after is not None and self._has(change.names_after)
        if is_before and is_after and change.columns is not None and change.columns.isdisjoint(self._placed):
            return None, None
        was = self._entry(change.before, change.names_before) if is_before and change.before is not None else None
        now = self._entry(change.after, change.names_after) if is_after and change.after is not None else None
        return (None, None) if was == now else (was, now)

    def _has(self, named: dict[str, Any]) -> bool:
        """Whether a record is in it; a damaged one may have anything in its columns."""
        try:
            return self.where is None or bool(self.where(named))
        except (TypeError, AttributeError):
            return False

    def _entry(self, values: Values, named: dict[str, Any]) -> Entry:
        """The entry of a record that is in it."""
        try:
            order = [self._derived[name](named) if name in self._derived else named[name] for name in self._order]
            member = encode([*order, *values[: self._key_size]])
        except (TypeError, AttributeError, OverflowError, struct.error):  # a damaged record
            return None
        return partition_name([named[name] for name in self._partition]), member

    def key_in_member(self, member: bytes) -> Values:
        """The primary key of the record of an encoded member."""
        return self.key_in(decode(member))

    def key_in(self, decoded: tuple[Value, ...]) -> Values:
        """The primary key of the record of a member."""
        return decoded[len(self._order) :]


class _LookupPlaces:
    """A lookup, with the places of its columns."""

    def __init__(self, table: Table, lookup: Lookup) -> None:
        self.name, self.where = lookup.name, lookup.where
        place_of = table.columns.index
        self.columns = tuple(place_of(column) for column in lookup.columns)
        self._needs = tuple((column, place_of(column)) for column in lookup.needs)
        self.reads = frozenset({*self.columns, *(place for _, place in self._needs)})

    def set_name(self, partition: str) -> str:  # noqa: ARG002 - it is not divided
        """The name of its hash, within the table."""
        return self.name

    def move(self, change: Change) -> tuple[Entry, Entry]:
        """The fields of a record before and after a change, in the only partition; none if it stays where it is."""
        was = None if change.before is None else self.field_of(change.before)
        now = None if change.after is None else self.field_of(change.after)
        return (None, None) if was == now else (None if was is None else ("", was), None if now is None else ("", now))

    def _has(self, values: Values) -> bool:
        """Whether a record is in it."""
        return self.where is None or self.where({name: values[place] for name, place in self._needs})

    def field_of(self, values: Values) -> bytes | None:
        """The field of a record; None if the lookup does not have it."""
        found = [values[place] for place in self.columns]
        try:
            return None if None in found or not self._has(values) else encode(found)
        except (TypeError, AttributeError, OverflowError, struct.error):  # a damaged record
            return None


Places = _IndexPlaces | _LookupPlaces
