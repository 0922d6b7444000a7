"""The tables of the Redis suite: a burst, a steady load and the wake-up, by when the server waits for its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.postgres.contestants import CELERY, ON_REDIS
from bench.report import Table, duration
from tests.servers import redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

SYNCS = {"everysec": None, "always": 50}
"""When the server waits for its disk, and how many tasks that are sent one by one are surely stored in a second."""


def tables(settings: Settings) -> Iterator[Table]:
    """All of them, on servers that append each write to a file."""
    bursts: dict[tuple[str, str], dict[str, float]] = {}
    steady: dict[tuple[str, str], dict[str, float]] = {}
    wakes: dict[str, dict[str, float]] = {}
    for sync, stores in SYNCS.items():
        with redis.running(appendonly="yes", appendfsync=sync, save="") as server:
            for each in ON_REDIS.values():
                limit = {"stores": stores} if stores and each.few else {}
                for _ in range(settings.server_rounds):
                    count = settings.peer_burst if each.few else settings.burst
                    server.empty()
                    figures = measure("server_burst", contestant=each.name, url=server.address, count=count, **limit)
                    best = bursts.get((sync, each.name), figures)
                    bursts[sync, each.name] = max(figures, best, key=lambda one: one["rate"])
                if limit:  # to store as many tasks as a steady load has takes minutes
                    continue
                server.empty()
                steady[sync, each.name] = measure(
                    "server_steady",
                    contestant=each.name,
                    url=server.address,
                    count=settings.steady,
                    seconds=settings.steady_seconds,
                )
            server.empty()
            wakes[sync] = measure("noonmark_wake", url=server.address, count=settings.wakes)
    yield burst_table(settings, bursts)
    yield _steady(settings, steady)
    yield _wake(settings, wakes)


def burst_table(settings: Settings, best: dict[tuple[str, str], dict[str, float]]) -> Table:
    """Each contestant beside Celery on the same server."""
    table = Table(
        "Burst on Redis: jobs due at one instant that do nothing, until the last end is written",
        ("appendfsync", "what", "jobs", "jobs/s", "first start", "x Celery"),
        notes=(
            f"Best of {settings.server_rounds}. All with the same server, with appendonly yes.",
            "Noonmark stores schedules, occurrences and runs; the others hold tasks in the memory of their workers.",
        ),
    )
    for (sync, name), found in best.items():
        ratio = found["rate"] / best[sync, CELERY.name]["rate"]
        cells = (f"{found['ran']:,}", f"{found['rate']:,.0f}", duration(found["first"]), f"{ratio:.1f}")
        table.add(sync, name, *cells)
    return table


def _steady(settings: Settings, found: dict[tuple[str, str], dict[str, float]]) -> Table:
    count, seconds = settings.steady, settings.steady_seconds
    table = Table(
        f"Steady on Redis: {count:,} jobs a second, evenly spread, for {seconds} s: lateness",
        ("appendfsync", "what", "p50", "p99", "last", "lost"),
        notes=("Lost: not started a few seconds after the last was due.",),
    )
    for (sync, name), one in found.items():
        table.add(sync, name, *(duration(one[key]) for key in ("p50", "p99", "last")), f"{one['lost']:,.0f}")
    return table


def _wake(settings: Settings, found: dict[str, dict[str, float]]) -> Table:
    table = Table(
        f"Wake-up on Redis: from the call that declares a job, due at once, to its start on another node,"
        f" {settings.wakes:,} times",
        ("appendfsync", "p50", "p99", "last"),
    )
    for sync, one in found.items():
        table.add(sync, *(duration(one[key]) for key in ("p50", "p99", "last")))
    return table
