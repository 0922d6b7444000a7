"""APScheduler 3's side: its own defaults, a job store on SQLite or in memory, nothing counted as missed."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.schedulers.background import BackgroundScheduler

from bench.ledger.ours import percentiles

if TYPE_CHECKING:
    from apscheduler.events import JobExecutionEvent

LATENESS: list[float] = []


def nothing() -> None:
    """The work of a burst."""


def apscheduler_burst(store: str, count: int) -> dict[str, float]:
    """Jobs due at one instant: from then until the last has run."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler(store, folder)
        ran, has_come, left = [0.0], threading.Event(), [count]

        def seen(_: JobExecutionEvent) -> None:
            left[0] -= 1
            if left[0] == 0:
                ran[0] = time.time()
                has_come.set()

        scheduler.add_listener(seen, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED | EVENT_JOB_ERROR)
        scheduler.start(paused=True)
        due = datetime.now(UTC) + timedelta(seconds=1 + count / (15_000 if store == "memory" else 300))
        for number in range(count):
            scheduler.add_job(nothing, "date", run_date=due, misfire_grace_time=None, id=str(number))
        assert datetime.now(UTC) < due, "they were due before all of them were there"
        scheduler.resume()
        assert has_come.wait(300), "the burst did not end"
        scheduler.shutdown()
        return {"rate": count / (ran[0] - due.timestamp())}


def apscheduler_steady(count: int, seconds: int) -> dict[str, float]:
    """Jobs of one second, offset by a millisecond each, on SQLite: how late each starts."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        lateness: list[float] = []

        def seen(event: JobExecutionEvent) -> None:
            lateness.append(time.time() - event.scheduled_run_time.timestamp())

        scheduler.add_listener(seen, EVENT_JOB_EXECUTED)
        scheduler.start(paused=True)
        begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2 + count / 300)
        end = begin + timedelta(seconds=seconds, microseconds=-1)
        for number in range(count):
            scheduler.add_job(
                nothing,
                "interval",
                seconds=1,
                start_date=begin + timedelta(seconds=number / count),
                end_date=end,
                misfire_grace_time=None,
                id=str(number),
            )
        scheduler.resume()
        time.sleep(max(0, (end - datetime.now(UTC)).total_seconds()) + min(5, seconds))
        scheduler.shutdown(wait=False)
        return {"lost": count * seconds - len(lateness), **percentiles(lateness)}


def apscheduler_create(count: int) -> dict[str, float]:
    """Jobs added one by one."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        scheduler.start(paused=True)
        due = datetime.now(UTC) + timedelta(days=1)
        started = time.perf_counter()
        for number in range(count):
            scheduler.add_job(nothing, "date", run_date=due, id=str(number))
        rate = count / (time.perf_counter() - started)
        scheduler.shutdown()
        return {"rate": rate}


def _scheduler(store: str, folder: str) -> BackgroundScheduler:
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    scheduler = BackgroundScheduler(timezone="UTC")
    if store == "memory":
        scheduler.add_jobstore("memory")
    else:
        scheduler.add_jobstore("sqlalchemy", url=f"sqlite:///{folder}/theirs.db")
    return scheduler
