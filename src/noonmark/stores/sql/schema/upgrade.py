"""Upgrade an older schema with Alembic. The import is slow; import this module only to upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import command
from alembic.config import Config
from sqlalchemy import NullPool, create_engine, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

WAY_OUT = "if its schema is not of the version that its table alembic_version says, restore it from a backup"
SCRIPTS = "noonmark.stores.sql:migrations"


def upgrade(connect: Callable[[], Any], version: str) -> None:
    """Bring an SQLite database to a version, in one transaction; of several processes, the others find it done."""
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    # The driver must not begin transactions of its own: this one takes the lock at once.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            run(connection, version)
    finally:
        engine.dispose()


def run(connection: Connection, version: str) -> None:
    """Apply the migrations in the transaction of a connection."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, version)
