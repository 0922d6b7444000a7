"""Soundness: what a store can say of its own condition, row by row and as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

Position = tuple[str, tuple[Any, ...]]
"""A table, and the primary key of a row of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Something about one row that cannot be as it is."""

    table: str
    key: str
    """What finds the row: its primary key."""
    column: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A page of rows that were looked at."""

    rows: int = 0
    damaged: tuple[Damaged, ...] = ()
    after: Position | None = None
    """The last of them; None when there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How the database is, as a whole."""

    kind: str
    version: str = ""
    """That of the database."""
    schema: str = ""
    expected_schema: str = ""
    journal_bytes: int | None = None
    """What was written and is not in the database file itself yet, where there is such a thing."""
    problems: tuple[str, ...] = ()
    """What the database finds wrong with itself."""
    is_complete: bool = True
    """Whether it has looked at all of itself; a large one is not looked at for ever."""


class Inspection(Protocol):
    """Nothing here changes anything, but for `set_aside`."""

    def set_aside(self, uid: str, problem: str) -> None:
        """Plan a schedule no more: something is wrong with its record. An edit lets it be planned again."""

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:
        """Look at so many rows, of all tables one after another, from the beginning or after one of them."""

    def condition(self) -> Condition:
        """How the database is, as a whole. It may take a while."""

    def damage(self) -> Mapping[str, int]:
        """How many rows of each table this process has found damaged so far; asks nobody."""
