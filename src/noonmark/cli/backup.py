"""`noonmark backup` and `noonmark restore`: copies of a SQLite store, and the way back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from noonmark.cli.output import one_line
from noonmark.clocks import SystemClock
from noonmark.server.config import load
from noonmark.telemetry.masking import masked
from noonmark.wiring import file_of

if TYPE_CHECKING:
    from noonmark.server.config import Loaded

Store = Annotated[str | None, Parameter(help="The store, a SQLite file; that of the settings unless given.")]
Config = Annotated[str | None, Parameter(help="A TOML file with settings; noonmark.toml, if it is there.")]


def backup(
    file: Annotated[str, Parameter(help="The file to write.")],
    /,
    *,
    overwrite: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Replace the file if it exists.")
    ] = False,
    store: Store = None,
    config: Config = None,
) -> int:
    """Write a consistent copy of a SQLite store to a file; servers may run meanwhile.

    The copy is checked before it gets its name, and only its owner may read it.
    """
    from noonmark.stores.sqlite.backup import back_up  # noqa: PLC0415 - other stores are refused without it

    loaded = load({"store": store}, os.environ, config)
    path = _file(loaded, "pg_dump")
    size = back_up(str(path), Path(file).absolute(), overwrite=overwrite, now=SystemClock().micros)
    _say(f"Wrote {size:,} bytes to {file}.")
    return 0


def restore(
    file: Annotated[str, Parameter(help="A file that noonmark backup has written.")],
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Also while a node is alive, or if the store is damaged."),
    ] = False,
    store: Store = None,
    config: Config = None,
) -> int:
    """Replace a SQLite store by a backup. Stop its nodes first.

    The backup is checked first: its schema, and all of its pages. What happened since it was made is forgotten.
    """
    from noonmark.stores.sqlite.backup import restore as restore_store  # noqa: PLC0415 - as above

    loaded = load({"store": store}, os.environ, config)
    path = _file(loaded, "pg_restore")
    restore_store(Path(file).absolute(), str(path), force=force, now=SystemClock().micros)
    _say(f"Restored {loaded.settings.store} from {file}. Start its nodes anew.")
    return 0


def _file(loaded: Loaded, program: str) -> Path:
    url = loaded.settings.store
    if (path := file_of(url)) is None:
        raise loaded.refuse("store", f"{masked(url)} is not a SQLite file; for PostgreSQL, use {program}")
    return path


def _say(sentence: str) -> None:
    sys.stdout.write(one_line(sentence) + "\n")
