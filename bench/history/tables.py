"""The tables of what is stored.

`BENCH_SCHEDULES=1000,1000000 BENCH_HISTORY=10000,10000000 python -m bench history` says how much there is to be.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.history.databases import PostgresDatabase, SqliteDatabase
from bench.history.fill import OF_WATCHED, WATCHED, Filled, fill
from bench.history.verbs import PAGE, SINGLES, Work
from bench.report import Table, bar, duration
from tests.servers.postgres import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.history.databases import Database
    from bench.settings import Settings

FLAT = 1.2
BATCH = 1_000
PRUNES = 3
"""How often a batch is pruned by age, and by number."""
SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "maintenance_work_mem": "256MB", "autovacuum": "off"}
"""Durable as it comes, with fsync; rows are only vacuumed when we say so, so that no call meets it by chance."""
MEASURES = (
    "create",
    "claim one",
    "claim",
    "start",
    "settle",
    "burst",
    "page of schedules",
    "the same from the middle",
    "page of occurrences",
    "page of runs",
    "the same of the largest",
    "prune by age",
    "prune by number",
    "prune nothing",
)


@dataclass(slots=True, kw_only=True)
class Stored:
    """A database with so much in it, and all that was measured beside it."""

    schedules: int
    history: int
    filled: Filled
    work: Work
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def note(self, found: dict[str, float]) -> None:
        """One round of some measures."""
        for what, took in found.items():
            self.seconds.setdefault(what, []).append(took)

    def __str__(self) -> str:
        """What is in it."""
        return f"{self.schedules:,} + {self.history:,}"


def tables(settings: Settings) -> Iterator[Table]:
    """The ledger beside a small store and a large one, on SQLite and on PostgreSQL."""
    wanted = sizes(settings)
    with running(**SERVER) as server, TemporaryDirectory() as folder, ExitStack() as until:
        databases: dict[str, list[Database]] = {
            "SQLite": [SqliteDatabase(Path(folder) / f"stored_{number}.db") for number in range(len(wanted))],
            "PostgreSQL": [PostgresDatabase(server, f"stored_{number}") for number in range(len(wanted))],
        }
        # Both at a time: either keeps one processor busy.
        with ThreadPoolExecutor(len(databases)) as threads:
            filled = dict(zip(databases, threads.map(lambda of: _fill(of, wanted), databases.values()), strict=True))
        for name, stored in filled.items():
            for one in stored:
                until.callback(one.work.close)
            _measure(stored, 2 * settings.ledger_rounds + 1)
            yield _table(name, stored, settings)


def sizes(settings: Settings) -> list[tuple[int, int]]:
    """How many schedules and ended occurrences there are to be, in one database after another."""
    schedules, history = (
        tuple(map(int, os.environ[name].split(","))) if name in os.environ else default
        for name, default in (("BENCH_SCHEDULES", settings.history_schedules), ("BENCH_HISTORY", settings.history))
    )
    return list(zip(schedules, history, strict=True))


def _fill(databases: list[Database], wanted: list[tuple[int, int]]) -> list[Stored]:
    stored = []
    for database, (schedules, history) in zip(databases, wanted, strict=True):
        filled = fill(database, schedules, history)
        work = Work(database.url, min(BATCH, history // 10))
        stored.append(Stored(schedules=schedules, history=history, filled=filled, work=work))
    return stored


def _measure(stored: list[Stored], rounds: int) -> None:
    """All of them in turns: what slows the machine down for a while slows them all."""
    for _ in range(rounds):
        for one in stored:
            one.note(one.work.cycle())
    for number in range(rounds):
        for one in stored:
            one.note(one.work.read(one.filled.uids[number % WATCHED], one.filled.largest, one.filled.middle))
            one.note({"prune nothing": one.work.prune_nothing()})
    for one in stored:
        one.work.cut(OF_WATCHED)
    fewer = -(-stored[0].work.batch // WATCHED)
    for number in range(1, PRUNES + 1):
        for one in stored:
            one.note({"prune by number": one.work.prune(keep=OF_WATCHED - number * fewer)})
    for _ in range(PRUNES):
        for one in stored:
            one.note({"prune by age": one.work.prune(before=one.filled.end)})


def _table(name: str, stored: list[Stored], settings: Settings) -> Table:
    first, last = stored[0], stored[-1]
    table = Table(
        f"Stored on {name}: schedules + ended occurrences, and what the ledger takes beside them",
        ("what", *map(str, stored), "last : first", "bar"),
        notes=(
            f"Medians of {2 * settings.ledger_rounds + 1} rounds in turns, {PRUNES} of pruning, and of their ratios.",
            f"burst: claim, start and settle {BATCH:,} occurrences, one call each; claim one: {SINGLES} in a row.",
            f"A page has {PAGE}; that schedule has {OF_WATCHED} ended ones, the largest a tenth of all or 10,000.",
            f"Bar: at most {FLAT} times as long.",
            *(f"{one}: {one.filled.megabytes:,.0f} MB, filled in {duration(one.filled.seconds)}" for one in stored),
        ),
    )
    for what in MEASURES:
        ratio = median(large / small for small, large in zip(first.seconds[what], last.seconds[what], strict=True))
        times = (duration(median(one.seconds[what])) for one in stored)
        table.add(what, *times, f"{ratio:.2f}", bar(met=ratio <= FLAT))
    return table
