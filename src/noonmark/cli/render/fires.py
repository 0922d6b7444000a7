"""The next fires of a trigger, with its description and its warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.cli.output import printable
from noonmark.cli.render.console import Table, Text, open_console, warnings_table
from noonmark.cli.render.times import local_text, plain_text, precision_of, relative_text
from noonmark.core.describe import describe
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_micros, to_text
from noonmark.core.triggers import EventTrigger, fires
from noonmark.core.triggers.recurrence import WallTrigger

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.cli.render.console import Console
    from noonmark.core.triggers import Trigger


@frozen(kw_only=True)
class Upcoming:
    """The fires after an instant: `count`, or fewer if the trigger ends. `zone` is the trigger's time zone."""

    text: str
    warnings: list[str]
    fires: list[datetime]
    after: datetime
    count: int
    zone: str

    def to_document(self) -> dict[str, Any]:
        """The preview as JSON."""
        times = [to_text(to_micros(fire)) for fire in self.fires]
        return {"fires": times, "description": self.text, "warnings": self.warnings}


def preview_trigger(trigger: Trigger, *, after: datetime, count: int) -> Upcoming:
    """Preview a trigger; one that waits for events has no fires."""
    if isinstance(trigger, EventTrigger):
        count = 0
    description = describe(trigger, now=after)
    return Upcoming(
        text=description.text,
        warnings=description.warnings,
        fires=fires(trigger, after, count),
        after=after,
        count=count,
        zone=trigger.timezone if isinstance(trigger, WallTrigger) else "UTC",
    )


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
