"""Prepare a database: a new one gets the schema, an older one is upgraded, a newer one is refused.

A new database is made from the text of the whole schema, and a current one is only asked for its version.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import StoreUnavailable
from noonmark.ports.records import Condition
from noonmark.stores.sql.schema.version import TABLE, VERSION, stored_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.stores.sqlite.connections import Connections

STEP, MOST_STEPS = 100_000, 20_000
"""The check of a database ends after this many steps of this many instructions."""
MOST_PROBLEMS = 20
"""How many problems of that check are reported."""
_VERSIONS = f"SELECT CAST(version_num AS BLOB), typeof(version_num) FROM {TABLE} LIMIT 2"
"""As bytes: text that is not UTF-8 could not be read."""


def make_ready(connections: Connections, *, migrates: bool = True, creates: bool = True) -> None:
    """Create or upgrade the schema, or only check it."""
    if not creates and _is_empty(connections.path):  # to open it would write to it
        raise _outdated(connections.path, None)
    with connections.reading() as connection:
        version = schema_version(connection, connections.path)
    if version is None and creates:
        with connections.writing() as connection:
            # Another process may have been faster.
            version = schema_version(connection, connections.path)
            if version is None:
                _create(connection)
                version = VERSION
    if version == VERSION:
        return
    if version is None or (version < VERSION and not migrates):
        raise _outdated(connections.path, version)
    if version > VERSION:
        raise StoreUnavailable(
            f"the database {connections.path} has schema version {version}, and this Noonmark knows versions up to"
            f" {VERSION}; upgrade Noonmark, or use another database"
        )
    with connections.bare() as writer:  # no other thread of this process writes meanwhile
        _upgrade(connections)
        connections.checkpoints.after_commit(writer, connections.checkpoints.size())


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0  # noqa: PTH116 - as it was written
    except OSError:
        return False  # opening it says why


def _outdated(path: str, version: str | None) -> StoreUnavailable:
    state = f"has schema version {version}" if version else "has no schema yet"
    return StoreUnavailable(
        f"the database {path} {state}, and this Noonmark needs version {VERSION}; run"
        f" `noonmark migrate --store sqlite:///{path}` once, or start a server on it"
    )


def _upgrade(connections: Connections) -> None:
    from noonmark.stores.sql.schema.upgrade import WAY_OUT  # noqa: PLC0415 - only for an upgrade

    try:
        upgrade(connections.connect, VERSION)
    except sqlite3.Error as error:
        what = f"the database {connections.path}"
        raise StoreUnavailable(
            f"{what} could not be brought up to date, and was left unchanged: {error}; {WAY_OUT}"
        ) from error


def upgrade(connect: Callable[[], sqlite3.Connection], version: str) -> None:
    """Upgrade a database to a version, in one transaction; of several processes, the others find it done."""
    from noonmark.stores.sql.schema.upgrade import run  # noqa: PLC0415 - only for an upgrade

    with closing(connect()) as connection:
        connection.execute("BEGIN IMMEDIATE")  # before the version is read
        run(_Database(connection), version)
        connection.execute("COMMIT")


class _Database:
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, *parameters: object) -> None:
        self._connection.execute(statement, parameters)

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()


def schema_version(connection: sqlite3.Connection, path: str) -> str | None:
    """The version of the schema; None when there is none yet."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    versions: list[str | None] = []
    if TABLE in tables:
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (TABLE,))}
        rows = connection.execute(_VERSIONS).fetchall() if "version_num" in columns else [(None, "null")]
        versions = [
            version.decode("ascii", "backslashreplace") if isinstance(version, bytes) and kind == "text" else None
            for version, kind in rows
        ]
    return stored_version(tables, versions, what=f"the database {path}", instead="use another path")


def condition(connections: Connections) -> Condition:
    """What SQLite finds wrong with a file, and how large its journal is."""
    path = connections.path
    with connections.autocommit_connection() as connection:
        schema = schema_version(connection, path)
        [(version,)] = connection.execute("SELECT sqlite_version()").fetchall()
    problems, is_complete = _problems(connections)
    return Condition(
        kind="sqlite",
        version=version,
        schema=schema or "",
        expected_schema=VERSION,
        journal_bytes=connections.checkpoints.size(),
        problems=problems,
        is_complete=is_complete,
    )


def _problems(connections: Connections) -> tuple[tuple[str, ...], bool]:
    """What SQLite finds wrong with a file, and whether it got to the end; on a connection of its own: it takes long."""
    connection = connections.connect()
    steps = count()
    try:
        connection.execute("PRAGMA query_only = 1")
        connection.set_progress_handler(lambda: next(steps) > MOST_STEPS, STEP)
        rows = connection.execute(f"PRAGMA quick_check({MOST_PROBLEMS})").fetchall()
    except sqlite3.DatabaseError as error:
        return ((), False) if "interrupted" in str(error) else ((str(error),), True)
    finally:
        connection.close()
    return tuple(str(one) for (one,) in rows if one != "ok"), True


def _create(connection: sqlite3.Connection) -> None:
    schema = files("noonmark.stores.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    for statement in schema.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (VERSION,))
