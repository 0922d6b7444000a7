"""A schema of a PostgreSQL database as one end of `noonmark store copy`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import psycopg

from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.stores.postgres import bootstrap
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import ConnectionPool, RetryableError, summary, translate_error
from noonmark.stores.postgres.session import PostgresSession
from noonmark.stores.sql import nodes
from noonmark.stores.sql.copy_tables import NOT_COPIED, copy_tables, read_statement, remove_statement
from noonmark.stores.sql.schema.version import COPY_MARK, TABLE, VERSION
from noonmark.stores.store_copy.endpoint import refuse_used, unfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.stores.postgres.connections import Connection
    from noonmark.stores.store_copy.endpoint import CopyTable, Reader, Values

SECONDS = 60.0
"""As long as a statement of a copy may take, at least."""
_PATIENT = "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"
"""A transaction that reads a whole store is idle while the other end writes."""
_READING = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PATIENT}"
_HOLDING = f"BEGIN; {_PATIENT}; LOCK TABLE {{}} IN SHARE MODE"
_WRITING = "BEGIN"
_MARK = f"SELECT version_num FROM {TABLE}"
_SET_MARK = f"UPDATE {TABLE} SET version_num = $1"
_HAS_VERSIONS = "SELECT to_regclass($1) IS NOT NULL"
_COUNT_ON = """
    SELECT setval(pg_get_serial_sequence('{0}', 'key'), newest) FROM (SELECT max(key) AS newest FROM {0}) AS of_rows
    WHERE newest IS NOT NULL
"""


class PostgresEndpoint:
    """One schema."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet."""
        address = parse_address(url)
        self._address = replace(address, timeout=max(address.timeout, SECONDS))
        self._pool = ConnectionPool(self._address)

    @property
    def identity(self) -> str:
        """The server, the database and the schema."""
        return f"postgresql {self._address.shown} {self._address.schema}"

    def check(self) -> None:
        """Refuse a schema that is missing or not that of this version."""
        self._make_ready(migrates=False)

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """Read one snapshot."""
        with self._transaction(_READING) as connection:
            yield _PostgresReader(connection)

    @contextmanager
    def hold(self) -> Iterator[Reader]:
        """Read with a lock on every table that lets others read, and not write."""
        tables = [*(table.name for table in copy_tables()), *NOT_COPIED]
        with self._transaction(_HOLDING.format(", ".join(tables))) as connection:
            yield _PostgresReader(connection)

    def unfinished(self) -> str | None:
        """The mark."""
        with self._transaction(_READING) as connection:
            if not connection.fetch(_HAS_VERSIONS, [f'"{self._address.schema}".{TABLE}'])[0][0]:
                return None
            versions = [str(version) for (version,) in connection.fetch(_MARK)]
        return next((version for version in versions if COPY_MARK.fullmatch(version)), None)

    def begin(self, mark: str, tables: Sequence[CopyTable], *, migrates: bool) -> None:
        """Create the schema if it may, and mark it."""
        self._make_ready(migrates=migrates)
        with self._transaction(_HOLDING.format(", ".join([*(table.name for table in tables), *NOT_COPIED]))) as writer:
            refuse_used(_PostgresReader(writer), tables)
            writer.fetch(_SET_MARK, [mark])

    def write(self, mark: str, table: CopyTable, *, remove: Sequence[Values], add: Sequence[Values]) -> None:
        """Remove rows by their keys, and add rows by COPY."""
        with self._transaction(_WRITING) as connection:
            _check_mark(connection, mark)
            statement = _numbered(remove_statement(table))
            for key in remove:
                connection.fetch(statement, key)
            if not add:
                return
            try:
                copied = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
                with connection.cursor().copy(copied) as stream:
                    for row in add:
                        stream.write_row(row)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise unfit(table, add, summary(error)) from error

    def finish(self, mark: str, tables: Sequence[CopyTable]) -> None:
        """Replace the mark with the version; sequences go on after the greatest number."""
        with self._transaction(_WRITING) as connection:
            _check_mark(connection, mark)
            for table in tables:
                if table.columns[0] == "key":
                    connection.fetch(_COUNT_ON.format(table.name))
            # The server plans for empty tables until it is told.
            connection.run(f"ANALYZE {', '.join(table.name for table in tables)}")
            connection.fetch(_SET_MARK, [VERSION])

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _make_ready(self, *, migrates: bool) -> None:
        connection = self._pool.acquire()
        with self._explained():
            try:
                bootstrap.make_ready(connection, self._address, migrates=migrates)
            except BaseException:
                self._pool.discard(connection)
                raise
        self._pool.release(connection)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        connection = self._pool.acquire()
        with self._explained():
            try:
                connection.run(begin)
                yield connection
                connection.commit()
            except BaseException:
                self._pool.discard(connection)
                raise
        self._pool.release(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            translated = translate_error(self._address, error)
            if isinstance(translated, RetryableError):
                translated = StoreUnavailable(f"the database {self._address.shown} did not answer: {translated}")
            raise translated from error


class _PostgresReader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, table: CopyTable) -> int:
        [(rows,)] = self._connection.fetch(f"SELECT count(*) FROM {table.name}")
        return int(rows)

    def read(self, table: CopyTable, after: Values | None) -> list[Values]:
        return self._connection.fetch(_numbered(read_statement(table, after)), after or ())

    def alive_nodes(self) -> list[str]:
        session = PostgresSession(self._connection, None)
        return [one.name for one in nodes.records(session, now=session.now()) if one.is_alive]


def _check_mark(connection: Connection, mark: str) -> None:
    # Shared with other batches, but not with the end of a copy.
    if connection.fetch(f"{_MARK} FOR SHARE") != [(mark,)]:
        raise Conflict("another process has finished or replaced this copy", field="TO")


def _numbered(statement: str) -> str:
    """A statement with numbered parameters."""
    numbers = count(1)
    return "".join(f"${next(numbers)}" if char == "?" else char for char in statement)
