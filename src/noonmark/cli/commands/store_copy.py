"""`noonmark store copy`: move a store to another database."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing, contextmanager
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.options import AsJson
from noonmark.cli.output import EXIT_FAILED, one_line, print_errors, print_json, print_line, progress_bar
from noonmark.cli.parameters import Parameter
from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict
from noonmark.core.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noonmark.stores.store_copy.copy import TableCheck, TableDigest
    from noonmark.stores.store_copy.endpoint import CopyTable, Endpoint, Reader

WAIT_SECONDS = 0.5
"""How long to wait before it is asked again whether the nodes have stopped."""
LINE_ROWS = 100_000
"""In a pipe, a line of progress is printed after so many rows of a table."""
SHOWN_DIGEST = 16
"""How many digits of a digest are printed."""
_DIFFERENT = (
    "No node starts on it. Look for damaged rows of the source with `noonmark doctor`, and for triggers and others who"
    " write in the target; then run the same command again"
)


def copy(
    source: Annotated[str, Parameter(name="FROM", help="The store to copy: sqlite:///noonmark.db.")],
    target: Annotated[str, Parameter(name="TO", help="An empty store, or an unfinished copy of the same store.")],
    /,
    *,
    online: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Copy while nodes run; then wait until they have stopped, and copy what has changed.",
        ),
    ] = False,
    migrate: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Create or upgrade the schema of a PostgreSQL target."),
    ] = False,
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print what would be copied; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Copy a store to an empty one, and verify the copy. SQLite, PostgreSQL and Redis, in every direction.

    Stop the nodes of the source first, or use --online. The source is not changed. No process can write to it during
    the copy; with --online, only during the last part. After an interruption, the same command continues the copy. The
    exit code is 1 if the copy differs from the source. Afterwards, start nodes on the target only.
    """
    from noonmark.stores.sql.copy_tables import copy_tables
    from noonmark.stores.sql.schema.version import VERSION
    from noonmark.stores.store_copy.copy import start, verify
    from noonmark.stores.store_copy.endpoint import mark_of
    from noonmark.wiring import make_copy_endpoint

    clock, tables = SystemClock(), copy_tables()
    with ExitStack() as ends:
        from_end = ends.enter_context(closing(make_copy_endpoint(source, clock, "FROM")))
        to_end = ends.enter_context(closing(make_copy_endpoint(target, clock, "TO")))
        from_end.check()
        if dry_run:
            return _show_plan(from_end, tables, as_json=as_json)
        mark = mark_of(from_end, VERSION)
        if not online:
            with from_end.snapshot() as reader:
                _refuse_alive(reader)
        if start(from_end, to_end, mark, tables, migrates=migrate):
            _say("Continuing an unfinished copy.")
        if online:
            with from_end.snapshot() as reader:
                _copy_all(reader, to_end, mark, tables, "Copying while nodes run")
            _wait_until_stopped(from_end)
        with from_end.hold() as reader:
            _refuse_alive(reader)
            _copy_all(reader, to_end, mark, tables, "Catching up" if online else "Copying")
            _say("Verifying.")
            checks = verify(reader, to_end, tables)
            if all(one.is_equal for one in checks):
                to_end.finish(mark, tables)
            secrets = _secrets(reader, tables)
    return _show_result(source, target, checks, secrets, as_json=as_json)


def _refuse_alive(reader: Reader) -> None:
    if alive := reader.alive_nodes():
        raise Conflict(
            f"{', '.join(alive)} may still be at work on FROM; stop its nodes, or wait until their leases have run out,"
            " or add --online",
            field="FROM",
        )


def _wait_until_stopped(source: Endpoint) -> None:
    """Wait for the nodes of the source; what they still do is copied afterwards."""
    shown_nodes: list[str] = []
    while True:
        with source.snapshot() as reader:
            alive = reader.alive_nodes()
        if not alive:
            return
        if alive != shown_nodes:
            _say(f"Stop the nodes of FROM now: {', '.join(alive)}. Waiting for them.")
            shown_nodes = alive
        Event().wait(WAIT_SECONDS)


