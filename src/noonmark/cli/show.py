"""What people see: sentences and tables, in colour on a terminal and plain in a pipe."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noonmark.cli.output import printable
from noonmark.core.instants import to_micros, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from noonmark.cli.upcoming import Upcoming

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@contextmanager
def page(width: int | None = None) -> Iterator[Console]:
    """Where to print; text is shown as it is, so that a bracket in an expression is not taken for markup.

    In a pipe, lines may be as long as `width`, so that a row of a table stays one line.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        yield console
        return
    console.width = width or console.width
    with console.capture() as captured:
        yield console
    # Rich fills lines up with blanks, which a file or another program has no use for.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().removesuffix("\n").split("\n"))


def show_upcoming(upcoming: Upcoming, *, now: datetime) -> None:
    """The sentence, the table of fires, the warnings."""
    with page() as out:
        out.print(Text(printable(upcoming.text), style="bold"))
        show_fires(out, upcoming, now)


def show_schedule(name: str, upcoming: Upcoming, facts: Mapping[str, str], *, now: datetime) -> None:
    """That it is valid, the facts about it, then as for a trigger alone."""
    with page() as out:
        out.print(Text.assemble((printable(name), "bold"), " is valid.", style="green"))
        out.print(facts_table(facts))
        show_fires(out, upcoming, now)


def facts_table(facts: Mapping[str, str]) -> Table:
    """Short answers beside their questions."""
    table = Table.grid(padding=(0, 3, 0, 0))
    for question, answer in facts.items():
        table.add_row(Text(question, style="dim"), Text(printable(answer), overflow="fold"))
    return table


def show_fires(out: Console, upcoming: Upcoming, now: datetime) -> None:
    """The table of fires and what there is to say about it."""
    if upcoming.fires:
        out.print()
        out.print(_table(upcoming, now))
    if len(upcoming.fires) < upcoming.count:
        last = "that" if upcoming.fires else to_text(to_micros(upcoming.after))
        out.print()
        out.print(f"After {last} it never fires.")
    if upcoming.warnings:
        out.print()
        out.print(warnings_table(upcoming.warnings))


def from_now(distance: timedelta) -> str:
    """How far away an instant is, in its two largest units: `in 3 h 12 min`."""
    seconds = int(abs(distance).total_seconds())
    counts: list[tuple[int, str]] = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if counts or count:
            counts.append((count, unit))
    if not counts:
        return "now"
    shown = 1 if counts[0][0] >= 100 else 2  # beside hundreds of days, hours are noise
    said = " ".join(f"{count:,} {unit}" for count, unit in counts[:shown] if count)
    return f"in {said}" if distance.days >= 0 else f"{said} ago"


def _table(upcoming: Upcoming, now: datetime) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    in_utc = upcoming.zone == "UTC"
    table.add_column("#", justify="right", style="dim")
    table.add_column(upcoming.zone, style="bold", overflow="fold")
    if not in_utc:
        table.add_column("UTC", overflow="fold")
    table.add_column("From now", overflow="fold")
    precision = _precision(upcoming.fires)
    for number, fire in enumerate(upcoming.fires, start=1):
        utc = plain_text(fire, precision)
        times = [f"{fire:%a} {utc}"] if in_utc else [local_text(fire, upcoming.zone, precision), utc]
        table.add_row(str(number), *times, from_now(fire - now))
    return table


def warnings_table(warnings: Sequence[str]) -> Table:
    """What somebody may not expect, a line each."""
    table = Table.grid(padding=(0, 1))
    for warning in warnings:
        table.add_row(Text("!", style="bold yellow"), Text(printable(warning)))
    return table


def _precision(fires: Sequence[datetime]) -> str:
    """No more digits than some fire needs."""
    if any(fire.microsecond % 1_000 for fire in fires):
        return "microseconds"
    if any(fire.microsecond for fire in fires):
        return "milliseconds"
    return "seconds" if any(fire.second for fire in fires) else "minutes"


def local_text(fire: datetime, zone: str, precision: str) -> str:
    """An instant as the clocks of a zone show it, with its weekday and offset."""
    try:
        local = fire.astimezone(ZoneInfo(zone))
    except OverflowError:
        return "outside the years 1 to 9999"
    return f"{local:%a} {plain_text(local, precision)} {local.isoformat()[19:]}"


def plain_text(moment: datetime, precision: str) -> str:
    """A date and a time, as they stand."""
    return moment.replace(tzinfo=None).isoformat(" ", precision)
