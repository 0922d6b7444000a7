"""Upgrade an older schema: execute the statements of each newer version, in the transaction of the caller."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from noonmark.stores.sql.migrations import discriminators, target_uses
from noonmark.stores.sql.schema.version import NOTHING, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.resources.abc import Traversable

    from noonmark.stores.sql.migrations import Database

WAY_OUT = f"if its schema is not of the version that its table {TABLE} says, restore it from a backup"
SCRIPTS: Traversable = files("noonmark.stores.sql.migrations")
"""The folder of the statements."""

CONVERSIONS: Mapping[str, Callable[[Database], None]] = {
    "0004": discriminators.fill_in_values,
    "0015": target_uses.fill_in,
    "0016": target_uses.fill_in_agents,
    "0028": discriminators.fill_in,
}
"""What a version does to the data, after its statements."""


def run(database: Database, version: str) -> None:
    """Apply the migrations up to a version; without effect where another process has done it."""
    current = stored(database)
    for number, script in scripts(database.dialect):
        if not current < number <= version:
            continue
        for statement in script.read_text(encoding="utf-8").split(";\n"):
            if statement.strip():
                database.execute(statement)
        if number in CONVERSIONS:
            CONVERSIONS[number](database)
        database.execute(f"DELETE FROM {TABLE}")
        database.execute(f"INSERT INTO {TABLE} (version_num) VALUES (?)", number)


def stored(database: Database) -> str:
    """The version that the database says it has."""
    rows = database.query(f"SELECT version_num FROM {TABLE}")
    return str(rows[0][0]) if rows else NOTHING


def scripts(dialect: str) -> Iterator[tuple[str, Traversable]]:
    """The versions, oldest first, each with its statements for a kind of database."""
    for script in sorted(SCRIPTS.iterdir(), key=lambda each: each.name):
        if script.name.endswith(f".{dialect}.sql"):
            yield script.name.partition("_")[0], script
