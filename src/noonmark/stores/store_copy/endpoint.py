"""The two ends of a copy: what a kind of store offers so that it can be copied, and so that it can receive a copy.

A store is a number of tables, each with a primary key by which its rows are read in order and in batches. The order is
that of the values, and of the UTF-8 bytes of text, so that two ends of different kinds are read side by side.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.errors import Conflict
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

Values = tuple[Any, ...]


@frozen
class CopyTable:
    """A table to copy."""

    name: str
    columns: tuple[str, ...]
    """The columns of the primary key come first."""
    key_size: int
    """How many columns the primary key has."""
    batch: int = 1_000
    """How many rows are read and written at once."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self.columns[: self.key_size]

    def key_of(self, row: Values) -> Values:
        """The primary key of a row."""
        return row[: self.key_size]


class Reader(Protocol):
    """Reads one snapshot of a store."""

    def count(self, table: CopyTable) -> int:
        """How many rows a table has."""

    def read(self, table: CopyTable, after: Values | None) -> list[Values]:
        """The next batch of rows, in the order of their keys: those after a key, or the first ones."""

    def alive_nodes(self) -> list[str]:
        """The names of the nodes that are alive."""


class Endpoint(Protocol):
    """A store that is one end of a copy."""

    @property
    def identity(self) -> str:
        """Which store this is; without a password."""

    def check(self) -> None:
        """Refuse a source that is missing, has another schema version or is itself an unfinished copy."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """Read one snapshot; others may write meanwhile."""

    def hold(self) -> AbstractContextManager[Reader]:
        """Read while no other process can write."""

    def unfinished(self) -> str | None:
        """The mark of the unfinished copy in this store; None if there is none."""

    def begin(self, mark: str, tables: Sequence[CopyTable], *, migrates: bool) -> None:
        """Mark a target in which a copy begins: no node starts on it from now on.

        Creates the schema where that is allowed. Refuses a store that has rows or live nodes.
        """

    def write(self, mark: str, table: CopyTable, *, remove: Sequence[Values], add: Sequence[Values]) -> None:
        """Remove rows by their keys, then add rows, in one transaction, if the mark is still there."""

    def finish(self, mark: str, tables: Sequence[CopyTable]) -> None:
        """Replace the mark, so that nodes may start. New rows get numbers after those of the copied ones."""

    def close(self) -> None:
        """Close the connections."""


def mark_of(source: Endpoint, version: str) -> str:
    """The mark of an unfinished copy of a source, in place of the version of the schema.

    There, it is an unknown version for Noonmarks of all versions: none of them starts a node on half a store.
    """
    return f"copy {version} {blake2b(source.identity.encode(), digest_size=8).hexdigest()}"


def refuse_used(reader: Reader, tables: Sequence[CopyTable]) -> None:
    """Refuse a target that has rows, or nodes that would work on rows as they arrive."""
    used = [table.name for table in tables if reader.count(table)]
    if used:
        raise Conflict(f"is not empty: it has rows in {', '.join(used)}; name an empty store", field="TO")
    if alive := reader.alive_nodes():
        raise Conflict(f"{', '.join(alive)} may still be at work on TO; stop its nodes first", field="TO")


def unfit(table: CopyTable, rows: Sequence[Values], reason: str) -> Conflict:
    """The error about a batch that the target does not take."""
    first, last = (", ".join(map(str, table.key_of(row))) for row in (rows[0], rows[-1]))
    return Conflict(
        f"the target does not take a row of {table.name} from {first} to {last}: {reason}; `noonmark doctor` on the"
        " source finds damaged rows",
        field="FROM",
    )
