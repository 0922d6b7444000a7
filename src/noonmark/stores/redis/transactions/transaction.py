"""A transaction: reads records and ranges of indexes, and commits if all of them are still as they were.

It sees its own writes. Nothing is written until the commit, which one script does: it reads again what the transaction
has read, by versions of records and digests of ranges, and writes only if nothing has changed. So a transaction that
commits is as if it had run alone; one that does not is tried again by the store.

A range may be read as a *hint*: it is not read again, for a transaction that would do the same with another answer.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha1
from typing import TYPE_CHECKING, TypedDict, Unpack

from noonmark.stores.redis.transactions.commit_script import CommitScript
from noonmark.stores.redis.transactions.ordered import AFTER_ALL, decode, encode
from noonmark.stores.redis.transactions.overlays import IndexOverlay, LookupOverlay
from noonmark.stores.redis.transactions.table import partition_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.client import Client, Question
    from noonmark.stores.redis.transactions.ordered import Value
    from noonmark.stores.redis.transactions.table import Table, Values

    Stray = tuple[Table, str, str, bytes]
    """An entry of an index that is in a wrong place: the index, the partition and the member."""

EVERYTHING = 1 << 53
"""A limit that no range reaches."""
STEPS = 4_096
"""How many different beginnings of a range are looked for, at most."""


class Span(TypedDict, total=False):
    """A range of an index: where its entries begin and end.

    Each of these names one or more of the columns of its order; those besides `prefix`, columns that follow it.
    """

    prefix: Sequence[Value]
    """What they begin with."""
    after: Sequence[Value] | None
    """They are more than this."""
    since: Sequence[Value] | None
    """They are at least this."""
    before: Sequence[Value] | None
    """They are less than this."""
    until: Sequence[Value] | None
    """They are at most this."""


class Records:
    """The records of one table in a transaction."""

    def __init__(self, transaction: Transaction, table: Table) -> None:
        """Nothing is read yet."""
        self._transaction, self.table = transaction, table
        self.stored: dict[Values, tuple[bytes | None, Values | None]] = {}
        """Records as they were read, with their versions; a version without a record is that of a damaged one.

        A record without a version was not read, and is not checked.
        """
        self.changed: dict[Values, Values | None] = {}
        """Records that are to be written; None deletes one."""
        self.unchecked: set[Values] = set()
        """Records that were read as a hint."""
        self._fields: dict[Values, bytes] = {}
        self.strays: defaultdict[str, list[bytes]] = defaultdict(list)
        """Members of indexes that are to be removed, by the keys of their sorted sets."""
        self._overlays: dict[str, IndexOverlay] = {}
        self._names: dict[str, LookupOverlay] = {}

    def get(self, *key: Value) -> Values | None:
        """The record of a key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[Values]) -> dict[Values, Values]:
        """The records of keys, in their order; missing ones are left out, and so are damaged ones."""
        wanted = list(dict.fromkeys(keys))
        self.read(wanted)
        records = {}
        for key in wanted:
            record = self.changed[key] if key in self.changed else self.stored[key][1]
            if record is not None:
                records[key] = record
        return records

    def read(self, keys: Iterable[Values], *, hint: bool = False) -> None:
        """Read records in one round trip.

        With `hint`, those that were not read before are not read again by the commit, unless they are written.
        """
        unread = self.unread(keys)
        if unread:
            self.take(unread, self._transaction.hash_values(self.table.name, [self.field(key) for key in unread]))
            if hint:
                self.unchecked.update(unread)

    def field(self, key: Values) -> bytes:
        """The field of a record in the hash of its table; it is used several times."""
        field = self._fields.get(key)
        if field is None:
            field = self._fields[key] = encode(key)
        return field

    def unread(self, keys: Iterable[Values]) -> list[Values]:
        """Those keys whose records were not read yet."""
        return [key for key in dict.fromkeys(keys) if key not in self.stored]

    def take(self, keys: Sequence[Values], found: Sequence[bytes | None]) -> None:
        """Take records that were read."""
        for key, stored in zip(keys, found, strict=True):
            self.stored[key] = self._parsed(key, stored)

    def forget_hints(self) -> None:
        """Forget what was read as a hint: a search through a table reads more than memory should hold."""
        for key in self.unchecked - self.changed.keys():
            del self.stored[key]
        self.unchecked.clear()
        self._fields.clear()

    def put(self, values: Values) -> None:
        """Store a record, in place of the one with its key."""
        key = self.table.key_of(values)
        if key not in self.stored:
            self.read([key])
        self._change(key, values)

    def put_many(self, records: Sequence[Values]) -> None:
        """Store records, each in place of the one with its key."""
        self.read([self.table.key_of(values) for values in records])
        for values in records:
            self._change(self.table.key_of(values), values)

    def add(self, values: Values) -> None:
        """Store a record whose key is new: a number that was drawn for it."""
        key = self.table.key_of(values)
        self.stored.setdefault(key, (b"", None))
        self._change(key, values)

    def delete(self, *key: Value) -> None:
        """Delete a record, if it is there."""
        if self.get(*key) is not None:
            self._change(key, None)

    def _change(self, key: Values, values: Values | None) -> None:
        self.changed[key] = values
        for overlay in self._overlays.values():
            overlay.stale.add(key)
        for named in self._names.values():
            named.stale.add(key)

    def discard(self, *key: Value) -> None:
        """Delete a record without reading it; the indexes of its table name columns of the key only."""
        self.stored.setdefault(key, (None, (*key, *[None] * (len(self.table.columns) - len(key)))))
        self._change(key, None)

    def look_up(self, name: str, *values: Value) -> Values | None:
        """The record that has these values in the columns of a lookup."""
        return self.look_up_many(name, [values]).get(values)

    def look_up_many(self, name: str, wanted: Iterable[Values]) -> dict[Values, Values]:
        """The records that have these values in the columns of a lookup, by them."""
        lookup = self.table.lookups[name]
        fields = {encode(values): values for values in wanted}
        keys = self._transaction.fields(f"{self.table.name}:{name}", list(fields))
        keys_of = {fields[field]: decode(key) for field, key in keys.items()}
        records = self.get_many(keys_of.values())
        results = {}
        for values, key in keys_of.items():
            stored = self.stored[key][1]
            if stored is not None and lookup.field_of(stored) == encode(values):
                # The version of the record is enough: no other one has these values while it has.
                self._transaction.trust(f"{self.table.name}:{name}", encode(values))
            record = records.get(key)
            if record is not None and lookup.field_of(record) == encode(values):  # this transaction may have changed it
                results[values] = record
        named = self._named(name)
        if named:
            results.update((values, named[field]) for field, values in fields.items() if field in named)
        return results

    def _named(self, lookup: str) -> dict[bytes, Values]:
        """The records that this transaction leaves in a lookup, by field, of those that it has changed."""
        named = self._names.get(lookup)
        if named is None:
            named = self._names[lookup] = LookupOverlay(self.changed)
        if named.stale:
            field_of = self.table.lookups[lookup].field_of
            for key in named.stale:
                record = self.changed[key]
                named.set(key, record, None if record is None else field_of(record))
            named.stale.clear()
        return named.records

    def find(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        limit: int | None = None,
        newest_first: bool = False,
        hint: bool = False,
        **span: Unpack[Span],
    ) -> list[Values]:
        """The records of a range of an index, in its order.

        `newest_first` reverses it, and the limit counts from there.
        """
        keys = self.find_keys(index, partition, limit=limit, newest_first=newest_first, hint=hint, **span)
        return list(self.get_many(keys).values())

    def find_keys(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        limit: int | None = None,
        newest_first: bool = False,
        hint: bool = False,
        **span: Unpack[Span],
    ) -> list[Values]:
        """The keys of the records of a range of an index, in its order, without reading these records."""
        places = self.table.indexes[index]
        members = self.find_members(index, partition, member_range(**span), limit, newest_first=newest_first, hint=hint)
        return [places.key_in(decode(member)) for member in members]

    def entries(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        limit: int | None = None,
        newest_first: bool = False,
        hint: bool = False,
        **span: Unpack[Span],
    ) -> list[Values]:
        """The same as `find_keys`, but with the values of the index's columns: these, then the key."""
        members = self.find_members(index, partition, member_range(**span), limit, newest_first=newest_first, hint=hint)
        return [decode(member) for member in members]

    def find_members(
        self,
        index: str,
        partition: Sequence[Value],
        span: tuple[bytes, bytes],
        limit: int | None,
        *,
        newest_first: bool = False,
        hint: bool = False,
    ) -> list[bytes]:
        """The members of a range of a sorted set, as this transaction would leave them."""
        name = partition_name(partition)
        gone, new = self._overlay(index).of(name)
        key, low, high, wanted, reverse = self._question(index, name, span, limit, newest_first=newest_first)
        members = self._transaction.members(key, low, high, wanted, reverse=reverse, hint=hint)
        if gone or new:
            within = {one for one in new if _is_within(one, low, high)}
            if within or not gone.isdisjoint(members):
                members = sorted({*members, *within} - gone, reverse=newest_first)
        return members if limit is None else members[:limit]

    def find_each(
        self,
        index: str,
        partitions: Sequence[Sequence[Value]],
        *,
        limit: int | None = None,
        newest_first: bool = False,
        hint: bool = False,
        **span: Unpack[Span],
    ) -> list[list[Values]]:
        """The keys of the records of the same range in each of some partitions, in one round trip."""
        self._transaction.preload(
            self.question(index, partition, limit=limit, newest_first=newest_first, **span) for partition in partitions
        )
        return [
            self.find_keys(index, partition, limit=limit, newest_first=newest_first, hint=hint, **span)
            for partition in partitions
        ]

    def distinct(
        self,
        index: str,
        partitions: Sequence[Sequence[Value]],
        values: int,
        *,
        steps: int = STEPS,
        **span: Unpack[Span],
    ) -> list[list[Values]]:
        """Of the same range in each of some partitions, the first entry with each beginning of so many values.

        It is a hint, and what this transaction changes is not seen.
        """
        if not partitions:
            return []
        self._transaction.begin()
        low, high = member_range(**span)
        names = (f"{self.table.name}:{index}:{partition_name(partition)}" for partition in partitions)
        answer = self._transaction.client.distinct([(name, low, high, values) for name in names], steps)
        return [[decode(member) for member in members] for members in answer]

    def question(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        limit: int | None = None,
        newest_first: bool = False,
        **span: Unpack[Span],
    ) -> Question:
        """What `find` and the like would ask, for `Transaction.preload`."""
        name, members = partition_name(partition), member_range(**span)
        return self._question(index, name, members, limit, newest_first=newest_first)

    def _question(
        self, index: str, partition: str, span: tuple[bytes, bytes], limit: int | None, *, newest_first: bool
    ) -> Question:
        wanted = EVERYTHING if limit is None else limit + len(self._overlay(index).of(partition)[0])
        return f"{self.table.name}:{index}:{partition}", *span, wanted, newest_first

    def _overlay(self, index: str) -> IndexOverlay:
        """What this transaction changes of an index."""
        overlay = self._overlays.get(index)
        if overlay is None:
            overlay = self._overlays[index] = IndexOverlay(self.changed)
        if overlay.stale:
            places = self.table.indexes[index]
            for key in overlay.stale:
                was, record = self.stored[key][1], self.changed[key]
                overlay.set(
                    key, None if was is None else places.entry(was), None if record is None else places.entry(record)
                )
            overlay.stale.clear()
        return overlay

    def count(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        hint: bool = False,
        **span: Unpack[Span],
    ) -> int:
        """How many records a range of an index has."""
        name = partition_name(partition)
        low, high = member_range(**span)
        counted = self._transaction.count_members(f"{self.table.name}:{index}:{name}", low, high, hint=hint)
        gone, new = self._overlay(index).of(name)
        counted -= sum(_is_within(one, low, high) for one in gone)
        return counted + sum(_is_within(one, low, high) for one in new)

    def note_strays(
        self,
        index: str,
        partition: Sequence[Value] = (),
        *,
        limit: int | None = None,
        **span: Unpack[Span],
    ) -> None:
        """Note the entries of a range whose records are damaged, gone, or belong elsewhere in the index.

        They would be found again and again. The store removes them after this transaction.
        """
        places, name = self.table.indexes[index], partition_name(partition)
        members = self.find_members(index, partition, member_range(**span), limit, hint=True)
        self.read((places.key_in_member(member) for member in members), hint=True)
        self._transaction.strays += [
            (self.table, index, name, member) for member in members if not self._is_at(index, name, member)
        ]

    def remove_stray(self, index: str, partition: str, member: bytes) -> None:
        """Remove an entry of an index, if it is still not that of its record."""
        key = self.table.indexes[index].key_in_member(member)
        self.read([key])
        if not self._is_at(index, partition, member):
            problem = f"index {index} has it in a wrong place, or it is gone"
            self._transaction.damaged(self.table.name, shown_key(key), problem)
            self.strays[f"{self.table.name}:{index}:{partition}"].append(member)

    def _is_at(self, index: str, partition: str, member: bytes) -> bool:
        places = self.table.indexes[index]
        record = self.stored[places.key_in_member(member)][1]
        return record is not None and places.entry(record) == (partition, member)

    def _parsed(self, key: Values, stored: bytes | None) -> tuple[bytes | None, Values | None]:
        if stored is None:
            return b"", None
        version, _, text = stored.partition(b":")
        try:
            values = self.table.from_text(text)
        except ValueError as error:
            problem = str(error)
        else:
            if self.table.key_of(values) == key:
                return version, values
            problem = "it has the key of another record"
        self._transaction.damaged(self.table.name, shown_key(key), problem)
        return version, None


