"""Many rows in one statement: they travel as one JSON array, which SQLite takes apart.

One statement per row would give the interpreter up and take it back for each of them, and wait its turn beside any
thread that computes. A column that has the same value in all rows travels as one parameter.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from noonmark.stores.sqlite.driver import sqlite3

if TYPE_CHECKING:
    from collections.abc import Sequence


def gather(
    connection: sqlite3.Connection, columns: str, source: str, parameters: Sequence[Any] | dict[str, Any]
) -> list[tuple[Any, ...]]:
    """All rows of a source, as one row of JSON; those of a subquery in its order.

    Reading rows one by one lets the interpreter go at each of them, and beside a busy thread each return takes a turn.
    """
    try:
        text = f"SELECT json_group_array(json_array({columns})) FROM {source}"  # noqa: S608 - our own text
        [(found,)] = connection.execute(text, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "BLOB" not in str(error):
            raise
        # A damaged value that JSON cannot hold; whoever reads the row finds it.
        return connection.execute(f"SELECT {columns} FROM {source}", parameters).fetchall()  # noqa: S608 - likewise
    return [tuple(row) for row in json.loads(found)]


def lists(connection: sqlite3.Connection, query: str, parameters: dict[str, Any]) -> list[str]:
    """The JSON arrays that a query gathers, one of each column; another statement takes them as they are."""
    try:
        [found] = connection.execute(query, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "BLOB" not in str(error):
            raise
        raise ValueError("a damaged value that JSON cannot hold") from error
    return list(found)


def select(
    connection: sqlite3.Connection, columns: str, table: str, by: str, values: Sequence[str | int]
) -> list[tuple[Any, ...]]:
    """The rows whose column `by`, a unique one, has one of the values; in no order."""
    # CROSS JOIN: SQLite must not reorder it and walk the table.
    source = f"json_each(?) AS j CROSS JOIN {table} ON {table}.{by} = j.value"
    return gather(connection, columns, source, (json.dumps(values),))


def update(connection: sqlite3.Connection, table: str, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Set columns of rows; the first of the names is the primary key."""
    same, varying, parameter = _packed(rows)
    connection.execute(_updating(table, names, varying), (*same, parameter))


def insert(connection: sqlite3.Connection, table: str, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows."""
    same, varying, parameter = _packed(rows)
    connection.execute(_inserting("INSERT", table, names, varying), (*same, parameter))


def put(connection: sqlite3.Connection, table: str, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows; each takes the place of the one with its primary key."""
    same, varying, parameter = _packed(rows)
    connection.execute(_inserting("INSERT OR REPLACE", table, names, varying), (*same, parameter))


def delete(connection: sqlite3.Connection, table: str, by: str, values: Sequence[int]) -> None:
    """Remove the rows whose column `by` has one of the values."""
    connection.execute(_deleting(table, by), (json.dumps(values),))


def _packed(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], tuple[int, ...], str]:
    """The values that all rows share, the places of those they do not, and these as JSON."""
    if len(rows) == 1:
        [(key, *others)] = rows
        return others, (0,), json.dumps((key,))
    columns = list(zip(*rows, strict=True))
    varying = tuple(
        place for place, column in enumerate(columns) if place == 0 or column.count(column[0]) != len(column)
    )
    same = [column[0] for place, column in enumerate(columns) if place not in varying]
    packed = columns[0] if varying == (0,) else list(zip(*(columns[place] for place in varying), strict=True))
    return same, varying, json.dumps(packed)


def _taken(varying: tuple[int, ...]) -> dict[int, str]:
    """How SQLite takes each varying value out of an element of the array."""
    if varying == (0,):
        return {0: "j.value"}
    return {place: f"j.value ->> {index}" for index, place in enumerate(varying)}


@lru_cache(maxsize=512)
def _updating(table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    taken = _taken(varying)
    changes = ", ".join(f"{name} = {taken.get(place, '?')}" for place, name in enumerate(names) if place > 0)
    if varying == (0,):
        return f"UPDATE {table} SET {changes} WHERE {names[0]} IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own names
    return f"UPDATE {table} SET {changes} FROM json_each(?) AS j WHERE {table}.{names[0]} = {taken[0]}"  # noqa: S608 - likewise


@lru_cache(maxsize=512)
def _inserting(verb: str, table: str, names: tuple[str, ...], varying: tuple[int, ...]) -> str:
    taken = _taken(varying)
    values = ", ".join(taken.get(place, "?") for place in range(len(names)))
    return f"{verb} INTO {table} ({', '.join(names)}) SELECT {values} FROM json_each(?) AS j"  # noqa: S608 - our own names


@lru_cache(maxsize=16)
def _deleting(table: str, by: str) -> str:
    return f"DELETE FROM {table} WHERE {by} IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own names
