"""A database of a Redis server as one end of `noonmark store copy`.

Redis has neither snapshots nor locks. A source is held by a key that keeps commits from writing, and that vanishes with
the process that holds it. A hash has no order, so the keys of a table are read and sorted before its records.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import contextmanager
from secrets import token_hex  # noqa: TID251 - a hold belongs to one process
from typing import TYPE_CHECKING, Any, Self

from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.stores.redis import bootstrap, nodes
from noonmark.stores.redis.address import parse_address
from noonmark.stores.redis.schema.schedules import OCCURRENCES, SCHEDULES, hidden_as
from noonmark.stores.redis.schema.tables import TABLES
from noonmark.stores.redis.transactions.client import FORMAT_KEY, HOLD_KEY, Client
from noonmark.stores.redis.transactions.ordered import decode, encode
from noonmark.stores.redis.transactions.transaction import Transaction
from noonmark.stores.sql.row_checks import KINDS
from noonmark.stores.sql.schema.version import COPY_MARK
from noonmark.stores.store_copy.endpoint import refuse_used, unfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.stores.redis.transactions.table import Table
    from noonmark.stores.store_copy.endpoint import CopyTable, Reader, Values

HOLD_SECONDS = 120
"""How long a source stays held after the process that held it was killed."""
_RENEWAL = HOLD_SECONDS / 6
_SCANNED = 1_000
"""How many records are looked at in one step."""
_COPYING, _MARK = "copying", b"mark"
"""A hash with the mark, which each commit of a copy checks; the version of the format has it, too."""

_REAL = {(table, column) for table, kinds in KINDS.items() for column, kind in kinds.items() if kind.holds is float}


class RedisEndpoint:
    """The keys of one prefix."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet."""
        self._address = parse_address(url)
        self._client = Client(self._address)
        self._fields = _Fields(self._client)

    @property
    def identity(self) -> str:
        """The server, the database and the prefix."""
        return f"redis {self._address.shown} {self._address.prefix}"

    def check(self) -> None:
        """Refuse a database without a store, and one of another format."""
        bootstrap.make_ready(self._client, self._address, migrates=False)

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """Read what is there; a source that others write to is read again when it is held."""
        # The fields of a target are known: only this process writes to it.
        fields = self._fields if self.unfinished() else _Fields(self._client)
        yield _RedisReader(self._client, fields)

    @contextmanager
    def hold(self) -> Iterator[Reader]:
        """Read while commits of all other processes are refused."""
        with _Hold(self._client, self._address.prefix) as hold:
            yield _RedisReader(self._client, _Fields(self._client), hold)

    def unfinished(self) -> str | None:
        """The mark."""
        bootstrap.check_server(self._client, self._address, is_volatile=self._address.is_volatile)
        stored_format = (self._client.read(FORMAT_KEY) or b"").decode(errors="replace")
        return stored_format if COPY_MARK.fullmatch(stored_format) else None

    def begin(self, mark: str, tables: Sequence[CopyTable], *, migrates: bool) -> None:  # noqa: ARG002 - there are no tables to create
        """Mark the database."""
        bootstrap.make_ready(self._client, self._address)
        reader = _RedisReader(self._client, self._fields)
        refuse_used(reader, tables)
        self._client.replace(FORMAT_KEY, mark, hashes={_COPYING: {_MARK: mark}})
        try:
            refuse_used(reader, tables)  # a node may have started before it was marked
        except Conflict:
            self._client.replace(FORMAT_KEY, bootstrap.FORMAT, hashes={_COPYING: {}})
            raise

    def write(self, mark: str, table: CopyTable, *, remove: Sequence[Values], add: Sequence[Values]) -> None:
        """Remove and add records, in one commit that checks the mark."""
        transaction = Transaction(self._client, None, _ignore)
        if transaction.fields(_COPYING, [_MARK]).get(_MARK) != mark.encode():
            raise Conflict("another process has finished or replaced this copy", field="TO")
        records = transaction.records(TABLES[table.name])
        records.get_many([*remove, *(table.key_of(row) for row in add)])
        for key in remove:
            records.delete(*key)
        try:
            for record in _to_records(transaction, table, add):
                records.put(record)
            is_written = transaction.commit()
        except (TypeError, ValueError, OverflowError) as error:
            raise unfit(table, add or remove, str(error)) from error
        if not is_written:
            raise Conflict("another process writes to this copy", field="TO")
        self._fields.change(table, gone=map(encode, remove), new=[encode(table.key_of(row)) for row in add])

    def finish(self, mark: str, tables: Sequence[CopyTable]) -> None:
        """Replace the mark with the version; numbers go on after the greatest."""
        if self.unfinished() != mark:
            raise Conflict("another process has finished or replaced this copy", field="TO")
        numbers = {}
        for table in tables:
            fields = self._fields.of(table)
            if table.columns[0] == "key" and fields:
                numbers[f"numbers:{table.name}"] = decode(fields[-1])[0]
        self._client.replace(FORMAT_KEY, bootstrap.FORMAT, hashes={_COPYING: {}}, others=numbers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class _RedisReader:
    def __init__(self, client: Client, fields: _Fields, hold: _Hold | None = None) -> None:
        self._client, self._fields, self._hold = client, fields, hold

    def count(self, table: CopyTable) -> int:
        return self._client.size(table.name)

    def read(self, table: CopyTable, after: Values | None) -> list[Values]:
        if self._hold is not None:
            self._hold.check()
        fields = self._fields.of(table)
        begin = 0 if after is None else bisect_right(fields, encode(after))
        rows: list[Values] = []
        while not rows and begin < len(fields):
            batch = fields[begin : begin + table.batch]
            begin += len(batch)
            stored = zip(batch, self._client.hmget(table.name, batch), strict=True)
            rows = [_to_row(table, field, one) for field, one in stored if one is not None]
        return rows

    def alive_nodes(self) -> list[str]:
        transaction = Transaction(self._client, None, _ignore)
        return [one.name for one in nodes.records(transaction, now=transaction.now()) if one.is_alive]


class _Fields:
    """The fields of tables, sorted; those of a table are read when they are first asked for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sorted: dict[str, list[bytes]] = {}

    def of(self, table: CopyTable) -> list[bytes]:
        if table.name not in self._sorted:
            fields, cursor = set[bytes](), 0
            while True:
                cursor, page = self._client.scan(table.name, cursor, _SCANNED)
                fields.update(page)
                if not cursor:
                    break
            self._sorted[table.name] = sorted(fields)
        return self._sorted[table.name]

    def change(self, table: CopyTable, *, gone: Iterator[bytes], new: Sequence[bytes]) -> None:
        if table.name in self._sorted:
            removed = set(gone)
            fields = self._sorted[table.name]
            remaining = [field for field in fields if field not in removed] if removed else fields
            # Mostly they come in order, which costs little to sort.
            self._sorted[table.name] = sorted(remaining + list(new)) if new else remaining


class _Hold(threading.Thread):
    """Keeps a key that keeps others from writing, until the block ends."""

    def __init__(self, client: Client, prefix: str) -> None:
        super().__init__(name="noonmark-hold", daemon=True)
        self._client, self._token = client, token_hex(8)
        self._prefix = prefix
        self._ended = threading.Event()
        self._is_lost = False

    def __enter__(self) -> Self:
        if self._client.write_once(HOLD_KEY, self._token, seconds=HOLD_SECONDS) != self._token.encode():
            raise Conflict(
                f"another process copies this store, or was killed while it did: wait {HOLD_SECONDS} s, or delete the"
                f" key {self._prefix}:{HOLD_KEY}",
                field="FROM",
            )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        if not self._is_lost:
            self._client.prolong(HOLD_KEY, self._token, seconds=0)

    def check(self) -> None:
        """Refuse to go on if others may have written."""
        if self._is_lost:
            raise StoreUnavailable("the store could not be kept from being written to; run the same command again")

    def run(self) -> None:
        while not self._ended.wait(_RENEWAL):
            try:
                self._is_lost |= not self._client.prolong(HOLD_KEY, self._token, seconds=HOLD_SECONDS)
            except StoreUnavailable:
                self._is_lost = True


def _to_row(table: CopyTable, field: bytes, stored: bytes) -> Values:
    """A record as a row of the SQL stores."""
    try:
        named = TABLES[table.name].named(TABLES[table.name].from_text(stored.partition(b":")[2]))
    except ValueError as error:
        raise Conflict(
            f"the record {', '.join(map(str, decode(field)))} of {table.name} cannot be read: {error}; `noonmark"
            " doctor` on the source finds damaged rows",
            field="FROM",
        ) from error
    return tuple(_to_cell(named[column], is_real=(table.name, column) in _REAL) for column in table.columns)


def _to_cell(value: Any, *, is_real: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    return float(value) if is_real and isinstance(value, int) else value


def _to_records(transaction: Transaction, table: CopyTable, rows: Sequence[Values]) -> Iterator[Values]:
    """Rows of the SQL stores as records, which repeat a few columns of others."""
    record_table = TABLES[table.name]
    named = [dict(zip(table.columns, row, strict=True)) for row in rows]
    if table.name in {"schedule_states", "occurrences"}:
        schedules = _of(transaction, SCHEDULES, {(one["schedule"],) for one in named})
        for one in named:
            schedule = schedules.get((one["schedule"],), {})
            one["tenant"], one["username"] = schedule.get("tenant"), schedule.get("username")
            one["route"] = one.get("route", schedule.get("route"))
            one["is_hidden"] = hidden_as(schedule["schedule_id"]) if schedule else 0
    elif table.name == "runs":
        occurrences = _of(transaction, OCCURRENCES, {(one["occurrence"],) for one in named})
        for one in named:
            one["occurrence_id"] = occurrences.get((one["occurrence"],), {}).get("id")
    return (tuple(one[column] for column in record_table.columns) for one in named)


def _of(transaction: Transaction, table: Table, keys: set[Values]) -> dict[Values, dict[str, Any]]:
    return {key: table.named(record) for key, record in transaction.records(table).get_many(keys).items()}


def _ignore(table: str, key: object, problem: str) -> None:
    """Damaged records are reported where they are read as rows."""
