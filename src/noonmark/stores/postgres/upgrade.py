"""Upgrade an older schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres.connections import connect_libpq, summary
from noonmark.stores.sql.schema.upgrade import WAY_OUT, run

if TYPE_CHECKING:
    from noonmark.stores.postgres.address import Address

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
        except psycopg.Error as error:
            if attempt < ATTEMPTS and error.sqlstate in _RETRYABLE:
                continue
            raise StoreUnavailable(
                f"the schema {address.schema} of {address.shown} could not be brought up to date, and was left"
                f" unchanged: {summary(error)}; {WAY_OUT}"
            ) from error


def _upgrade(address: Address, version: str, lock: str) -> None:
    with psycopg.Connection(connect_libpq(address)) as connection:
        for statement in (*_PATIENT, lock):
            connection.execute(statement)
        run(_Database(connection), version)


class _Database:
    dialect = "postgres"

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, *parameters: object) -> None:
        # Without parameters, the text of views and functions is executed as it is: a % in it is no placeholder.
        self._connection.execute(*_sent(statement, parameters))

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(*_sent(statement, parameters)).fetchall()


def _sent(statement: str, parameters: tuple[object, ...]) -> tuple[Any, tuple[object, ...] | None]:
    return (statement.replace("?", "%s"), parameters) if parameters else (statement, None)
