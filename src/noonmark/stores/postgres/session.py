"""A session on PostgreSQL: a batch travels as one array for each column, which the server joins to rows.

There are three kinds of transaction. One that reads sees a snapshot. A *quick* one never waits: it skips the rows that
others are changing. A *careful* one first waits for other careful ones of the same tenants, and then locks every record
that it reads. Unlocked writes never wait and locked ones run one at a time, so there are no deadlocks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from noonmark.stores.postgres.dumpers import ARRAYS, Array
from noonmark.stores.sql.session import varying_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from noonmark.core.instants import Micros
    from noonmark.stores.postgres.connections import Connection
    from noonmark.stores.sql.session import Values

CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_WORDS = re.compile(
    r"IN EACH\((?P<among>\w+)\)|EACH\((?P<each>\w+)\) AS (?P<one>\w+)|ROWS\((?P<rows>[\w, ]+)\) AS (?P<many>\w+)"
    r"|(?P<parameter>\?)|(?P<join>CROSS JOIN)|group_concat\((?P<text>\w+)\)|/\* quick: (?P<quick>[\w, ]+) \*/"
)
_COLLATED = {"text": ' COLLATE "C"'}
"""Text is compared as the columns compare theirs."""
_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(r"^    (?P<name>[a-z_]+) (?P<type>[A-Z]+)", re.MULTILINE)
_SENT_AS = {"TEXT": "text", "VARCHAR": "text", "DOUBLE": "double precision", "BYTEA": "bytea"}
"""Other types are integers."""


class PostgresSession:
    """One transaction, or one statement, on a connection."""

    is_narrow = True
    has_buckets = True

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], Micros] | None,
        *,
        began: Micros | None = None,
        locks_rows: bool = False,
    ) -> None:
        """Without a clock, the server's is used; `began` is its time if it is known."""
        self._connection, self._clock = connection, clock
        self._lock = " FOR UPDATE" if locks_rows else ""
        self._lock_of = " FOR UPDATE OF {}" if locks_rows else ""
        self._now = began if clock is None else None

    def now(self) -> Micros:
        """The time at which the transaction had its locks, or first asked for it."""
        if self._now is None:
            self._now = self._connection.fetch(CLOCK)[0][0] if self._clock is None else self._clock()
        return self._now

    def query(self, text: str, *parameters: object) -> list[Values]:
        """The rows of a statement."""
        put, shapes = _put(text)
        return self._connection.fetch(put, _sent(shapes, parameters))

    def gather(self, columns: str, source: str, *parameters: object) -> list[Values]:
        """Columns of a source."""
        alias = " AS gathered" if source.endswith(")") and source.startswith("(") else ""
        return self.query(f"SELECT {columns} FROM {source}{alias}", *parameters)

    def execute(self, text: str, *parameters: object) -> None:
        """Carry out a statement."""
        put, shapes = _put(text)
        self._connection.send(put, _sent(shapes, parameters))

    def pipelined(self) -> AbstractContextManager[object]:
        """Send statements while the server carries out those before them; the end raises an error of any of them."""
        return self._connection.pipeline()

    def records(self, table: str, columns: Sequence[str], by: str, values: Sequence[str | int]) -> list[Values]:
        """Records by a unique column, locked in one order."""
        kind = TYPES[table][by]
        text = f"SELECT {', '.join(columns)} FROM {table} WHERE {by} = ANY(?::{kind}[]) ORDER BY {by}{self._lock}"
        return self.query(text, ARRAYS[kind](values))

    def records_in(self, table: str, columns: Sequence[str], query: str, *parameters: object) -> list[Values]:
        """Records that a query picks."""
        picked = f"({query}{self._lock_of.format(table)}) AS picked"
        return self.query(f"SELECT {', '.join(columns)} FROM {picked}", *parameters)

    def update(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Set columns of rows."""
        varying, parameters = _packed(table, names, rows)
        self._connection.send(_updating(table, names, varying), parameters)

    def insert(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Add rows."""
        varying, parameters = _packed(table, names, rows)
        self._connection.send(_inserting(table, names, varying, 0), parameters)

    def put(self, table: str, names: tuple[str, ...], rows: Sequence[Values], *, key: int = 1) -> None:
        """Add rows, or replace them."""
        varying, parameters = _packed(table, names, rows)
        self._connection.send(_inserting(table, names, varying, key), parameters)

    def delete(self, table: str, by: str, values: Sequence[int]) -> None:
        """Remove rows."""
        kind = TYPES[table][by]
        self.query(f"DELETE FROM {table} WHERE {by} = ANY(?::{kind}[])", ARRAYS[kind](values))

    def numbers(self, table: str, count: int) -> list[int]:
        """The next numbers of the table's sequence."""
        text = f"SELECT nextval('{table}_key_seq') FROM generate_series(1, $1::integer)"
        return sorted(row[0] for row in self._connection.fetch(text, (count,)))


def column_types(schema: str) -> dict[str, dict[str, str]]:
    """The types in which the columns of each table of a schema are sent."""
    return {
        name: {column["name"]: _SENT_AS.get(column["type"], "bigint") for column in _COLUMN.finditer(body)}
        for name, body in _TABLE.findall(schema)
    }


TYPES = column_types(files("noonmark.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8"))
"""What the columns of each table travel as."""


Shape = type[Array] | tuple[type[Array], ...] | None
"""A parameter is a list that becomes an array, a list of rows that becomes an array of each column, or one value."""


@lru_cache(maxsize=512)
def _put(text: str) -> tuple[str, tuple[Shape, ...]]:
    """Translate a shared statement into PostgreSQL's SQL, with the shape of each parameter."""
    shapes: list[Shape] = []
    count = 0

    def next_parameters(kinds: list[str]) -> str:
        nonlocal count
        numbered = [f"${count + place}::{kind}[]{_COLLATED.get(kind, '')}" for place, kind in enumerate(kinds, 1)]
        count += len(kinds)
        return ", ".join(numbered)

    def put(match: re.Match[str]) -> str:
        nonlocal count
        if match["among"]:
            shapes.append(ARRAYS[match["among"]])
            return f"= ANY({next_parameters([match['among']])})"
        if match["each"]:
            shapes.append(ARRAYS[match["each"]])
            return f"unnest({next_parameters([match['each']])}) AS {match['one']}(value)"
        if match["rows"]:
            kinds = [kind.strip() for kind in match["rows"].split(",")]
            shapes.append(tuple(ARRAYS[kind] for kind in kinds))
            columns = ", ".join(f"c{place}" for place in range(len(kinds)))
            return f"unnest({next_parameters(kinds)}) AS {match['many']}({columns})"
        if match["parameter"]:
            shapes.append(None)
            count += 1
            return f"${count}"
        if match["text"]:
            return f"string_agg(CAST({match['text']} AS text), ',')"
        return "JOIN" if match["join"] else f"FOR UPDATE OF {match['quick']} SKIP LOCKED"

    return _WORDS.sub(put, text), tuple(shapes)


def _sent(shapes: tuple[Shape, ...], parameters: tuple[object, ...]) -> list[object]:
    sent: list[object] = []
    for shape, parameter in zip(shapes, parameters, strict=True):
        values: Any = parameter
        if shape is None:
            sent.append(values)
        elif isinstance(shape, tuple):
            columns = zip(*values, strict=True) if values else [()] * len(shape)
            sent += [array(column) for array, column in zip(shape, columns, strict=True)]
        else:
            sent.append(shape(values))
    return sent


def _packed(table: str, names: tuple[str, ...], rows: Sequence[Values]) -> tuple[tuple[int, ...], list[object]]:
    """Which columns vary from row to row, and every column, as an array or as one value."""
    columns = list(zip(*rows, strict=True))
    varying = varying_places(columns)
    packed: list[object] = [column[0] for column in columns]
    for place in varying:
        packed[place] = ARRAYS[TYPES[table][names[place]]](columns[place])
    return varying, packed


def _unnested(table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    types = TYPES[table]
    arrays = ", ".join(f"${place + 1}::{types[names[place]]}[]" for place in varying)
    return f"unnest({arrays}) AS j({', '.join(names[place] for place in varying)})"


def _value(table: str, names: tuple[str, ...], place: int, varying: tuple[int, ...]) -> str:
    return f"j.{names[place]}" if place in varying else f"${place + 1}::{TYPES[table][names[place]]}"


@lru_cache(maxsize=512)
def _updating(table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    changes = ", ".join(f"{names[place]} = {_value(table, names, place, varying)}" for place in range(1, len(names)))
    source = _unnested(table, names, varying)
    return f"UPDATE {table} SET {changes} FROM {source} WHERE {table}.{names[0]} = j.{names[0]}"


@lru_cache(maxsize=512)
def _inserting(table: str, names: tuple[str, ...], varying: tuple[int, ...], key: int) -> str:
    values = ", ".join(_value(table, names, place, varying) for place in range(len(names)))
    source = _unnested(table, names, varying)
    text = f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {source}"
    if not key:
        return text
    others = ", ".join(f"{name} = excluded.{name}" for name in names[key:])
    return f"{text} ON CONFLICT ({', '.join(names[:key])}) DO UPDATE SET {others}"
