"""The tables of the SQL stores that `noonmark store copy` copies, and how they are read by key."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from noonmark.stores.store_copy.endpoint import CopyTable, Values

NOT_COPIED = {
    "nodes": "the nodes of the source do not work on the target",
    "leadership": "a node of the target takes the lead",
    "rate_buckets": "every rate limit of requests starts full",
    "alembic_version": "the target has its own",
}
"""Tables that stay behind, and why."""
SMALL_BATCHES = {"bundle_chunks": 16, "session_messages": 200}
"""Tables with large rows."""
_TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)\n\)", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r'^    "?([a-z_]+)"? [A-Z]', re.MULTILINE)
_KEY = re.compile(r"^    PRIMARY KEY \(([^)]+)\)", re.MULTILINE)


@cache
def copy_tables() -> tuple[CopyTable, ...]:
    """The tables to copy; each after those that it refers to."""
    schema = files("noonmark.stores.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    tables = []
    for name, body in _TABLE.findall(schema):
        if name not in NOT_COPIED:
            key = tuple(_KEY.findall(body)[0].replace('"', "").split(", "))
            others = tuple(column for column in _COLUMN.findall(body) if column not in key)
            tables.append(CopyTable(name, key + others, len(key), SMALL_BATCHES.get(name, 1_000)))
    return tuple(tables)


def read_statement(table: CopyTable, after: Values | None) -> str:
    """The statement that reads a batch; its parameters are the key after which it begins."""
    key = ", ".join(table.key_columns)
    begin = f"WHERE ({key}) > ({', '.join('?' * table.key_size)}) " if after is not None else ""
    return f"SELECT {', '.join(table.columns)} FROM {table.name} {begin}ORDER BY {key} LIMIT {table.batch}"


def remove_statement(table: CopyTable) -> str:
    """The statement that removes a row by its key."""
    return f"DELETE FROM {table.name} WHERE {' AND '.join(f'{one} = ?' for one in table.key_columns)}"
