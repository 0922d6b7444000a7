"""`noonmark top`: a live view of what runs, is queued, comes next and failed."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.options import Connection
from noonmark.cli.output import one_line, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, list_nodes
from noonmark.cli.screen import begin_frame, open_screen
from noonmark.core.errors import InvalidRequest, StoreUnavailable, Unreachable
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.cli.remote import Remote

MIN_INTERVAL, MAX_INTERVAL = 0.2, 3_600.0
ONCE_HEIGHT = 100
"""The lines of a frame that is not on a terminal."""
MAX_SHOWN = 40
"""How many occurrences of each kind are read."""


def top(
    *,
    interval: Annotated[float, Parameter(help="Seconds between two frames, from 0.2 to 3600.")] = 2.0,
    once: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print one frame and exit, as in a pipe.")
    ] = False,
    connection: Connection = Connection(),
) -> None:
    """Watch what runs, is queued, comes next and failed within the last hour, per node.

    `q` or Ctrl-C ends it. In a pipe, it prints one frame.
    """
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise InvalidRequest(f"must be from 0.2 to 3600 seconds, not {shown(interval)}", field="--interval")
    with connect(connection) as remote:
        if connection.as_json:
            print_json(_read(remote, MAX_SHOWN))
            return
        if once or not sys.stdout.isatty():
            _draw(_read(remote, MAX_SHOWN), shutil.get_terminal_size().columns, ONCE_HEIGHT)
            return
        first = _read(remote, MAX_SHOWN)  # an error here is that of the command
        with open_screen() as wait:
            _watch(remote, first, interval, wait)


def _watch(remote: Remote, answer: dict[str, Any], interval: float, wait: Callable[[float], bool]) -> None:
    """Draw frame after frame until the user ends it."""
    problem = ""
    while True:
        columns, lines = shutil.get_terminal_size()
        begin_frame()
        if problem:
            sys.stdout.write(f"{one_line(problem)[:columns]}\r\n")
        _draw(answer, columns, lines - 1 - bool(problem))
        sys.stdout.flush()
        if wait(interval):
            return
        try:
            answer, problem = _read(remote, MAX_SHOWN), ""
        except (Unreachable, StoreUnavailable) as error:
            problem = f"No answer; this is the last one. {error.message}"


def _read(remote: Remote, limit: int) -> dict[str, Any]:
    """The workload, and the nodes if the caller may see them."""
    return remote.call("workload", {"limit": limit}) | {"nodes": list_nodes(remote)}


def _draw(answer: dict[str, Any], columns: int, lines: int) -> None:
    from noonmark.cli.render.console import open_console
    from noonmark.cli.render.times import local_times
    from noonmark.cli.render.top import frame

    with open_console(columns) as console:
        for line in frame(answer, answer["nodes"], local_times(), width=columns, height=lines):
            console.print_line(line)
