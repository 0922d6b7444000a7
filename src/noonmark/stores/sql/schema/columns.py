"""What the tables of the SQL stores are written with: kinds of columns, and of indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, text
from sqlalchemy import Text as AnyText

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Table

Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")
"""Text that is compared byte by byte, in whichever language the database was made for."""
KEY = BigInteger().with_variant(Integer, "sqlite")
"""An integer primary key that SQLite takes for its row number."""


def listed(names: Iterable[str]) -> str:
    """Words, as SQL looks one up among them."""
    return ", ".join(f"'{name}'" for name in names)


def index(name: str, table: Table, columns: str, where: str | None = None, *, unique: bool = False) -> None:
    """An index, over all rows or over those that meet a condition."""
    condition = None if where is None else text(where)
    picked = [text(one) if one.startswith("(") else table.c[one] for one in columns.split(", ")]
    Index(name, *picked, unique=unique, sqlite_where=condition, postgresql_where=condition)


def index_by_key(name: str, table: Table, columns: str, where: str) -> None:
    """An index with the row's number at the end. SQLite does that itself."""
    picked = [table.c[column] for column in columns.split(", ")]
    Index(name, *picked, sqlite_where=text(where), info={"dialect": "sqlite"})
    Index(name, *picked, table.c.key, postgresql_where=text(where), info={"dialect": "postgresql"})


def instant(name: str, *, required: bool = False) -> Column[int]:
    """Microseconds since the epoch."""
    return Column(name, BigInteger, nullable=not required)


def count(name: str) -> Column[int]:
    """A number that begins at 0."""
    return Column(name, Integer, nullable=False, server_default=text("0"))


def flag(name: str) -> Column[int]:
    """0 or 1; 0 at first."""
    return Column(name, SmallInteger, nullable=False, server_default=text("0"))
