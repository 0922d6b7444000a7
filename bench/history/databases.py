"""A database to fill: how SQL reaches it, and what its dialect has instead of the other's."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from hashlib import md5
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.servers.postgres import Postgres

SQLITE_CACHE_KIB = 1 << 20
_NO_ROWS = "SELECT * FROM {} LIMIT 0"
_SQLITE_INDEXES = "SELECT name, sql FROM sqlite_master WHERE sql LIKE 'CREATE%INDEX%' AND tbl_name IN {}"
_POSTGRES_INDEXES = """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'noonmark' AND tablename IN {}
    AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""
_POSTGRES_COLUMNS = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'noonmark' AND table_name = '{}' AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
_NEXT_KEY = "SELECT setval(pg_get_serial_sequence('{table}', 'key'), (SELECT max(key) FROM {table}))"


class Database(Protocol):
    """One empty database."""

    series: str
    """The numbers from {first} to {last}, as a common table expression."""
    url: str

    def run(self, statements: Iterable[str]) -> None:
        """Execute statements; nothing has to survive a crash until they are done."""

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table."""

    def indexes(self, tables: Iterable[str]) -> dict[str, str]:
        """The indexes of tables that can be dropped, with the statements that create them."""

    def keys_follow(self, tables: Iterable[str]) -> Iterator[str]:
        """What lets the next row of a table have the next key, after rows with keys of their own."""

    def settle(self) -> None:
        """Bring statistics up to date, and everything to the disk."""

    def megabytes(self) -> float:
        """What tables and indexes take on the disk."""


class SqliteDatabase:
    """A file of its own."""

    series = """
        series(number) AS (SELECT {first} UNION ALL SELECT number + 1 FROM series WHERE number < {last})
    """

    def __init__(self, path: Path) -> None:
        """The file is created when the store is first opened."""
        self._path = path
        self.url = f"sqlite:///{path}"

    def run(self, statements: Iterable[str]) -> None:
        """Without a journal, and without checks of what is copied from checked rows."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.create_function("md5", 1, lambda text: md5(text.encode()).hexdigest(), deterministic=True)  # noqa: S324 - an id, no secret
            connection.create_function("to_hex", 1, "{:x}".format, deterministic=True)
            for pragma in (
                "journal_mode = OFF",
                "synchronous = OFF",
                f"cache_size = -{SQLITE_CACHE_KIB}",
                "threads = 2",
                "ignore_check_constraints = ON",
            ):
                connection.execute(f"PRAGMA {pragma}")
            for statement in statements:
                connection.execute(statement)
            connection.execute("PRAGMA journal_mode = WAL")

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(text).fetchall()

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table."""
        with closing(sqlite3.connect(self._path)) as connection:
            found = connection.execute(_NO_ROWS.format(table))
            return [column[0] for column in found.description]

    def indexes(self, tables: Iterable[str]) -> dict[str, str]:
        """All but those of primary keys and constraints, which have no statement."""
        return dict(self.query(_SQLITE_INDEXES.format(_in(tables))))

    def keys_follow(self, tables: Iterable[str]) -> Iterator[str]:
        """A key is one more than the largest."""
        del tables
        yield from ()

    def settle(self) -> None:
        """The store keeps no statistics in SQLite."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())

    def megabytes(self) -> float:
        """The size of the file."""
        return self._path.stat().st_size / 1e6


class PostgresDatabase:
    """A database of a server."""

    series = "series(number) AS (SELECT * FROM generate_series(CAST({first} AS bigint), {last}))"

    def __init__(self, server: Postgres, name: str) -> None:
        """Created here."""
        self.url = server.create(name)

    def run(self, statements: Iterable[str]) -> None:
        """Each in its own transaction."""
        with self._connection() as connection:
            connection.execute("SET synchronous_commit = off")
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._connection() as connection:
            return connection.execute(text.encode()).fetchall()

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table, without those that the server computes."""
        return [name for (name,) in self.query(_POSTGRES_COLUMNS.format(table))]

    def indexes(self, tables: Iterable[str]) -> dict[str, str]:
        """All but those of constraints."""
        return dict(self.query(_POSTGRES_INDEXES.format(_in(tables))))

    def keys_follow(self, tables: Iterable[str]) -> Iterator[str]:
        """Set the sequence behind each key."""
        for table in tables:
            yield _NEXT_KEY.format(table=table)

    def settle(self) -> None:
        """What autovacuum and the checkpointer do in their own time."""
        with self._connection() as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    def megabytes(self) -> float:
        """The size of the tables and indexes of the schema."""
        [(size,)] = self.query(
            "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = 'noonmark'::regnamespace"
        )
        return float(size) / 1e6

    def _connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True, options="-c search_path=noonmark")


def _in(names: Iterable[str]) -> str:
    return "(" + ", ".join(f"'{name}'" for name in names) + ")"
