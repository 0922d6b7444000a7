"""Commands on a store: `noonmark migrate`, `backup`, `restore` and `doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from noonmark.cli.options import Connection
from noonmark.cli.output import EXIT_FAILED, one_line, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect
from noonmark.clocks import SystemClock
from noonmark.core.documents import present
from noonmark.core.redaction import redact

if TYPE_CHECKING:
    from noonmark.server.config import LoadedSettings

SqliteStore = Annotated[str | None, Parameter(help="The store, a SQLite file; default: from the settings.")]
ConfigFile = Annotated[str | None, Parameter(help="A TOML file with settings; default: noonmark.toml, if it exists.")]


def migrate(
    *,
    store: Annotated[str | None, Parameter(help="The store; default: from the settings.")] = None,
    config: ConfigFile = None,
) -> int:
    """Create or upgrade the schema of a store. Servers may be running."""
    from noonmark.wiring import MEMORY, make_store, schema_version

    loaded = _load(store, config)
    url = loaded.settings.store
    if url == MEMORY:
        raise loaded.error("store", "a store in memory has no schema; name a file or a database")
    opened = make_store(url, SystemClock())
    try:
        opened.open()
    finally:
        opened.close()
    print_line(f"The schema of {redact(url)} has version {schema_version(url)}.")
    return 0


def backup(
    file: Annotated[str, Parameter(help="The file to write.")],
    /,
    *,
    overwrite: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Replace the file if it exists.")
    ] = False,
    store: SqliteStore = None,
    config: ConfigFile = None,
) -> int:
    """Write a consistent copy of a SQLite store to a file. Servers may be running.

    The copy is checked before it gets its name. Only its owner may read it.
    """
    from noonmark.stores.sqlite.backup import back_up

    path = _sqlite_path(_load(store, config), "pg_dump", "copy its files")
    size = back_up(str(path), Path(file).absolute(), overwrite=overwrite, now=SystemClock().micros)
    print_line(f"Wrote {size:,} bytes to {file}.")
    return 0


def restore(
    file: Annotated[str, Parameter(help="A file written by noonmark backup.")],
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Even if a node is alive or the store is damaged."),
    ] = False,
    store: SqliteStore = None,
    config: ConfigFile = None,
) -> int:
    """Replace a SQLite store with a backup. Stop its nodes first.

    The schema and all pages of the backup are checked first. Everything after the backup is lost.
    """
    from noonmark.stores.sqlite.backup import restore as restore_store

    loaded = _load(store, config)
    path = _sqlite_path(loaded, "pg_restore", "start it with its files")
    restore_store(Path(file).absolute(), str(path), force=force, now=SystemClock().micros)
    print_line(f"Restored {loaded.settings.store} from {file}. Restart its nodes.")
    return 0


def _load(store: str | None, config: str | None) -> LoadedSettings:
    from noonmark.server.config import load

    return load({"store": store}, os.environ, config)


def _sqlite_path(loaded: LoadedSettings, program: str, redis_way: str) -> Path:
    from noonmark.wiring import file_of

    url = loaded.settings.store
    if (path := file_of(url)) is None:
        raise loaded.error(
            "store", f"{redact(url)} is not a SQLite file; for PostgreSQL, use {program}; for Redis, {redis_way}"
        )
    return path


def doctor(
    *,
    rows: Annotated[int | None, Parameter(show_default=False, help="How many rows to check; default: 100,000.")] = None,
    connection: Connection = Connection(),
) -> int:
    """Check a store, its rows, the clocks, the nodes, the disk and the settings. Changes nothing.

    The exit code is 1 if there is a problem; a warning alone leaves it 0.
    """
    with connect(connection) as remote:
        answer = remote.call("doctor", present(rows=rows))
    if connection.as_json:
        print_json(answer)
    else:
        for check in answer["checks"]:
            sys.stdout.write(f"{check['check']:<10}{check['status']:<9}{one_line(check['detail'])}\n")
            if check.get("advice"):  # an older server has none
                sys.stdout.write(f"{'':<19}{one_line(check['advice'])}.\n")
        for row in answer["damaged_rows"]:
            print_line("")
            of = "" if row["schedule_id"] is None else f" (schedule {row['schedule_id']})"
            print_line(f"{row['table']} {row['key']}, {row['column']}: {row['problem']}{of}")
            sys.stdout.write(f"    {one_line(row['advice'])}\n")
    return EXIT_FAILED if answer["status"] == "problems" else 0
