"""Upgrade an older schema with Alembic. The import is slow; import this module only to upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres.connections import connect_libpq, summary
from noonmark.stores.sql.schema.upgrade import WAY_OUT, run

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from noonmark.stores.postgres.address import Address

_VERSION = "SELECT coalesce(max(version_num), '') FROM alembic_version"
_PATIENT = ("SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = '60s'")
"""Changing a large table takes longer than any statement of a node may."""
_RETRYABLE = ("40P01", "55P03")
"""A deadlock with a running node, or one that held a lock for too long."""
ATTEMPTS = 5


def upgrade(address: Address, version: str, *, lock: str) -> None:
    """Upgrade a schema to a version, in one transaction; of several nodes, one does the work."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _upgrade(address, version, lock)
            break
        except DBAPIError as error:
            if attempt < ATTEMPTS and getattr(error.orig, "sqlstate", None) in _RETRYABLE:
                continue
            raise StoreUnavailable(
                f"the schema {address.schema} of {address.shown} could not be brought up to date, and is as it was:"
                f" {summary(error.orig or error)}; {WAY_OUT}"
            ) from error


def _upgrade(address: Address, version: str, lock: str) -> None:
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.Connection(connect_libpq(address)),
        poolclass=NullPool,
        # The text of views and functions is executed as it is: a % in it is not a placeholder.
        execution_options={"no_parameters": True},
    )
    try:
        with engine.begin() as connection:
            _run(connection, version, lock)
    finally:
        engine.dispose()


def _run(connection: Connection, version: str, lock: str) -> None:
    for statement in (*_PATIENT, lock):
        connection.exec_driver_sql(statement)
    if str(connection.exec_driver_sql(_VERSION).scalar_one()) < version:
        run(connection, version)
