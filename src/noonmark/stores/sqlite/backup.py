"""Backups of a SQLite store: a consistent copy while nodes continue to work, and its restore.

Both go through SQLite's own backup interface. It reads one snapshot, beside writers in the log, and writes one
transaction. A copy made by opening the file would miss what is in the log, and in the process of a node it would let go
of that node's locks.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.errors import Conflict, NotFound, StoreUnavailable
from noonmark.stores.sql import nodes
from noonmark.stores.sql.schema.version import OUR_TABLES, VERSION
from noonmark.stores.sqlite.bootstrap import schema_version
from noonmark.stores.sqlite.connections import Connections
from noonmark.stores.sqlite.errors import is_damaged, unavailable
from noonmark.stores.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noonmark.core.instants import Micros

_KNOWN = {f"{number:04}" for number in range(1, int(VERSION) + 1)}
_BESIDE = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps next to an open database."""
BUSY_SECONDS = 30
_RAISE = 1_000_000
_ANOTHER_LIFE = (
    # No claim, leadership or cached schedule from before the restore is mistaken for one from after it.
    f"UPDATE occurrences SET fence = fence + {_RAISE} WHERE ended IS NULL",
    f"UPDATE schedule_states SET fences = fences + {_RAISE}, version = version + {_RAISE}",
    f"UPDATE leadership SET term = term + {_RAISE}, node = NULL, until = 0",
    # The nodes of the backup are gone.
    "UPDATE nodes SET left_at = seen WHERE left_at IS NULL",
)


def back_up(store: str, target: Path, *, overwrite: bool, now: Callable[[], Micros]) -> int:
    """Write a copy of the store to a new file; says how many bytes it has."""
    target = _followed(target)
    _refuse_taken(target, store, overwrite=overwrite)
    if not Path(store).is_file():
        raise NotFound(f"there is no file {store}", field="--store")
    connections = Connections(store, now, busy_seconds=BUSY_SECONDS)
    with _explained(store), closing(connections.connect()) as source:
        _check_is_ours(source, store)
        with _draft(target) as draft:
            _copy(source, draft)
            size = draft.stat().st_size
            _publish(draft, target, overwrite=overwrite)
    return size


def restore(backup: Path, store: str, *, force: bool, now: Callable[[], Micros]) -> None:
    """Replace the content of the store with the backup, completely or not at all."""
    target = _followed(Path(store))
    if not backup.is_file():
        raise NotFound(f"there is no file {backup}", field="FILE")
    if target.exists():
        _refuse_other_kinds(target, "--store")
        if target.samefile(backup):
            raise Conflict(f"{backup} is the store itself", field="FILE")
    with _draft(target) as draft:
        with _explained(str(backup)), closing(_read_only(backup)) as source:
            _check_is_ours(source, str(backup))
            _copy(source, draft)
        with _explained(str(draft)), closing(sqlite3.connect(draft, isolation_level=None)) as prepared:
            _assign_new_identity(prepared)
            if not target.exists():
                _refuse_leftovers(target)
            elif _is_in_order(store, force=force, now=now):
                _replace_content(prepared, store, now)
                return
        if target.exists():
            _clear_away(target)
        _publish(draft, target, overwrite=True)


def _followed(path: Path) -> Path:
    """The target of a link: the log is next to it, and the link stays."""
    return path.resolve() if path.is_symlink() else path


def _refuse_taken(target: Path, store: str, *, overwrite: bool) -> None:
    if target.is_dir():
        raise Conflict(f"{target} is a folder; name a file", field="FILE")
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {target.parent}", field="FILE")
    if not target.exists():
        _refuse_leftovers(target)
        return
    if Path(store).exists() and target.samefile(store):
        raise Conflict(f"{target} is the store itself; name another file", field="FILE")
    _refuse_other_kinds(target, "FILE")
    if not overwrite:
        raise Conflict(f"{target} exists; name another file, or add --overwrite", field="FILE")
    _refuse_leftovers(target)


def _refuse_other_kinds(target: Path, field: str) -> None:
    """A device or a pipe would be gone, and a file in its place."""
    if not target.is_file():
        raise Conflict(f"{target} is not a regular file; name another one", field=field)


