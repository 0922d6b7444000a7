"""Making a database ready: a new one gets the schema, an older one is brought up to date, a newer one is refused.

A new database is made from text and a current one is only asked for its version, so SQLAlchemy and Alembic, which take
long to import, are needed for nothing but an upgrade.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.sql.version import VERSION

if TYPE_CHECKING:
    import sqlite3

    from noonmark.stores.sqlite.connections import Connections

_NOTHING = ""
"""The version of a database that has been made for us, and has no tables yet."""


def make_ready(connections: Connections) -> None:
    """Create the schema, or check it."""
    with connections.reading() as connection:
        version = _version(connection, connections.path)
    if version is None:
        with connections.writing() as connection:
            # Another process may have been faster.
            version = _version(connection, connections.path)
            if version is None:
                _create(connection)
                version = VERSION
    if version == VERSION:
        return
    if version > VERSION:
        raise StoreUnavailable(
            f"the database {connections.path} has schema version {version}, and this Noonmark knows versions up to"
            f" {VERSION}; upgrade Noonmark, or use another database"
        )
    with connections.bare() as writer:  # nobody else in this process writes meanwhile
        from noonmark.stores.sql.upgrade import upgrade  # noqa: PLC0415 - it takes a second to import

        upgrade(connections.connect, VERSION)
        connections.checkpoints.after_commit(writer)


def _version(connection: sqlite3.Connection, path: str) -> str | None:
    """The version of the schema; None when there is none yet."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "alembic_version" not in tables:
        raise StoreUnavailable(f"the database {path} belongs to another program; use another path")
    found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return _NOTHING if found is None else str(found[0])


def _create(connection: sqlite3.Connection) -> None:
    schema = files("noonmark.stores.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    for statement in schema.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (VERSION,))
