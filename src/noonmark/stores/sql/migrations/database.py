"""The database that a migration changes."""

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
