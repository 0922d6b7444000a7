"""A SQLite file as one end of `noonmark store copy`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.errors import Conflict, NotFound
from noonmark.stores.sql import nodes
from noonmark.stores.sql.copy_tables import read_statement, remove_statement
from noonmark.stores.sql.schema.version import COPY_MARK, TABLE, VERSION
from noonmark.stores.sqlite import bootstrap
from noonmark.stores.sqlite.connections import Connections
from noonmark.stores.sqlite.session import SqliteSession
from noonmark.stores.store_copy.endpoint import refuse_used, unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.store_copy.endpoint import CopyTable, Reader, Values

BUSY_SECONDS = 30
_MARK = f"SELECT version_num FROM {TABLE}"
_SET_MARK = f"UPDATE {TABLE} SET version_num = ?"
_HAS_VERSIONS = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{TABLE}'"


class SqliteEndpoint:
    """One file."""

    def __init__(self, path: str, now: Callable[[], Micros]) -> None:
        """Nothing is opened yet."""
        self._path, self._now = path, now
        self._connections = Connections(path, now, busy_seconds=BUSY_SECONDS)

    @property
    def identity(self) -> str:
        """The path of the file, through links."""
        return f"sqlite {os.path.realpath(self._path)}"

    def check(self) -> None:
        """Refuse a file that is missing, or whose schema is not that of this version."""
        if not Path(self._path).is_file():
            raise NotFound(f"there is no file {self._path}", field="FROM")
        bootstrap.make_ready(self._connections, migrates=False, creates=False)

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """Read one snapshot, beside writers in the log."""
        with self._connections.reading() as connection:
            yield _SqliteReader(connection, self._now)

    @contextmanager
    def hold(self) -> Iterator[Reader]:
        """Read with the lock of the file's one writer."""
        with self._connections.writing() as connection:
            yield _SqliteReader(connection, self._now)

    def unfinished(self) -> str | None:
        """The mark; a missing file is not created."""
        if not Path(self._path).is_file() or not Path(self._path).stat().st_size:
            return None
        with self._connections.autocommit_connection() as connection:
            if not connection.execute(_HAS_VERSIONS).fetchall():
                return None
            versions = [str(version) for (version,) in connection.execute(_MARK)]
        return next((version for version in versions if COPY_MARK.fullmatch(version)), None)

    def begin(self, mark: str, tables: Sequence[CopyTable], *, migrates: bool) -> None:  # noqa: ARG002 - a file is always created
        """Create the schema, and mark it."""
        bootstrap.make_ready(self._connections)
        with self._connections.writing() as connection:
            refuse_used(_SqliteReader(connection, self._now), tables)
            connection.execute(_SET_MARK, (mark,))

    def write(self, mark: str, table: CopyTable, *, remove: Sequence[Values], add: Sequence[Values]) -> None:
        """Remove and add rows."""
        with self._connections.writing() as connection:
            self._check_mark(connection, mark)
            connection.executemany(remove_statement(table), remove)
            names, values = ", ".join(table.columns), ", ".join("?" * len(table.columns))
            try:
                connection.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({values})", add)
            except sqlite3.IntegrityError as error:
                raise unfit(table, add, str(error)) from error

    def finish(self, mark: str, tables: Sequence[CopyTable]) -> None:  # noqa: ARG002 - SQLite counts on from the greatest number
        """Replace the mark with the version."""
        with self._connections.writing() as connection:
            self._check_mark(connection, mark)
            connection.execute(_SET_MARK, (VERSION,))

    def close(self) -> None:
        """Close the file."""
        self._connections.close()

    def _check_mark(self, connection: sqlite3.Connection, mark: str) -> None:
        if connection.execute(_MARK).fetchall() != [(mark,)]:
            raise Conflict("another process has finished or replaced this copy", field="TO")


class _SqliteReader:
    def __init__(self, connection: sqlite3.Connection, now: Callable[[], Micros]) -> None:
        self._connection, self._now = connection, now

    def count(self, table: CopyTable) -> int:
        [(rows,)] = self._connection.execute(f"SELECT count(*) FROM {table.name}")
        return int(rows)

    def read(self, table: CopyTable, after: Values | None) -> list[Values]:
        return self._connection.execute(read_statement(table, after), after or ()).fetchall()

    def alive_nodes(self) -> list[str]:
        session = SqliteSession(self._connection, self._now)
        return [one.name for one in nodes.records(session, now=self._now()) if one.is_alive]
