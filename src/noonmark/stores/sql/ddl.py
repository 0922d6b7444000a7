"""The schema as text, so that a new database needs no SQLAlchemy: `python -m noonmark.stores.sql.ddl sqlite`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from noonmark.stores.sql.constraints import stale_discriminators
from noonmark.stores.sql.schema import metadata
from noonmark.stores.sql.views import execution_history

if TYPE_CHECKING:
    from sqlalchemy import ForeignKeyConstraint

DIALECTS = {"sqlite": sqlite.dialect, "postgres": postgresql.dialect}


def ddl(name: str) -> str:
    """Every table, index, view and guard, one after another, each closed by a semicolon at the end of a line."""
    dialect = DIALECTS[name]()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        # PostgreSQL would look every reference up, and lock what it refers to; the ledger writes both ends together.
        keys: list[ForeignKeyConstraint] | None = [] if name == "postgres" else None
        statements.append(str(CreateTable(table, include_foreign_key_constraints=keys).compile(dialect=dialect)))
        own = [index for index in table.indexes if index.info.get("dialect", dialect.name) == dialect.name]
        indexes = sorted(own, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    statements += [execution_history(dialect.name), *stale_discriminators(dialect.name)]
    lines = [line.rstrip().replace("\t", "    ") for one in statements for line in f"{one.strip()};".splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(ddl(sys.argv[1]))
