"""`python -m examples.demo`: run the schedules and show them; `DEMO_SECONDS=n` ends it after a while."""

from __future__ import annotations

import logging
import os
import sys
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from examples.demo.board import board, plain, summary
from examples.demo.jobs import STORE, scheduler, story
from examples.demo.page import WebPage

if TYPE_CHECKING:
    from examples.demo.story import Line

PAGE = "The same in a browser:"
REDRAW = 0.2
"""Seconds between two drawings."""


def main() -> None:
    """Run until somebody stops it, or the time is up."""
    logging.getLogger("noonmark").setLevel(logging.CRITICAL)  # it is all on the board
    seconds = float(os.environ.get("DEMO_SECONDS", "inf"))
    console = Console()
    jobs = scheduler.list_jobs()
    begun = [job.last_run for job in jobs if job.last_run is not None]
    headline = f"Noonmark: {len(jobs)} jobs in {STORE}. Stop it with Ctrl-C, or kill it: the next start continues."
    names = {job.id: job.name or job.id for job in jobs}
    if not console.is_terminal:
        console.print(headline, soft_wrap=True)
        story.on_line = partial(_print, names)
    if begun:
        since = max(begun).astimezone()
        console.print(f"The jobs last ran at {since:%H:%M:%S}. Fires missed since then are listed below.")
    over, page = threading.Event(), WebPage(STORE)
    try:
        with scheduler, page:
            if console.is_terminal:
                _draw(console, headline, page, over, seconds)
            else:
                page.on_address = _print_address
                over.wait(None if seconds == float("inf") else seconds)
    except KeyboardInterrupt:
        pass
    console.print("\nOutcomes:")
    for line in summary(scheduler.list_jobs(), story):
        console.print(f"  {line}")
    console.print("Start it again: it continues, and reports what it missed.")


def _draw(console: Console, headline: str, page: WebPage, over: threading.Event, seconds: float) -> None:
    started = datetime.now(UTC)
    with Live(console=console, auto_refresh=False) as live:
        while (now := datetime.now(UTC)) and (now - started).total_seconds() < seconds:
            headlines = (headline, f"{PAGE} {page.address or 'starting'}")
            live.update(board(scheduler.list_jobs(), story, now, headlines, console.height), refresh=True)
            over.wait(REDRAW)


def _print_address(address: str) -> None:
    print(f"{PAGE} {address}", flush=True)


def _print(names: dict[str, str], line: Line) -> None:
    print(plain(line, names), flush=True)


if __name__ == "__main__":
    sys.exit(main())