class Transaction:
    """Everything that one unit of work reads and writes."""

    def __init__(
        self, client: Client, now: Callable[[], Micros] | None, damaged: Callable[[str, object, str], None]
    ) -> None:
        """`now` is the clock of a test; otherwise time is the server's. `damaged` takes table, key and problem."""
        self.client, self.damaged = client, damaged
        self._now = now
        self._time: Micros | None = None
        """The server's clock when this began; None until something was read."""
        self._records: dict[str, Records] = {}
        self._ranges: dict[Question, list[bytes]] = {}
        self._counts: dict[tuple[str, bytes, bytes], int] = {}
        self._fields: defaultdict[str, dict[bytes, bytes]] = defaultdict(dict)
        self._checked: set[Question] = set()
        self._trusted: set[tuple[str, bytes]] = set()
        self.strays: list[Stray] = []
        """What is to be removed once this transaction is over."""
        self.reads = 0
        """How many commands have read something; what a single one reads is from one moment."""
        self.notifies = False
        """Tell other nodes that something was written."""
        self.name = ""
        """What the client calls the transaction whose turn it is."""

    def now(self) -> Micros:
        """The store's clock; it stands still during a transaction, unless it is that of a test."""
        return self.begin() if self._now is None else self._now()

    def begin(self) -> Micros:
        """Look whether the store is there, unless that was done; returns the server's clock."""
        if self._time is None:
            self._time, _, _ = self.client.gather([], [], begins=True)
        return self._time

    def records(self, table: Table) -> Records:
        """The records of a table."""
        records = self._records.get(table.name)
        if records is None:
            records = self._records[table.name] = Records(self, table)
        return records

    def scan(self, table: Table, page: int = 1000) -> Iterator[tuple[Values, Values]]:
        """All records of a table with their keys, in no order, as hints; what this transaction changes is not seen.

        A record that moves meanwhile may come twice. Damaged ones are left out.
        """
        self.begin()
        cursor = 0
        while True:
            cursor, records = self.client.scan(table.name, cursor, page)
            for field, stored in records.items():
                try:
                    yield decode(field), table.from_text(stored.partition(b":")[2])
                except ValueError as error:
                    self.damaged(table.name, shown_key(decode(field)), str(error))
            if not cursor:
                return

    def numbers(self, table: str, count: int) -> list[int]:
        """Numbers that no record of a table has, ascending."""
        last = self.client.increase(f"numbers:{table}", count)
        return list(range(last - count + 1, last + 1))

    def members(self, key: str, low: bytes, high: bytes, limit: int, *, reverse: bool, hint: bool) -> list[bytes]:
        """The members of a range of a sorted set."""
        question = (key, low, high, limit, reverse)
        self.preload([question])
        if not hint:
            self._checked.add(question)
        return self._ranges[question]

    def preload(self, questions: Iterable[Question]) -> None:
        """Read many ranges in one round trip; asked for, they are then at hand."""
        self.read_all([], questions)

    def read_all(self, wanted: Sequence[tuple[Records, Iterable[Values]]], questions: Iterable[Question]) -> None:
        """Read records of several tables and ranges in one round trip."""
        records = [(one, keys) for one, wished in wanted if (keys := one.unread(wished))]
        unread = [question for question in dict.fromkeys(questions) if question not in self._ranges]
        if records or unread:
            hashes = [(one.table.name, [one.field(key) for key in keys]) for one, keys in records]
            contents, members = self._gather(hashes, unread)
            for (one, keys), values in zip(records, contents, strict=True):
                one.take(keys, values)
            self._ranges.update(zip(unread, members, strict=True))

    def hash_values(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        """The values of fields of a hash."""
        if self._time is None:
            [values], _ = self._gather([(key, fields)], [])
            return values
        self.reads += 1
        return self.client.hmget(key, fields)

    def _gather(
        self, hashes: Sequence[tuple[str, Sequence[bytes]]], questions: Sequence[Question]
    ) -> tuple[list[list[bytes | None]], list[list[bytes]]]:
        """Read, and begin with that, which takes no further round trip."""
        self.reads += len(hashes) + len(questions)
        time, found, members = self.client.gather(hashes, questions, begins=self._time is None)
        self._time = self._time or time
        return found, members

    def count_members(self, key: str, low: bytes, high: bytes, *, hint: bool) -> int:
        """How many members a range of a sorted set has."""
        self.begin()
        if hint:
            return self.client.count(key, low, high)
        question = (key, low, high)
        if question not in self._counts:
            self.reads += 1
            self._counts[question] = self.client.count(key, low, high)
        return self._counts[question]

    def fields(self, key: str, wanted: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of fields of a hash that are there."""
        cached = self._fields[key]
        unread = [field for field in wanted if field not in cached]
        if unread:
            for field, value in zip(unread, self.hash_values(key, unread), strict=True):
                cached[field] = value or b""
        return {field: cached[field] for field in wanted if cached[field]}

    def trust(self, key: str, field: bytes) -> None:
        """A field that was read need not be read again: something else is, that depends on it."""
        self._trusted.add((key, field))

    @property
    def is_changed(self) -> bool:
        """Whether anything is to be written."""
        return any(records.changed or records.strays for records in self._records.values())

    def is_current(self) -> bool:
        """Whether everything is still as it was read."""
        if self.reads <= 1:
            return True
        checks = self._checks()
        return self.client.commit(checks.keys, checks.arguments) >= 0

    def commit(self) -> bool:
        """Write everything; False, and nothing is written, if something that was read has changed since."""
        if not self.is_changed:
            return self.is_current()
        script = self._checks()
        if self.notifies:
            script.add("p")
        for records in self._records.values():
            script.write(records.table, records.stored, records.changed, records.field)
            for key, members in records.strays.items():
                script.items("m", key, members)
        return self.client.commit(script.keys, script.arguments) >= 0

    def _checks(self) -> CommitScript:
        script = CommitScript()
        if self.name:
            script.add("t", None, self.name)
        for table, records in self._records.items():
            unchecked = records.unchecked - records.changed.keys()
            checks = [
                (records.field(key), version)
                for key, (version, _) in records.stored.items()
                if version is not None and key not in unchecked
            ]
            script.pairs("v", table, checks)
        for key, fields in self._fields.items():
            script.pairs("f", key, [pair for pair in fields.items() if (key, pair[0]) not in self._trusted])
        for question in self._checked:
            key, low, high, limit, reverse = question
            digest = sha1(b"".join(self._ranges[question]), usedforsecurity=False).hexdigest()
            script.add("r", key, low, high, int(reverse), -1 if limit >= EVERYTHING else limit, digest)
        for (key, low, high), counted in self._counts.items():
            script.add("c", key, low, high, counted)
        return script


def shown_key(key: Values) -> str:
    """A primary key, as people read it."""
    return ", ".join(map(str, key))


def member_range(
    prefix: Sequence[Value] = (),
    after: Sequence[Value] | None = None,
    until: Sequence[Value] | None = None,
    before: Sequence[Value] | None = None,
    since: Sequence[Value] | None = None,
) -> tuple[bytes, bytes]:
    """The least and the greatest member of a range, as Redis writes them."""
    begin = encode(prefix)
    if after is not None:
        low = b"(" + begin + encode(after) + AFTER_ALL
    elif since is not None:
        low = b"[" + begin + encode(since)
    else:
        low = b"[" + begin if begin else b"-"
    if before is not None:
        high = b"(" + begin + encode(before)
    elif until is not None:
        high = b"(" + begin + encode(until) + AFTER_ALL
    else:
        high = b"(" + begin + AFTER_ALL if begin else b"+"
    return low, high


def _is_within(member: bytes, low: bytes, high: bytes) -> bool:
    """Whether a member is in a range, as Redis writes it."""
    is_after = low == b"-" or (member > low[1:] if low[:1] == b"(" else member >= low[1:])
    return is_after and (high == b"+" or (member < high[1:] if high[:1] == b"(" else member <= high[1:]))
