"""A session on SQLite: many rows are passed as one JSON array, which SQLite splits or builds.

One statement per row would release and take the interpreter lock for each of them, and compete with any
thread that computes. A column that has the same value in all rows travels as one parameter.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from noonmark.stores.sql.row_checks import FURTHEST
from noonmark.stores.sql.session import varying_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Values

_IN_EACH = re.compile(r"IN EACH\(\w+\)")
_EACH = re.compile(r"EACH\(\w+\)")
_ROWS = re.compile(r"ROWS\(([\w, ]+)\)")
_QUICK = re.compile(r"/\* quick: [\w, ]+ \*/")


class SqliteSession:
    """No other connection writes meanwhile, so a record that was read does not change."""

    is_narrow = False
    has_buckets = False

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], Micros]) -> None:
        """In the transaction that the connection is in."""
        self._connection = connection
        self.now = now
        self._last: dict[str, int] = {}

    def query(self, text: str, *parameters: object) -> list[Values]:
        """The rows of a statement."""
        return self._connection.execute(*_bound(text, parameters)).fetchall()

    def gather(self, columns: str, source: str, *parameters: object) -> list[Values]:
        """The same as one row of JSON.

        Reading rows one by one lets the interpreter go at each of them, and beside a busy thread each return takes a
        turn.
        """
        if any(_is_one_row(one) for one in parameters):
            return self.query(f"SELECT {columns} FROM {source}", *parameters)
        sent = _sent(parameters)
        try:
            text = _put(f"SELECT json_group_array(json_array({columns})) FROM {source}")
            [(document,)] = self._connection.execute(text, sent).fetchall()
        except sqlite3.OperationalError as error:
            if "BLOB" not in str(error):
                raise
            # A damaged value that JSON cannot hold; the reader of the row finds it.
            return self._connection.execute(_put(f"SELECT {columns} FROM {source}"), sent).fetchall()
        return [tuple(row) for row in json.loads(document)]

    def execute(self, text: str, *parameters: object) -> None:
        """Carry out a statement."""
        self._connection.execute(_put(text), _sent(parameters))

    def pipelined(self) -> AbstractContextManager[object]:
        """Statements are carried out at once."""
        return nullcontext()

    def records(self, table: str, columns: Sequence[str], by: str, values: Sequence[str | int]) -> list[Values]:
        """Records by a unique column."""
        if len(values) == 1 and _is_ascii(values[0]):
            return self._connection.execute(_reading_one(table, tuple(columns), by), (values[0],)).fetchall()
        named = ", ".join(f"{table}.{name}" for name in columns)
        return self.gather(named, f"EACH(any) AS j CROSS JOIN {table} ON {table}.{by} = j.value", values)

    def records_in(self, table: str, columns: Sequence[str], query: str, *parameters: object) -> list[Values]:  # noqa: ARG002 - one writes at a time
        """Records that a query picks."""
        return self.gather(", ".join(columns), f"({query})", *parameters)

    def update(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Set columns of rows."""
        if len(rows) == 1:
            [(key, *others)] = rows
            self._connection.execute(_updating_one(table, names), (*others, key))
            return
        same, varying, parameter = _packed(rows)
        self._connection.execute(_updating(table, names, varying), (*same, parameter))

    def insert(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Add rows."""
        self._insert("INSERT", table, names, rows)

    def put(self, table: str, names: tuple[str, ...], rows: Sequence[Values], *, key: int = 1) -> None:  # noqa: ARG002 - SQLite knows it
        """Add rows, or replace them."""
        self._insert("INSERT OR REPLACE", table, names, rows)

    def _insert(self, verb: str, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        if len(rows) == 1:
            self._connection.execute(_inserting_one(verb, table, names), rows[0])
            return
        same, varying, parameter = _packed(rows)
        self._connection.execute(_inserting(verb, table, names, varying), (*same, parameter))

    def delete(self, table: str, by: str, values: Sequence[int]) -> None:
        """Remove rows."""
        self.execute(f"DELETE FROM {table} WHERE {by} IN EACH(any)", values)

    def numbers(self, table: str, count: int) -> list[int]:
        """Numbers after the greatest."""
        if table not in self._last:
            tables = _CREATED_TOGETHER if table in _CREATED_TOGETHER else (table,)
            newest = self._connection.execute(_newest(tables)).fetchone()
            self._last |= {name: key or 0 for name, key in zip(tables, newest, strict=True)}
        first = self._last[table] + 1
        self._last[table] += count
        return list(range(first, first + count))


_CREATED_TOGETHER = ("schedules", "occurrences")
"""A schedule is created with its first occurrences, so one statement finds the numbers of both."""


@lru_cache(maxsize=64)
def _newest(tables: tuple[str, ...]) -> str:
    # A damaged key at the end of all numbers leaves none after it.
    return f"SELECT {', '.join(f'(SELECT max(key) FROM {table} WHERE key <= {FURTHEST})' for table in tables)}"


@lru_cache(maxsize=512)
def _put(text: str, *, has_one_row: bool = False) -> str:
    """A shared statement in SQLite's own words. The values of one row are parameters."""
    looked_up = _IN_EACH.sub("IN (SELECT value FROM json_each(?))", text)
    rows = _ROWS.sub(_one_row if has_one_row else _taken_apart, _EACH.sub("json_each(?)", looked_up))
    return _QUICK.sub("", rows)


def _one_row(match: re.Match[str]) -> str:
    columns = range(len(match[1].split(",")))
    return f"(SELECT {', '.join(f'? AS c{place}' for place in columns)})"


def _taken_apart(match: re.Match[str]) -> str:
    columns = range(len(match[1].split(",")))
    taken = ", ".join(f"json_extract(value, '$[{place}]') AS c{place}" for place in columns)
    return f"(SELECT {taken} FROM json_each(?))"


def _sent(parameters: tuple[object, ...]) -> tuple[object, ...]:
    return tuple([json.dumps(one) if isinstance(one, list | tuple) else one for one in parameters])


def _is_ascii(value: str | int) -> bool:
    """Whether it can be a parameter; text with half a surrogate pair cannot, but JSON can hold it."""
    return isinstance(value, int) or value.isascii()


def _is_one_row(parameter: object) -> bool:
    return isinstance(parameter, list) and len(parameter) == 1 and isinstance(parameter[0], tuple)


@lru_cache(maxsize=512)
def _has_one_list_of_rows(text: str) -> bool:
    return len(_ROWS.findall(text)) == 1


def _bound(text: str, parameters: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """A statement and its parameters. One row alone needs no JSON, which takes longer than most look-ups of one."""
    if len(parameters) == 1 and _is_one_row(parameters[0]) and _has_one_list_of_rows(text):
        row: Any = parameters[0]
        return _put(text, has_one_row=True), row[0]
    places = [place for place, one in enumerate(parameters) if _is_one_row(one)]
    if len(places) != 1 or not _has_one_list_of_rows(text):
        return _put(text), _sent(parameters)
    [place] = places
    row = parameters[place]
    return _put(text, has_one_row=True), (*_sent(parameters[:place]), *row[0], *_sent(parameters[place + 1 :]))


def _packed(rows: Sequence[Values]) -> tuple[list[Any], tuple[int, ...], str]:
    """The values that all rows share, the places of those they do not, and these as JSON."""
    columns = list(zip(*rows, strict=True))
    varying = varying_places(columns)
    same = [column[0] for place, column in enumerate(columns) if place not in varying]
    packed = columns[0] if varying == (0,) else list(zip(*(columns[place] for place in varying), strict=True))
    return same, varying, json.dumps(packed)


def _taken(varying: tuple[int, ...]) -> dict[int, str]:
    """How SQLite takes each varying value out of an element of the array."""
    if varying == (0,):
        return {0: "j.value"}
    return {place: f"json_extract(j.value, '$[{index}]')" for index, place in enumerate(varying)}


@lru_cache(maxsize=512)
def _updating(table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    taken = _taken(varying)
    changes = ", ".join(f"{name} = {taken.get(place, '?')}" for place, name in enumerate(names) if place > 0)
    if varying == (0,):
        return f"UPDATE {table} SET {changes} WHERE {names[0]} IN (SELECT value FROM json_each(?))"
    return f"UPDATE {table} SET {changes} FROM json_each(?) AS j WHERE {table}.{names[0]} = {taken[0]}"


@lru_cache(maxsize=512)
def _reading_one(table: str, names: tuple[str, ...], by: str) -> str:
    return f"SELECT {', '.join(names)} FROM {table} WHERE {by} = ?"


@lru_cache(maxsize=512)
def _updating_one(table: str, names: tuple[str, ...]) -> str:
    changes = ", ".join(f"{name} = ?" for name in names[1:])
    return f"UPDATE {table} SET {changes} WHERE {names[0]} = ?"


@lru_cache(maxsize=512)
def _inserting_one(verb: str, table: str, names: tuple[str, ...]) -> str:
    return f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@lru_cache(maxsize=512)
def _inserting(verb: str, table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    taken = _taken(varying)
    values = ", ".join(taken.get(place, "?") for place in range(len(names)))
    return f"{verb} INTO {table} ({', '.join(names)}) SELECT {values} FROM json_each(?) AS j"
