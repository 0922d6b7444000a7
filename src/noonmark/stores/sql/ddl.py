"""The schema as text for SQLite, so that a new database needs no SQLAlchemy: `python -m noonmark.stores.sql.ddl`."""

from __future__ import annotations

import sys

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from noonmark.stores.sql.schema import metadata
from noonmark.stores.sql.views import execution_history


def sqlite_ddl() -> str:
    """Every table, index and view, one statement after another, each closed by a semicolon at the end of a line."""
    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    statements.append(execution_history(dialect.name))
    lines = [line.rstrip().replace("\t", "    ") for one in statements for line in f"{one.strip()};".splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(sqlite_ddl())
