"""The tables of the history. `BENCH_HISTORY=10000,10000000 python -m bench history` says how long it is to be."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING

from bench.history.filling import OF_EACH, OF_ONE, Filled, fill
from bench.history.measuring import PAGE, Work
from bench.report import Table, bar, duration
from tests.servers.postgres import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings
    from tests.servers.postgres import Postgres

FLAT = 0.8
BATCH = 1_000
PRUNES = 2
"""So often a batch is forgotten in either way; there must be enough of it."""
SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "maintenance_work_mem": "256MB", "autovacuum": "off"}
"""Durable as it comes, with fsync; rows are only vacuumed when we say so, so that no run is struck by chance."""
VERBS = ("claim", "start", "settle")
KEPT = ("occurrences", "runs", "fullest", "by_age", "by_number", "none")
_MANY = "SELECT uid FROM noonmark.schedule_states WHERE history >= 500 ORDER BY history, uid LIMIT 20"
_FULLEST = "SELECT uid FROM noonmark.schedule_states ORDER BY history DESC LIMIT 1"
_SIZES = """
    SELECT sum(pg_relation_size(oid)) FILTER (WHERE relkind = 'r'),
        sum(pg_relation_size(oid)) FILTER (WHERE relkind = 'i')
    FROM pg_class WHERE relnamespace = 'noonmark'::regnamespace
"""


@dataclass(slots=True, kw_only=True)
class History:
    """A database with so many ended occurrences, and the best that was seen of everything."""

    count: int
    filled: Filled
    seconds: float
    sizes: list[float]
    uids: list[str]
    fullest: str
    work: Work
    best: dict[str, float] = field(default_factory=dict)

    def note(self, **found: float) -> None:
        """Keep what is better than before: other programs only ever slow one down."""
        self.best |= {name: min(took, self.best.get(name, took)) for name, took in found.items()}

    @property
    def rate(self) -> float:
        """Occurrences a second, through all three verbs."""
        return self.work.batch / self.best["cycle"]


def tables(settings: Settings) -> Iterator[Table]:
    """The ledger beside a short history and a long one."""
    with running(**SERVER) as server, ExitStack() as until:
        histories = [_history(server, until, count) for count in lengths(settings)]
        _measure(histories, settings.ledger_rounds)
    work = Table(
        "History: PostgreSQL with so many ended occurrences and their runs, and a burst beside them",
        ("ended", *VERBS, "cycle/s", "of the first", "bar"),
        notes=(
            f"One call of each verb with {BATCH:,} occurrences, the best of {settings.ledger_rounds}, in turns.",
            f"Bar: the cycle within {1 - FLAT:.0%} of the first line. fsync and synchronous_commit are on.",
        ),
    )
    kept = Table(
        "Kept history: reading a page of it, forgetting a thousand, and its room on the disk",
        ("ended", "occurrences", "runs", "of fullest", "by age", "by number", "none", "tables", "indexes", "filled in"),
        notes=(
            f"occurrences, runs: the newest {PAGE} of a schedule with {OF_EACH:,}; of the fullest, with {OF_ONE:,}.",
            "In a history of 10,000 these have half as many.",
            "by age, by number: forgetting the oldest of all, or some of each schedule; none: if there is none.",
        ),
    )
    for history in histories:
        share = history.rate / histories[0].rate
        times = [duration(history.best[verb]) for verb in VERBS]
        work.add(f"{history.count:,}", *times, f"{history.rate:,.0f}", f"{share:.2f}", bar(met=share >= FLAT))
        sizes = [f"{size / 1e6:,.0f} MB" for size in history.sizes]
        kept.add(
            f"{history.count:,}", *(duration(history.best[what]) for what in KEPT), *sizes, duration(history.seconds)
        )
    yield work
    yield kept


def lengths(settings: Settings) -> tuple[int, ...]:
    """How many ended occurrences there are to be, in one database after another."""
    wanted = os.environ.get("BENCH_HISTORY")
    return tuple(int(count) for count in wanted.split(",")) if wanted else settings.history


def _history(server: Postgres, until: ExitStack, count: int) -> History:
    database = f"history_{count}"
    url = server.create(database)
    begun = perf_counter()
    filled = fill(server, database, count)
    work = Work(url, min(BATCH, count // 10))
    until.callback(work.close)
    return History(
        count=count,
        filled=filled,
        seconds=perf_counter() - begun,
        sizes=[float(size) for size in server.sql(_SIZES, database).split("|")],
        uids=server.sql(_MANY, database).splitlines(),
        fullest=server.sql(_FULLEST, database),
        work=work,
    )


def _measure(histories: list[History], rounds: int) -> None:
    """All of them in turns: what slows the machine down for a while slows them all."""
    for _ in range(rounds):
        for history in histories:
            took = history.work.cycle()
            history.note(**took, cycle=sum(took.values()))
    for _ in range(rounds):
        for history in histories:
            history.note(**history.work.read(history.uids, history.fullest), none=history.work.prune_nothing())
    for history in histories:
        history.work.cut(history.filled.of_each)
    for _ in range(PRUNES):
        for history in histories:
            enough = ceil(PRUNES * history.work.batch / history.filled.schedules)
            history.note(by_number=history.work.prune(keep=history.filled.of_each - enough))
    for _ in range(PRUNES):
        for history in histories:
            history.note(by_age=history.work.prune(before=history.filled.begin + history.count * history.filled.step))
