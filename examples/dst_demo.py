"""The two nights when the clocks change, drawn in real time: what fires, how often, and why.

Every mark is asked of the trigger itself. The nights are the next ones from now on, or from the instant given as the
argument: `python examples/dst_demo.py 2026-07-01T00:00:00Z`.
"""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from noonmark import CalendarTrigger, CronTrigger, IntervalTrigger, Trigger, describe, fires
from noonmark.clocks import SystemClock
from noonmark.core.triggers.zones import Pass, Zone, load_zone

ZONE = "Europe/Stockholm"
HOUR, HALF_HOUR, DAY = 3_600, 1_800, 86_400
CELLS = 10
"""Half hours from midnight on: five hours of real time, whatever the clock on the wall says."""
FIRE, NOTHING, JUMP = "●·┃" if sys.stdout.encoding.lower().startswith("utf") else "*.|"
PASSES = {Pass.ONLY: "", Pass.FIRST: "first", Pass.SECOND: "second"}
TINTS = {Pass.ONLY: "", Pass.FIRST: "white on #17405c", Pass.SECOND: "white on #5c3a17"}


@dataclass(frozen=True)
class Row:
    """A schedule, and what becomes of it in either night."""

    name: str
    trigger: Trigger
    spring: str
    autumn: str


ROWS = (
    Row("30 2 * * *", CronTrigger("30 2 * * *", ZONE), "made up at 03:00", "once, in the first pass"),
    Row(
        "  gap skip, fold both",
        CronTrigger("30 2 * * *", ZONE, dst={"gap": "skip", "fold": "both"}),
        "left out, as asked",
        "in both passes, as asked",
    ),
    Row("0 2,3 * * *", CronTrigger("0 2,3 * * *", ZONE), "02:00 and 03:00 are one", "once each, none twice"),
    Row(
        "calendar: Sunday 02:00",
        CalendarTrigger(day_of_week=0, hour=2, minute=0, timezone=ZONE),
        "made up at 03:00",
        "once, in the first pass",
    ),
    Row("0 * * * *", CronTrigger("0 * * * *", ZONE), "every real hour", "every real hour"),
    Row("*/30 * * * *", CronTrigger("*/30 * * * *", ZONE), "every real half hour", "every real half hour"),
    Row(
        "every 90 minutes",
        IntervalTrigger(5_400, start_at=datetime(2026, 1, 1, tzinfo=UTC)),
        "elapsed time, unaffected",
        "elapsed time, unaffected",
    ),
)
UPCOMING = (
    CronTrigger("0 9 * * MON-FRI", "America/New_York"),
    CronTrigger("30 2 * * *", "Europe/Stockholm"),
    CronTrigger("0 9 13 * FRI", "Europe/London"),
    CronTrigger("*/25 * * * *", "Asia/Kathmandu"),
    CronTrigger(["0 17 LW * *", "0 12 * * MON#1"], "Australia/Sydney"),
)


@dataclass(frozen=True)
class Night:
    """The hours around a change of the clock: a strip of half-hour cells, starting at midnight."""

    zone: Zone
    change: int

    @property
    def start(self) -> int:
        """Midnight by the clock on the wall."""
        before = self.zone.segment_at(self.change - 1).offset
        return self.change - (self.change + before) % DAY

    def tint(self, cell: int) -> str:
        """The background of a cell: each pass of a repeated hour has its own."""
        return TINTS[self.zone.segment_at(self.start + cell * HALF_HOUR).reading]

    def gap_after(self, cell: int) -> str:
        """What stands between a cell and the next: a line where the clock jumps ahead."""
        segment = self.zone.segment_at(self.start + (cell + 1) * HALF_HOUR)
        return JUMP if segment.gap and segment.start == self.start + (cell + 1) * HALF_HOUR else " "

    def clock(self) -> Text:
        """The wall clock above the strip: the hour, and how far it is ahead of UTC."""
        passes, hours, offsets = Text(), Text(), Text()
        for cell in range(0, CELLS, 2):
            segment = self.zone.segment_at(self.start + cell * HALF_HOUR)
            tint, gap = self.tint(cell), self.gap_after(cell + 1)
            passes.append(f"{PASSES[segment.reading]:6}", f"{tint} italic")
            hours.append(f"{self.zone.local(self.start + cell * HALF_HOUR):%H:%M}", f"{tint} bold")
            hours.append(gap, f"{tint} red")
            offsets.append(f"UTC{segment.offset // HOUR:+}", f"{tint} dim")
            offsets.append(gap, f"{tint} red")
        return Text("\n").join([passes, hours, offsets] if passes.plain.strip() else [hours, offsets])

    def strip(self, trigger: Trigger) -> Text:
        """A mark in every cell in which the trigger fires."""
        evening = datetime.fromtimestamp(self.start - 1, UTC)
        found = {int(fire.timestamp()) // HALF_HOUR for fire in fires(trigger, evening, CELLS)}
        line = Text()
        for cell in range(CELLS):
            fired = self.start // HALF_HOUR + cell in found
            tint = self.tint(cell)
            line.append(f" {FIRE if fired else NOTHING}", f"{tint} {'bold green' if fired else 'dim'}")
            line.append(self.gap_after(cell), f"{tint} red")
        return line


def next_night(zone: Zone, now: int, *, spring: bool) -> Night:
    """The next night in which the clock jumps ahead, or in which it goes back."""
    second = zone.segment_at(now).end
    while True:
        segment = zone.segment_at(second)
        if segment.gap if spring else segment.reading is Pass.SECOND:
            return Night(zone, segment.start)
        second = segment.end


def picture(night: Night, *, spring: bool) -> Table:
    """One row a schedule."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("", no_wrap=True)
    table.add_column(night.clock(), no_wrap=True)
    table.add_column("")
    for row in ROWS:
        table.add_row(Text(row.name, "bold"), night.strip(row.trigger), row.spring if spring else row.autumn)
    return table


def next_fires(now: datetime) -> Table:
    """What each trigger says, when it fires next, and what its author may not have meant."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    for trigger in UPCOMING:
        said = describe(trigger, now=now)
        zone = load_zone(trigger.timezone)
        times = [f"{zone.local(int(fire.timestamp())):%a %d %b %H:%M}" for fire in fires(trigger, now, 3)]
        traps = Table.grid(padding=(0, 1))
        for warning in said.warnings:
            traps.add_row(Text("!", "bold yellow"), Text(warning, "yellow"))
        words = Group(Text(said.text), Text("   ".join(times), "green"), *([traps] if said.warnings else []))
        table.add_row(Text("\n".join(trigger.expressions), "bold"), words)
    return table


def main() -> None:
    """Draw both nights, then what comes next."""
    now = datetime.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else SystemClock().now()
    console = Console(highlight=False, emoji=False)
    console.print(f"Each cell is half an hour of real time, below the clock on the wall. [bold green]{FIRE}[/] fires.")
    zone = load_zone(ZONE)
    for spring, what in (
        (True, "At 02:00 the clock jumps to 03:00, so there is no 02:30."),
        (False, "At 03:00 the clock goes back to 02:00, so 02:30 comes twice."),
    ):
        night = next_night(zone, int(now.timestamp()), spring=spring)
        console.print(f"\n[bold]{zone.local(night.change):%A %d %B %Y}, {ZONE}[/]\n{what}\n")
        console.print(picture(night, spring=spring))
    console.print("\n[bold]What fires next[/]\n")
    console.print(next_fires(now))


if __name__ == "__main__":
    main()
