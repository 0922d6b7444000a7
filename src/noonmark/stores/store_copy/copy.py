"""Copy a store: table by table, in batches; what is there already is compared, not written again.

So a copy that was interrupted goes on, and one that was made while nodes ran catches up: both are the same pass.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from noonmark.core.errors import Conflict
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noonmark.stores.store_copy.endpoint import CopyTable, Endpoint, Reader, Values


@frozen
class TableDigest:
    """How many rows a table has, and a digest of all of them."""

    rows: int
    digest: str


@frozen
class TableCheck:
    """A table on both ends of a copy."""

    table: str
    source: TableDigest
    target: TableDigest

    @property
    def is_equal(self) -> bool:
        """Whether both ends have the same rows."""
        return self.source == self.target


def start(source: Endpoint, target: Endpoint, mark: str, tables: Sequence[CopyTable], *, migrates: bool) -> bool:
    """Prepare the target; True if it goes on with an unfinished copy of the same source."""
    if source.identity == target.identity:
        raise Conflict("FROM and TO are the same store", field="TO")
    unfinished_mark = target.unfinished()
    if unfinished_mark is None:
        target.begin(mark, tables, migrates=migrates)
        return False
    if unfinished_mark != mark:
        raise Conflict(
            "holds an unfinished copy of another store, or one that another version of Noonmark began; name another"
            " target, or delete this one first",
            field="TO",
        )
    return True


def copy_rows(
    source: Reader, target: Endpoint, mark: str, tables: Sequence[CopyTable], progress: Callable[[CopyTable, int], None]
) -> None:
    """Make the tables of the target equal to those of the source; reports rows that are there or were copied."""
    for table in tables:
        equal, last = _remove_stale(source, target, mark, table)
        if equal:
            progress(table, equal)
        _add_missing(source, target, mark, table, last, progress)


def verify(source: Reader, target: Endpoint, tables: Sequence[CopyTable]) -> list[TableCheck]:
    """Read both ends again, and compare them table by table."""
    with target.snapshot() as copied:
        return [TableCheck(table.name, digest(source, table), digest(copied, table)) for table in tables]


def digest(reader: Reader, table: CopyTable) -> TableDigest:
    """Count and digest the rows of a table, in the order of their keys; the same for all kinds of stores."""
    count, hashed = 0, sha256()
    for rows in _batches(reader, table, None):
        count += len(rows)
        hashed.update("".join(f"{row!r}\n" for row in rows).encode())
    return TableDigest(count, hashed.hexdigest())


def _remove_stale(source: Reader, target: Endpoint, mark: str, table: CopyTable) -> tuple[int, Values | None]:
    """Remove the rows of the target that the source does not have, or has with other values.

    All of them before any row is added: another row may have taken over what only one may have, such as a name.
    Returns how many rows at the beginning are equal, and the key of the last of them.
    """
    equal, last, is_gapless = 0, None, True
    stale: list[Values] = []
    copied = _copied_rows(target, table, None)
    theirs = next(copied, None)
    ours = _rows(source, table) if theirs is not None else iter(())
    for row in ours:
        key = table.key_of(row)
        while theirs is not None and table.key_of(theirs) < key:
            stale.append(table.key_of(theirs))
            theirs = next(copied, None)
        if theirs is None:
            break
        if theirs == row:
            if is_gapless:
                equal, last = equal + 1, key
        else:
            is_gapless = False
        if table.key_of(theirs) == key:
            if theirs != row:
                stale.append(key)
            theirs = next(copied, None)
    while theirs is not None:
        stale.append(table.key_of(theirs))
        theirs = next(copied, None)
    for start in range(0, len(stale), table.batch):
        target.write(mark, table, remove=stale[start : start + table.batch], add=())
    return equal, last


def _add_missing(
    source: Reader,
    target: Endpoint,
    mark: str,
    table: CopyTable,
    after: Values | None,
    progress: Callable[[CopyTable, int], None],
) -> None:
    """Add the rows after a key that the target does not have; it has none that the source does not have."""
    copied = _copied_rows(target, table, after)
    theirs = next(copied, None)
    for rows in _batches(source, table, after):
        missing = []
        for row in rows:
            if theirs is not None and table.key_of(theirs) == table.key_of(row):
                theirs = next(copied, None)
            else:
                missing.append(row)
        if missing:
            target.write(mark, table, remove=(), add=missing)
        progress(table, len(rows))


def _copied_rows(target: Endpoint, table: CopyTable, after: Values | None) -> Iterator[Values]:
    """The rows of the target. Each batch in its own transaction: a long one would be a burden."""
    while True:
        with target.snapshot() as reader:
            rows = reader.read(table, after)
        if not rows:
            return
        yield from rows
        after = table.key_of(rows[-1])


def _rows(reader: Reader, table: CopyTable) -> Iterator[Values]:
    for rows in _batches(reader, table, None):
        yield from rows


def _batches(reader: Reader, table: CopyTable, after: Values | None) -> Iterator[list[Values]]:
    while rows := reader.read(table, after):
        yield rows
        after = table.key_of(rows[-1])
