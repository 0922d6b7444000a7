"""The version of the schema: which one this code knows, and which one a database says it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

VERSION = "0031"
"""The newest of the migrations."""
OLDEST = "0001"
TABLE = "alembic_version"
NOTHING = ""
"""The version of a database in which nothing but an empty table of versions was made."""
OUR_TABLES = frozenset({"schedules", "schedule_states", "occurrences"})
"""A database with these tables is one of Noonmark's, whatever its table of versions says."""
COPY_MARK = re.compile(r"copy (\d{4}) [0-9a-f]{16}", re.ASCII)
"""What the table of versions holds instead while another store is copied into the database."""
_WELL_FORMED = re.compile(r"\d{4}", re.ASCII)
_SHOWN = 40


def stored_version(tables: Collection[str], versions: Sequence[str | None], *, what: str, instead: str) -> str | None:
    """The version of a database with these tables; None where there are none yet.

    `found` is what its table of versions holds, row by row, None for what is not text. StoreUnavailable where that
    cannot be the version of a schema of ours: nothing may be written there. `what` names the database, and `instead`
    says where else a store may be kept.
    """
    if not tables:
        return None
    if len(versions) == 1 and versions[0] is not None and _is_version(versions[0]):
        return versions[0]
    if len(versions) == 1 and versions[0] is not None and COPY_MARK.fullmatch(versions[0]):
        raise StoreUnavailable(
            f"{what} holds an unfinished copy of another store; run the same `noonmark store copy` again to finish it"
        )
    if not versions and set(tables) == {TABLE}:
        return NOTHING
    if not set(tables) >= OUR_TABLES:
        raise StoreUnavailable(f"{what} belongs to another program; {instead}")
    raise StoreUnavailable(
        f"{what} is damaged: {_fault(tables, versions)}, so the version of its schema is not known; restore it from a"
        f" backup, or, if you know the version, from {OLDEST} to {VERSION}, let {TABLE} have one row that says it"
    )


def _is_version(text: str) -> bool:
    return _WELL_FORMED.fullmatch(text) is not None and text >= OLDEST


def _fault(tables: Collection[str], versions: Sequence[str | None]) -> str:
    if TABLE not in tables:
        return f"it has no table {TABLE}"
    if len(versions) != 1:
        return f"its table {TABLE} has {'several rows' if versions else 'no row'}"
    [version] = versions
    if version is None:
        return f"its table {TABLE} has a row without text"
    shown = ascii(version[:_SHOWN]) + ("…" if len(version) > _SHOWN else "")
    return f"its table {TABLE} says {shown}"
