"""Reservations: what it costs to reserve and to settle a call of a model, beside a plain commit of one row."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psycopg

from bench.report import Table, bar, duration
from noonmark.clocks import SystemClock
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Reservation, Reserved, RunLimits
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.ports.budgets import Settled
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sqlite import SqliteStore
from tests.servers.postgres import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.settings import Settings

THREADS = 8
P99_SECONDS = 0.05
_SHARED = (1, THREADS)
_CREATE = "CREATE TABLE plain (key text PRIMARY KEY, value bigint)"
_LIMITS = RunLimits(max_cost=10**12, max_tokens=10**9, max_model_calls=10**6)


def tables(settings: Settings) -> Iterator[Table]:
    """The time of one transaction of each kind, on both databases."""
    table = Table(
        "Reservations: one transaction each, against four budgets and the limits of a run",
        ("what", "threads", "p50", "p99", "bar"),
        notes=(
            f"{settings.requests:,} of each, with fsync. A plain commit writes one row, with a connection per thread.",
            f"Bar: p99 of {duration(P99_SECONDS)} for one caller.",
        ),
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "noonmark.db"
        _measure(table, settings, "SQLite", SqliteStore(str(path), SystemClock().micros), _plain_sqlite(folder))
    with running() as server:
        store, plain = PostgresStore(server.create("budgets")), server.create("plain")
        _measure(table, settings, "PostgreSQL", store, _plain_postgres(plain))
    yield table


def _measure(table: Table, settings: Settings, name: str, store: Any, plain: Callable[[str], object]) -> None:
    with closing(store):
        store.open()
        for scope, owner in (("tenant", "acme"), ("user", "ada"), ("schedule", "s"), ("session", "t")):
            budget = Budget(
                tenant="acme", scope=BudgetScope(scope), scope_id=owner, period=Period.MONTH, max_cost=10**15
            )
            store.put_budget(budget)
        numbers = count()
        for threads in _SHARED:
            calls = [f"{next(numbers)}" for _ in range(settings.requests)]
            for what, act in (
                ("reserve", lambda call: _reserve(store, call)),
                ("settle", lambda call: _settle(store, call)),
                ("plain commit", plain),
            ):
                p50, p99 = _percentiles(act, calls, threads)
                judged = bar(met=p99 <= P99_SECONDS) if what != "plain commit" and threads == 1 else ""
                table.add(f"{name}: {what}", str(threads), duration(p50), duration(p99), judged)


def _reserve(store: Any, call: str) -> None:
    reservation = Reservation(
        call_id=call,
        tenant="acme",
        user="ada",
        schedule_id="s",
        session_id="t",
        occurrence_id=f"occ_{int(call) // 10}",
        fence=None,
        model="m",
        provider="p",
        most=Amount(tokens=1_000, cost=10**6),
        limits=_LIMITS,
    )
    [answer] = store.reserve([reservation])
    if not isinstance(answer, Reserved):
        raise TypeError(f"refused: {answer}")


def _settle(store: Any, call: str) -> None:
    usage = Usage(input_tokens=500, output_tokens=100, model_calls=1, cost=10**5)
    if store.settle_calls([Settled(call_id=call, tenant="acme", usage=usage)]) != [True]:
        raise ValueError(f"call {call} was not settled")


def _percentiles(act: Callable[[str], object], calls: list[str], threads: int) -> tuple[float, float]:
    def timed(call: str) -> float:
        start = perf_counter()
        act(call)
        return perf_counter() - start

    with ThreadPoolExecutor(threads) as pool:
        times = sorted(pool.map(timed, calls))
    return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]


def _plain_sqlite(folder: str) -> Callable[[str], object]:
    path, own = Path(folder) / "plain.db", local()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_CREATE)

    def write(call: str) -> None:
        if not hasattr(own, "connection"):
            own.connection = sqlite3.connect(path, timeout=30, isolation_level=None)
            own.connection.execute("PRAGMA synchronous = FULL")
        own.connection.execute("INSERT INTO plain VALUES (?, 1)", (call,))

    return write


def _plain_postgres(url: str) -> Callable[[str], object]:
    own = local()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_CREATE)

    def write(call: str) -> None:
        if not hasattr(own, "connection"):
            own.connection = psycopg.connect(url, autocommit=True)
        own.connection.execute("INSERT INTO plain VALUES (%s, 1)", (call,))

    return write
