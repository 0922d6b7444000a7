"""The console that output for people goes to: in colour on a terminal, plain in a pipe."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noonmark.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@contextmanager
def open_console(width: int | None = None) -> Iterator[Console]:
    """A console that prints text as it is: brackets are not markup.

    In a pipe, lines may be up to `width` long, so that a row of a table stays on one line.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        yield console
        return
    console.width = width or console.width
    with console.capture() as captured:
        yield console
    # Rich pads lines with blanks, which are useless in a pipe.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().removesuffix("\n").split("\n"))


def facts_table(facts: Mapping[str, str]) -> Table:
    """Labels with their values, a line each."""
    table = Table.grid(padding=(0, 3, 0, 0))
    for label, value in facts.items():
        table.add_row(Text(label, style="dim"), Text(printable(value), overflow="fold"))
    return table


def warnings_table(warnings: Sequence[str]) -> Table:
    """Warnings, a line each."""
    table = Table.grid(padding=(0, 1))
    for warning in warnings:
        table.add_row(Text("!", style="bold yellow"), Text(printable(warning)))
    return table
