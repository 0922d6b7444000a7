"""The Dramatiq broker, as its worker loads it. Messages are in database 0 of a Redis server, results in 1."""

from __future__ import annotations

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

ADDRESS = "NOONMARK_BENCH_DRAMATIQ"
"""The variable with the address of the server."""


def make_actor(url: str) -> dramatiq.Actor[[float], float]:
    """The one task that is measured, on a server."""
    broker = RedisBroker(url=f"{url}/0")
    broker.add_middleware(Results(backend=RedisBackend(url=f"{url}/1"), store_results=True))
    dramatiq.set_broker(broker)
    return dramatiq.actor(note, actor_name="note", broker=broker)


def note(due: float) -> float:
    """The work: its result is how late it started."""
    return time.time() - due


if ADDRESS in os.environ:
    actor = make_actor(os.environ[ADDRESS])
