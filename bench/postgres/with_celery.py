"""Celery on Redis: a worker with two processes, the results of its tasks kept in Redis.

Celery's own scheduler, beat, keeps no occurrences: it writes down when each of its entries was last sent, and sends a
message when the next is due. Nobody can ask it later what it missed. So what can be compared is the way of a task that
has a time, from the broker to its result. Redis, as it comes, does not wait for the disk.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redis import Redis

from bench.postgres.celery_tasks import ADDRESS, application
from bench.postgres.worker import running_worker

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from celery import Celery

    from bench.postgres.agenda import Load, Outcome

PROCESSES = 2
START_SECONDS = 60
RESULTS = 1
"""The number of the database that holds the results, and nothing else."""


def work(url: str, load: Load) -> Outcome:
    """Send every task with its time, and wait until all have their results."""
    celery = application(url)
    with _worker(url), Redis.from_url(f"{url}/{RESULTS}") as results:
        _wait_for_worker(celery)
        agenda = load.begin()
        with celery.producer_pool.acquire(block=True) as producer:
            for due in agenda.dues():
                celery.send_task("note", [due], eta=datetime.fromtimestamp(due, UTC), producer=producer)
        agenda.all_stored()
        while results.dbsize() < load.count and not agenda.is_over:
            time.sleep(0.01)
        seen = agenda.outcome([])
        celery.close()
        return replace(seen, lateness=_lateness(results))


def _wait_for_worker(celery: Celery) -> None:
    limit = time.time() + START_SECONDS
    while not celery.control.ping(timeout=0.2):
        assert time.time() < limit, "the worker does not answer"


def _worker(url: str) -> AbstractContextManager[None]:
    # Gossip and mingle are for talking to other workers; there are none.
    options = ("--concurrency", str(PROCESSES), "--without-gossip", "--without-mingle")
    return running_worker(
        "celery", "-A", "bench.postgres.celery_tasks", "worker", "--loglevel", "ERROR", *options, **{ADDRESS: url}
    )


def _lateness(results: Redis) -> list[float]:
    found = (json.loads(text) for text in results.mget(results.keys()) if text)
    return [each["result"] for each in found if each["status"] == "SUCCESS"]
