"""Reads across all schedules: the failures since a time, and the schedules that have metrics of their own."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.report import Table, bar, duration
from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.operations.service import LOCAL
from noonmark.ports.records import OccurrenceFilter
from noonmark.telemetry.metrics import METRICS_LABEL, ScheduleTimesReader
from tests.servers.postgres import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.settings import Settings

MOST = 100_000
PAGE = 100
ROUNDS = 5
SEARCH_SECONDS, SCRAPE_SECONDS = 0.1, 2.0
LABELLED = 1_000
"""How many schedules have metrics of their own: the newest ones, which a search by label finds last."""
# One failed occurrence for each schedule, a second apart.
_FAILURES = """
    INSERT INTO {schema}occurrences
        (id, schedule, revision, origin, phase, route, nominal, due, first_due, attempt, fence, reason, ended, owner)
    SELECT 'occ_failed_' || key, key, 1, 'trigger', 'failed', route, {end} - key * 1000000, {end} - key * 1000000,
        {end} - key * 1000000, 1, 1, 'failed', {end} - key * 1000000, 1
    FROM {schema}schedules
"""
_COUNTERS = "UPDATE {schema}schedule_states SET history = 1, total = 1, failed = 1"


def tables(settings: Settings) -> Iterator[Table]:
    """The time of each read, on both databases."""
    count = min(MOST, max(settings.stored))
    table = Table(
        f"Lookups: {count:,} schedules with a failure each",
        ("what", "SQLite", "PostgreSQL", "bar", ""),
        notes=(
            f"The median of {ROUNDS}; the first scrape, which reads the last ends of each labelled schedule, alone.",
        ),
    )
    with TemporaryDirectory() as folder:
        sqlite = _sqlite(Path(folder) / "noonmark.db", count)
    postgres = _postgres(count)
    for what, (limit, words) in _BARS.items():
        slowest = max(sqlite[what], postgres[what])
        met = bar(met=slowest <= limit) if words else ""
        table.add(what, duration(sqlite[what]), duration(postgres[what]), words, met)
    yield table


_BARS = {
    "failures of the last minute, the newest page": (SEARCH_SECONDS, "100 ms"),
    "failures of the last day, the newest page": (SEARCH_SECONDS, "100 ms"),
    "failures by a label that none has, a bounded read": (float("inf"), ""),
    "metrics, first scrape": (SCRAPE_SECONDS, "2 s"),
    "metrics, later scrapes": (SCRAPE_SECONDS, "2 s"),
}


def _now() -> int:
    return int(time.time() * SECOND)


def _sqlite(path: Path, count: int) -> dict[str, float]:
    def fill(text: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(text.format(schema="", end=_now()))

    return _measure(f"sqlite:///{path}", count, fill, lambda: None)


def _postgres(count: int) -> dict[str, float]:
    with running() as server:
        url = server.create("lookups")

        def fill(text: str) -> None:
            server.sql(text.format(schema="noonmark.", end=_now()), "lookups")

        return _measure(url, count, fill, lambda: server.sql("ANALYZE", "lookups"))


def _measure(url: str, count: int, fill: Callable[[str], None], analyse: Callable[[], object]) -> dict[str, float]:
    with closing(Scheduler(url)) as scheduler:
        store: Any = scheduler._store
        trigger = OnceTrigger(from_micros(store.clock() + 365 * DAY_SECONDS * SECOND))
        one = {"func": _idle, "function_name": "idle", "trigger": trigger}
        labels = dict([METRICS_LABEL])
        scheduler.create_many(one | ({"labels": labels} if n >= count - LABELLED else {}) for n in range(count))
        fill(_FAILURES)
        fill(_COUNTERS)
        analyse()
        tenant, now = LOCAL.owner.tenant, store.clock()

        def search(**wanted: object) -> float:
            occurrence_filter = OccurrenceFilter(phases=frozenset({Phase.FAILED}), **wanted)
            return median(_timed(lambda: store.search(tenant, occurrence_filter, limit=PAGE)) for _ in range(ROUNDS))

        reader = ScheduleTimesReader(store, lambda stored, _: stored.next_due)
        return dict(
            zip(
                _BARS,
                (
                    search(since=now - 60 * SECOND),
                    search(since=now - DAY_SECONDS * SECOND),
                    search(since=now - DAY_SECONDS * SECOND, labels={"team": "none"}),
                    _timed(reader.read),
                    median(_timed(reader.read) for _ in range(ROUNDS)),
                ),
                strict=True,
            )
        )


def _idle() -> None:
    """What is stored; it never runs."""


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
