"""The board: jobs with their countdowns, what happened last, and how late the starts were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.demo.story import BUCKETS
from noonmark import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from examples.demo.story import Line, Story
    from noonmark import Job

COLOURS = {
    "completed": "green",
    "running": "cyan",
    "retrying": "yellow",
    "skipped": "yellow",
    "failed": "red",
    "misfired": "magenta",
    "paused": "yellow",
}
WIDTH = 40


def board(jobs: list[Job], story: Story, now: datetime, headlines: Sequence[str], height: int) -> Group:
    """Everything at a glance, in 80 columns and so many lines."""
    above = len(headlines) + len(jobs) + len(BUCKETS) + 5
    return Group(
        *(Text(one, style="bold", no_wrap=True, overflow="ellipsis") for one in headlines),
        _jobs(jobs, story, now),
        Text("how late starts were", style="bold"),
        _histogram(story),
        Text("what happened", style="bold"),
        _recent(jobs, story, max(2, height - above)),
    )


def summary(jobs: list[Job], story: Story) -> list[str]:
    """What became of each job, in a line each."""
    lines = []
    for job in jobs:
        counts = {phase: count for (job_id, phase), count in sorted(story.counts.items()) if job_id == job.id}
        told = ", ".join(f"{count:,} {phase}" for phase, count in counts.items()) or "nothing yet"
        lines.append(f"{job.name}: {told}")
    return lines


def _jobs(jobs: list[Job], story: Story, now: datetime) -> Table:
    table = Table(box=None, padding=(0, 1), expand=True)
    for column in ("job", "when", "now"):
        table.add_column(column, no_wrap=True)
    table.add_column("next in", justify="right", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("last", no_wrap=True)
    for job in jobs:
        last = story.last.get(job.id)
        status = str(job.status)
        table.add_row(
            job.name,
            _when(job),
            Text(status, style=COLOURS.get(status, "")),
            _countdown(job, now),
            f"{job.run_count:,}",
            Text("" if last is None else last.phase, style="" if last is None else COLOURS.get(last.phase, "")),
        )
    return table


def _when(job: Job) -> str:
    if job.trigger is None:
        return "after the one before"
    text = describe(job.trigger).text.partition(", from ")[0]
    return text if len(text) <= 30 else f"{text[:29]}…"


def _countdown(job: Job, now: datetime) -> str:
    if job.next_run is None:
        return "-"
    return f"{max(0.0, (job.next_run - now).total_seconds()):.1f} s"


def _histogram(story: Story) -> Text:
    rows = story.histogram()
    most = max((count for _, count in rows), default=0) or 1
    bars = [f"{name:>14}  {'#' * round(WIDTH * count / most):<{WIDTH}} {count:>6,}" for name, count in rows]
    return Text("\n".join(bars))


def _recent(jobs: list[Job], story: Story, count: int) -> Text:
    names = {job.id: job.name or job.id for job in jobs}
    text = Text(no_wrap=True, overflow="ellipsis")
    for line in list(story.lines)[-count:]:
        text.append(f"{line.at:%H:%M:%S} {names.get(line.job_id, line.job_id):<10} ")
        text.append(f"{line.phase:<10}", style=COLOURS.get(line.phase, ""))
        text.append(f" {line.words}\n")
    text.rstrip()
    return text


def plain(line: Line, names: dict[str, str]) -> str:
    """The same in one line, for a pipe."""
    return f"{line.at:%H:%M:%S.%f} {names.get(line.job_id, line.job_id):<10} {line.phase:<10} {line.words}"
