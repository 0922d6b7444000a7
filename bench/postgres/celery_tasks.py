"""The Celery application, as its worker loads it. Messages are in database 0 of a Redis server, results in 1."""

from __future__ import annotations

import os
import time

from celery import Celery

ADDRESS = "NOONMARK_BENCH_REDIS"
"""The variable with the address of the server."""


def application(url: str) -> Celery:
    """An application on a server, with the one task that is measured."""
    celery = Celery("bench", broker=f"{url}/0", backend=f"{url}/1")
    celery.task(name="note")(note)
    return celery


def note(due: float) -> float:
    """The work: its result is how late it started."""
    return time.time() - due


if ADDRESS in os.environ:
    app = application(os.environ[ADDRESS])