def _copy_all(reader: Reader, target: Endpoint, mark: str, tables: Sequence[CopyTable], title: str) -> None:
    from noonmark.stores.store_copy.copy import copy_rows

    with _progress(title, sum(reader.count(table) for table in tables)) as progress:
        copy_rows(reader, target, mark, tables, progress)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[CopyTable, int], None]]:
    """A bar on a terminal; otherwise a line for each table that has rows, and for each large part of one."""
    if sys.stderr.isatty():
        with progress_bar(title, total) as advance:
            yield lambda _, rows: advance(rows)
        return
    _say(f"{title}: {total:,} rows.")
    done: dict[str, int] = {}

    def advance_lines(table: CopyTable, rows: int) -> None:
        before = done.get(table.name, 0)
        done[table.name] = before + rows
        if before // LINE_ROWS < done[table.name] // LINE_ROWS:
            _say(f"{table.name}: {done[table.name]:,} rows, {sum(done.values()):,} of {total:,} in all.")

    yield advance_lines


def _secrets(reader: Reader, tables: Sequence[CopyTable]) -> int:
    """How many secrets of users there are. The store's own key is in the same table, and belongs to no tenant."""
    [table] = [one for one in tables if one.name == "secrets"]
    tenant, count, after = table.columns.index("tenant"), 0, None
    while rows := reader.read(table, after):
        count += sum(row[tenant] != "" for row in rows)
        after = table.key_of(rows[-1])
    return count


def _show_plan(source: Endpoint, tables: Sequence[CopyTable], *, as_json: bool) -> int:
    from noonmark.cli.render.tables import show_table
    from noonmark.stores.sql.copy_tables import NOT_COPIED

    with source.snapshot() as reader:
        counts = {table.name: reader.count(table) for table in tables}
        alive = reader.alive_nodes()
    if as_json:
        rows = [{"table": name, "rows": count} for name, count in counts.items()]
        print_json({"tables": rows, "alive_nodes": alive, "not_copied": NOT_COPIED})
        return 0
    closing_line = f"{sum(counts.values()):,} rows would be copied. Not copied: {', '.join(NOT_COPIED)}."
    show_table(["Table", "Rows"], [[name, f"{count:,}"] for name, count in counts.items() if count], closing_line)
    if alive:
        print_line(f"Nodes at work on FROM: {', '.join(alive)}. Stop them first, or use --online.")
    return 0


def _show_result(source: str, target: str, checks: Sequence[TableCheck], secrets: int, *, as_json: bool) -> int:
    from noonmark.cli.render.tables import show_table

    different = [one.table for one in checks if not one.is_equal]
    if as_json:
        print_json(_document(checks, secrets))
    else:
        rows = [
            [one.table, *_shown(one.source), *_shown(one.target), "equal" if one.is_equal else "different"]
            for one in checks
            if one.source.rows or one.target.rows
        ]
        equal = f"{len(checks) - len(different)} of {len(checks)} tables are equal."
        show_table(["Table", "Rows", "Digest", "Copied", "Digest", "Result"], rows, equal)
    if different:
        print_errors((f"the copy differs from the source in {', '.join(different)}. {_DIFFERENT}",))
        return EXIT_FAILED
    if not as_json:
        print_line(f"Copied {sum(one.source.rows for one in checks):,} rows to {redact(target)}.")
        if secrets:
            noun = "secret is" if secrets == 1 else "secrets are"
            print_line(f"{secrets:,} {noun} still sealed: give the nodes of the target the same --secret-key.")
        print_line(f"Start nodes on the target only. One on {redact(source)} would run everything a second time.")
    return 0


def _shown(digest: TableDigest) -> tuple[str, str]:
    return f"{digest.rows:,}", digest.digest[:SHOWN_DIGEST]


def _document(checks: Sequence[TableCheck], secrets: int) -> dict[str, Any]:
    tables = [
        {
            "table": one.table,
            "rows": one.source.rows,
            "digest": one.source.digest,
            "copied_rows": one.target.rows,
            "copied_digest": one.target.digest,
            "is_equal": one.is_equal,
        }
        for one in checks
    ]
    return {"is_equal": all(one.is_equal for one in checks), "sealed_secrets": secrets, "tables": tables}


def _say(text: str) -> None:
    sys.stderr.write(f"{one_line(text)}\n")
    sys.stderr.flush()
