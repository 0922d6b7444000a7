"""What migrations are written with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text that is compared byte by byte."""


def key() -> list[str]:
    """The row's number at the end of an index, which SQLite adds by itself."""
    return ["key"] if _is_postgres() else []


def references(column: str, referred: str) -> list[sa.ForeignKeyConstraint]:
    """A foreign key where there are any: PostgreSQL would look each of them up, and lock what it refers to."""
    return [] if _is_postgres() else [sa.ForeignKeyConstraint([column], [referred])]


def _is_postgres() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def index(
    name: str, table: str, columns: list[str | sa.TextClause], where: str | None = None, *, unique: bool = False
) -> None:
    """An index, over all rows or over those that meet a condition."""
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
