"""Procrastinate: one worker with 20 jobs at a time, in one process.

What could slow it is set in its favour: its jobs are coroutines, which spares it a thread for each; it looks for due
jobs every 50 ms rather than every 5 s; and the server knows the size of its tables.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from procrastinate import App, PsycopgConnector

if TYPE_CHECKING:
    from bench.postgres.agenda import Load, Outcome

AT_A_TIME = 20
CONNECTIONS = 10
POLL_SECONDS = 0.05
BATCH = 1_000
FETCHES = 20
"""One by one they take long where much is stored."""
LATENESS: list[float] = []
SUCCEEDED = "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status = 'succeeded'"
STORED = """
INSERT INTO procrastinate_jobs (queue_name, task_name, scheduled_at)
SELECT 'default', 'note', now() + interval '1 year' FROM generate_series(1, %(count)s)
"""


async def note(due: float) -> None:
    """The work: how late did it start."""
    LATENESS.append(time.time() - due)


def work(url: str, load: Load) -> Outcome:
    """Defer every job, then run a worker until all have succeeded."""
    return asyncio.run(_work(_app(url), load))


async def _work(app: App, load: Load) -> Outcome:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        agenda = load.begin()
        await _defer(app, agenda.dues())
        agenda.all_stored()
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=AT_A_TIME, fetch_job_polling_interval=POLL_SECONDS, install_signal_handlers=False
            )
        )
        while not agenda.is_over:
            # Counting is work for the server; so it is asked only when the last job has run.
            if len(LATENESS) >= load.count and await _succeeded(app) >= load.count:
                break
            await asyncio.sleep(0.02)
        outcome = agenda.outcome(LATENESS)
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    return outcome


def procrastinate_claim(url: str, stored: int, count: int) -> dict[str, float]:
    """How long it takes to fetch a job that is due, beside stored ones that are not."""
    return asyncio.run(_claim(_app(url), stored, count))


async def _claim(app: App, stored: int, count: int) -> dict[str, float]:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        # As deferring them would, in one statement.
        await app.connector.execute_query_async(STORED, count=stored)
        fetches = min(count, FETCHES)
        await _defer(app, [time.time() - 1] * fetches)
        worker = await app.job_manager.register_worker()
        begun = time.perf_counter()
        for _ in range(fetches):
            assert await app.job_manager.fetch_job(queues=None, worker_id=worker), "there was nothing to fetch"
        return {"claim": (time.perf_counter() - begun) / fetches}


async def _defer(app: App, dues: list[float]) -> None:
    for first in range(0, len(dues), BATCH):
        jobs = [
            app.configure_task("note", schedule_at=datetime.fromtimestamp(due, UTC)).make_new_job(due=due)
            for due in dues[first : first + BATCH]
        ]
        await app.job_manager.batch_defer_jobs_async(jobs)
    await app.connector.execute_query_async("ANALYZE")


async def _succeeded(app: App) -> int:
    row = await app.connector.execute_query_one_async(SUCCEEDED)
    return int(row["jobs"])


def _app(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=CONNECTIONS, max_size=CONNECTIONS))
    app.task(name="note")(note)
    return app
