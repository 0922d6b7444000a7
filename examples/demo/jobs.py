"""The schedules of the demo, each of them interesting in its own way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.story import Story
from noonmark import Scheduler

if TYPE_CHECKING:
    from noonmark.targets.function.context import Context

FOLDER = Path(os.environ.get("DEMO_FOLDER", ".demo"))
FOLDER.mkdir(parents=True, exist_ok=True)
STORE = f"sqlite:///{FOLDER / 'jobs.db'}"

story = Story()
scheduler = Scheduler(STORE, lease=3, sink=story)


@scheduler.every(seconds=1, name="tick")
def tick() -> None:
    """Every second."""


@scheduler.cron("*/5 * * * * *", timezone="Europe/Stockholm", name="chime")
def chime() -> None:
    """By a cron expression with seconds."""


@scheduler.every(seconds=4, jitter=2, name="poll")
def poll() -> None:
    """Up to two seconds later than every fourth, so that not everybody polls at once."""


@scheduler.every(seconds=2, name="report", overlap="skip")
def report(context: Context) -> None:
    """Takes longer than its interval: while it runs, its next fires are skipped, and that is recorded."""
    context.cancelled.wait(3)


@scheduler.every(seconds=3, name="flaky", retries=2)
def flaky(context: Context) -> str:
    """Fails the first time, and is tried again."""
    if context.attempt == 1:
        raise ConnectionError("no answer")
    return "well, the second time"


@scheduler.every(seconds=3, name="extract")
def extract() -> int:
    """The first of three that follow each other."""
    return 42


def transform() -> None:
    """Runs whenever extract has completed."""
    threading.Event().wait(0.2)


def load() -> None:
    """Runs whenever transform has completed."""


transform_id = scheduler.schedule_with_deps(transform, [extract.job_id], name="transform")
load_id = scheduler.schedule_with_deps(load, [transform_id], name="load")


@scheduler.every(seconds=2, name="order")
def order(context: Context) -> None:
    """Emits an event; every fourth order is not worth a shipment."""
    amount = int(context.nominal_at.timestamp()) // 2 % 4 * 20
    scheduler.emit("order_placed", {"amount": amount}, event_id=context.occurrence_id)


@scheduler.on_event("order_placed", {"amount": {"gte": 20}}, name="ship")
def ship(context: Context) -> int:
    """Runs for orders that are worth it."""
    return int(context.payload["amount"])
