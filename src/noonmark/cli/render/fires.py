"""The next fires of a trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.cli.output import printable
from noonmark.cli.render.console import Table, Text, open_console, warnings_table
from noonmark.cli.render.times import local_text, plain_text, precision_of, relative_text
from noonmark.core.instants import to_micros, to_text

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.cli.render.console import Console
    from noonmark.cli.upcoming import Upcoming


def show_upcoming(upcoming: Upcoming, *, now: datetime) -> None:
    """Show the description, the fires and the warnings of a trigger."""
    with open_console() as console:
        console.print(Text(printable(upcoming.text), "bold"))
        print_fires(console, upcoming, now)


def print_fires(console: Console, upcoming: Upcoming, now: datetime) -> None:
    """Print the fires and the warnings of a trigger."""
    if upcoming.fires:
        console.print()
        console.print(_fires_table(upcoming, now))
    if len(upcoming.fires) < upcoming.count:
        last = "that" if upcoming.fires else to_text(to_micros(upcoming.after))
        console.print()
        console.print(f"After {last} it never fires.")
    if upcoming.warnings:
        console.print()
        console.print(warnings_table(upcoming.warnings))


def _fires_table(upcoming: Upcoming, now: datetime) -> Table:
    in_utc = upcoming.zone == "UTC"
    titles = ["#", upcoming.zone, *([] if in_utc else ["UTC"]), "From now"]
    table = Table(titles, styles={0: "dim", 1: "bold"}, right=0)
    precision = precision_of(upcoming.fires)
    for number, fire in enumerate(upcoming.fires, start=1):
        utc = plain_text(fire, precision)
        times = [f"{fire:%a} {utc}"] if in_utc else [local_text(fire, upcoming.zone, precision), utc]
        table.add_row(str(number), *times, relative_text(fire - now))
    return table
