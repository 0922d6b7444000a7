"""The migrations: for each version of the schema, the statements for SQLite and for PostgreSQL.

`NNNN_name.sqlite.sql` and `NNNN_name.postgres.sql` end each statement with a semicolon at the end of a line. A version
that also converts data has a function in `noonmark.stores.sql.schema.upgrade.CONVERSIONS`. What is released is never
changed.
"""

from __future__ import annotations

from typing import Any, Protocol


class Database(Protocol):
    """A database in a transaction. Statements have `?` for parameters."""

    dialect: str
    """`sqlite` or `postgres`."""

    def execute(self, statement: str, *parameters: object) -> None:
        """Execute a statement."""

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
