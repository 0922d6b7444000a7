"""Dramatiq on Redis: a worker with two processes of eight threads, the results of its tasks kept in Redis.

Like Celery, it has no schedules: what can be compared is the way of a task that has a time, from the broker to its
result. The worker holds such tasks in its memory until they are due.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from redis import Redis

from bench.postgres.worker import running_worker
from bench.redis.dramatiq_tasks import ADDRESS, make_actor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bench.postgres.agenda import Load, Outcome

PROCESSES = 2
START_SECONDS = 60
RESULTS = 1
"""The number of the database that holds the results, and nothing else."""


def work(url: str, load: Load) -> Outcome:
    """Send every task with its time, and wait until all have their results."""
    actor = make_actor(url)
    with _worker(url), Redis.from_url(f"{url}/{RESULTS}") as results:
        actor.send(time.time())
        _wait(results, 1, time.time() + START_SECONDS)
        results.flushdb()
        agenda = load.begin()
        for due in agenda.dues():
            actor.send_with_options(args=(due,), delay=max(0, round((due - time.time()) * 1_000)))
        agenda.all_stored()
        while results.dbsize() < load.count and not agenda.is_over:
            time.sleep(0.01)
        seen = agenda.outcome([])
        return replace(seen, lateness=_lateness(results))


def _wait(results: Redis, count: int, limit: float) -> None:
    while results.dbsize() < count:
        assert time.time() < limit, "the worker does not answer"
        time.sleep(0.05)


def _worker(url: str) -> AbstractContextManager[None]:
    return running_worker("dramatiq", "bench.redis.dramatiq_tasks", "--processes", str(PROCESSES), **{ADDRESS: url})


def _lateness(results: Redis) -> list[float]:
    with results.pipeline(transaction=False) as pipeline:
        for key in results.scan_iter():
            pipeline.lindex(key, 0)
        # A delay has whole milliseconds, so a task may start a little before its time.
        return [max(0.0, json.loads(text)) for text in pipeline.execute() if text]