def _refuse_leftovers(target: Path) -> None:
    """A log that belongs to another database would be read as part of the new one, and damage it."""
    for ending in _BESIDE:
        beside = target.with_name(target.name + ending)
        if beside.exists():
            raise Conflict(f"{beside} is there: {target} belongs to a database in use; name another file", field="FILE")


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A temporary empty file next to the target, readable only by its owner."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise StoreUnavailable(f"no file can be written in {target.parent}: {error.strerror}") from error
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for ending in ("", *_BESIDE):
            with suppress(FileNotFoundError):
                Path(name + ending).unlink()


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_SECONDS)


def _check_is_ours(connection: sqlite3.Connection, path: str) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not OUR_TABLES.issubset(tables):
        raise Conflict(f"{path} is not a database of Noonmark")
    version = schema_version(connection, path)
    if version not in _KNOWN:
        raise Conflict(
            f"{path} has schema version {version}, and this Noonmark knows 0001 to {VERSION}; upgrade Noonmark"
        )


def _copy(source: sqlite3.Connection, draft: Path) -> None:
    """All pages in one step, from one snapshot; then the copy is checked. It is one file, without a log."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        problems = [text for (text,) in copy.execute("PRAGMA integrity_check(3)")]
    if problems != ["ok"]:
        raise Conflict(f"the copy is damaged, and so is what it was made from: {'; '.join(problems)}")


def _assign_new_identity(prepared: sqlite3.Connection) -> None:
    prepared.execute("BEGIN IMMEDIATE")
    for statement in _ANOTHER_LIFE:
        prepared.execute(statement)
    prepared.execute("COMMIT")


def _is_in_order(store: str, *, force: bool, now: Callable[[], Micros]) -> bool:
    """Whether the target can take new content; False for one that is damaged, and to be replaced."""
    if not Path(store).stat().st_size:
        return False
    connections = Connections(store, now, busy_seconds=BUSY_SECONDS)
    try:
        with closing(connections.connect()) as target:
            _check_is_ours(target, store)
            alive = [one.name for one in nodes.records(SqliteSession(target, now), now=now()) if one.is_alive]
    except StoreUnavailable as error:  # its table of versions is damaged, but SQLite can write to it
        if force:
            return True
        raise Conflict(f"{error.message}; --force replaces what it holds", field="--store") from error
    except sqlite3.DatabaseError as error:
        # One that is locked, or may not be written to, is not damaged: under a process that uses it, it must not go.
        if not is_damaged(error):
            raise unavailable(store, error) from error
        if force:
            return False
        reason = str(unavailable(store, error))
        raise Conflict(f"{reason}; --force replaces it, once no process has it open", field="--store") from error
    if alive and not force:
        raise Conflict(
            f"{', '.join(alive)} may still be at work in {store}; stop it, or wait until its leases have run out, or"
            " add --force",
            field="--store",
        )
    return True


def _replace_content(prepared: sqlite3.Connection, store: str, now: Callable[[], Micros]) -> None:
    """In one transaction: open connections see the content before or after it."""
    connections = Connections(store, now, busy_seconds=BUSY_SECONDS)
    with _explained(store), connections.bare() as target:
        [page_bytes] = target.execute("PRAGMA page_size").fetchone()
        if prepared.execute("PRAGMA page_size").fetchone() != (page_bytes,):  # the file keeps the size that it has
            prepared.execute(f"PRAGMA page_size = {page_bytes}")
            prepared.execute("VACUUM")
        prepared.backup(target, progress=_wait_no_longer)
    connections.close()


def _wait_no_longer(status: int, remaining: int, total: int) -> None:  # noqa: ARG001 - as SQLite calls it
    """A lock has been waited for as long as any other; without this, it would be waited for again and again."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise Conflict("another process keeps the store locked; see which process has it open", field="--store")


def _clear_away(target: Path) -> None:
    for ending in _BESIDE:
        with suppress(FileNotFoundError):
            target.with_name(target.name + ending).unlink()


def _publish(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Under its name at once, and on the disk."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    if overwrite:
        draft.replace(target)
    else:
        try:
            target.hardlink_to(draft)
        except FileExistsError:
            raise Conflict(f"{target} exists; name another file, or add --overwrite", field="FILE") from None
        except OSError:  # a file system without links
            draft.replace(target)
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
