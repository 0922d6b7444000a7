"""A session: one transaction on one connection.

Statements are written once, in SQL that both databases understand, except for these words, which each translates:

- `?` is a parameter, in the order in which they are given;
- `IN EACH(type)` looks a value up in a parameter that is a list;
- `EACH(type) AS j` is such a parameter as rows with the one column `j.value`;
- `ROWS(type, ..) AS j` is a parameter that is a list of tuples, as rows with the columns `j.c0`, `j.c1`, ..;
- `group_concat(x)` is the values of a column as text, with commas between them;
- `CROSS JOIN .. ON` is a join in the order in which it is written; PostgreSQL finds that order itself;
- `/* quick: a, b */` at the end: skip the rows of these tables that another transaction has locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from noonmark.core.instants import Micros

Values = tuple[Any, ...]


class Session(Protocol):
    """Reads and writes in one transaction. No other transaction changes what is read as a record meanwhile."""

    is_narrow: bool
    """Whether a count has 32 bits, and a greater one is an error."""
    has_buckets: bool
    """Whether schedules with a long history are found by the column `history_bucket`."""

    def now(self) -> Micros:
        """The store's clock."""

    def query(self, text: str, *parameters: object) -> list[Values]:
        """The rows of a statement."""

    def gather(self, columns: str, source: str, *parameters: object) -> list[Values]:
        """Columns of a source, for many rows; those of a subquery in its order."""

    def execute(self, text: str, *parameters: object) -> None:
        """Carry out a statement."""

    def pipelined(self) -> AbstractContextManager[object]:
        """Within the block, only a read and the end wait for the statements before them."""

    def records(self, table: str, columns: Sequence[str], by: str, values: Sequence[str | int]) -> list[Values]:
        """The records of a table whose column `by`, a unique one, has one of the values; in no order."""

    def records_in(self, table: str, columns: Sequence[str], query: str, *parameters: object) -> list[Values]:
        """The records of a table that a query of whole rows picks, in its order."""

    def update(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Set columns of rows; the first of the names is the primary key."""

    def insert(self, table: str, names: tuple[str, ...], rows: Sequence[Values]) -> None:
        """Add rows."""

    def put(self, table: str, names: tuple[str, ...], rows: Sequence[Values], *, key: int = 1) -> None:
        """Add rows; each takes the place of the one with its primary key, which the first `key` names make up."""

    def delete(self, table: str, by: str, values: Sequence[int]) -> None:
        """Remove the rows whose column `by` has one of the values."""

    def numbers(self, table: str, count: int) -> list[int]:
        """Numbers that no row of a table has, ascending."""


def varying_places(columns: Sequence[Values]) -> tuple[int, ...]:
    """The places of the columns that are not the same in all rows, and of the first, which is the key."""
    return tuple(place for place, column in enumerate(columns) if place == 0 or column.count(column[0]) != len(column))


def listed(names: Iterable[str]) -> str:
    """Words, as SQL looks one up among them."""
    return ", ".join(f"'{name}'" for name in names)
