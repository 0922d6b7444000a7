"""The measurements that are alike for every contestant; each is called in a process of its own."""

from __future__ import annotations

from bench.ledger.ours import percentiles
from bench.postgres.agenda import Load
from bench.postgres.contestants import find

SLOWEST = 20
"""Jobs a second; anything slower counts as stuck."""
LATEST = 5
"""Seconds after the end of a steady load; what has not started by then is lost."""


def server_burst(contestant: str, url: str, count: int, stores: int | None = None) -> dict[str, float]:
    """Jobs due at one instant: from then until the last end is written. See `Contestant.stores`."""
    load = Load(count=count, lead=_lead(contestant, count, stores), patience=60 + count / SLOWEST)
    outcome = find(contestant).work(url, load)
    ran = len(outcome.lateness)
    first = min(outcome.lateness)
    assert ran == count, f"{ran:,} of {count:,} have run"
    assert first >= 0, f"one ran {-first} s before its time"
    return {"ran": ran, "rate": count / outcome.seconds, "first": first}


def server_steady(contestant: str, url: str, count: int, seconds: int) -> dict[str, float]:
    """`count` jobs in each second, evenly spread: how late each starts."""
    wanted = count * seconds
    load = Load(count=wanted, seconds=seconds, lead=_lead(contestant, wanted), patience=LATEST)
    outcome = find(contestant).work(url, load)
    ran = len(outcome.lateness)
    return {"ran": ran, "lost": wanted - ran, **percentiles(outcome.lateness)}


def _lead(contestant: str, count: int, stores: int | None = None) -> float:
    return 3 + count / (stores or find(contestant).stores)
