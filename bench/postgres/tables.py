"""The tables of the PostgreSQL suite: a burst, a steady load, claims beside what is stored, and the raw wake-up."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.postgres.contestants import CONTESTANTS, NOONMARK, PROCRASTINATE
from bench.report import Table, bar, duration
from tests.servers import postgres, redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.postgres.contestants import Contestant
    from bench.settings import Settings

CLAIMS = {
    "raw SQL": "raw_server_claim",
    NOONMARK.name: "noonmark_server_claim",
    PROCRASTINATE.name: "procrastinate_claim",
}
"""Who claims, and the measurement of it."""
RAW = {"raw SQL, claimed ahead": False, "raw SQL, overdue at start": True}
DATABASE = "bench"
NODES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the contestants work; both servers are as they come, which for PostgreSQL means that it syncs."""

    postgres: postgres.Postgres
    redis: redis.RedisServer

    @contextmanager
    def room(self, server: str = "postgres") -> Iterator[str]:
        """The address of an empty database, for one measurement."""
        if server == "redis":
            self.redis.empty()
            yield self.redis.address
            return
        try:
            yield self.postgres.create(DATABASE)
        finally:
            self.postgres.drop(DATABASE)

    def measure(self, name: str, server: str = "postgres", **settings: str | float) -> dict[str, float]:
        """A measurement in a process and a database of its own."""
        with self.room(server) as url:
            return measure(name, url=url, **settings)


def tables(settings: Settings) -> Iterator[Table]:
    """All of them, on the same two servers."""
    with postgres.running() as database, redis.running() as broker:
        servers = Servers(database, broker)
        yield burst_table(settings, _version(servers), _best_bursts(settings, servers))
        yield _nodes(settings, servers)
        yield _steady(settings, servers)
        yield _claim(settings, servers)
        yield _wake(settings, servers)


def burst_table(settings: Settings, version: str, best: dict[str, dict[str, float]]) -> Table:
    """Every contestant beneath the raw loop that had as much left to do when the jobs were due."""
    table = Table(
        f"Burst on servers: {settings.burst:,} jobs due at one instant that do nothing, until the last end is written",
        ("what", "jobs", "jobs/s", "first start", "of raw", "x Procrastinate", "bar"),
        notes=(
            f"Best of {settings.server_rounds}, in turn. PostgreSQL {version} as it comes, with fsync.",
            "raw: the row changes in Noonmark's tables, a thousand to a transaction, one connection; it runs nothing.",
            "Redis, as it comes, does not wait for the disk.",
            f"Bar: {NOONMARK.bar:g} x Procrastinate, and {NOONMARK.share:g} x raw.",
        ),
    )
    theirs = best[PROCRASTINATE.name]["rate"]
    for name, overdue in RAW.items():
        raw = best[name]["rate"]
        table.add(name, f"{settings.burst:,}", f"{raw:,.0f}", "", "", f"{raw / theirs:.1f}", "")
        for each in CONTESTANTS.values():
            if each.claims_ahead != overdue:
                table.add(each.name, *_burst_cells(each, best[each.name], raw, theirs))
    return table


def _burst_cells(each: Contestant, found: dict[str, float], raw: float, theirs: float) -> tuple[str, ...]:
    ran, rate, first = found["ran"], found["rate"], found["first"]
    judged = "" if each.bar is None else bar(met=rate >= each.bar * theirs and rate >= each.share * raw)
    return f"{ran:,}", f"{rate:,.0f}", duration(first), f"{rate / raw:.3f}", f"{rate / theirs:.1f}", judged


def _best_bursts(settings: Settings, servers: Servers) -> dict[str, dict[str, float]]:
    """The fastest burst of each: other programs only ever slow one down."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(settings.server_rounds):
        found = {
            name: servers.measure("raw_server_burst", count=settings.burst, overdue=overdue)
            for name, overdue in RAW.items()
        }
        for each in CONTESTANTS.values():
            count = settings.peer_burst if each.few else settings.burst
            found[each.name] = servers.measure("server_burst", each.server, contestant=each.name, count=count)
        for name, one in found.items():
            best[name] = max(one, best.get(name, one), key=lambda each: each["rate"])
    return best


def _nodes(settings: Settings, servers: Servers) -> Table:
    table = Table(
        f"Several nodes: the same burst of {settings.burst:,}, shared by processes, until the last end is written",
        ("nodes", "occurrences/s", "x one node", "bar"),
        notes=(
            "All of them, and the server, on this machine. By the server's clock. Two must not be slower than one.",
        ),
    )
    best: dict[int, float] = {}
    for _ in range(settings.server_rounds):
        for nodes in NODES:
            figures = servers.measure("noonmark_nodes", count=settings.burst, nodes=nodes)["rate"]
            best[nodes] = max(figures, best.get(nodes, figures))
    for nodes, rate in best.items():
        judged = bar(met=rate >= best[1]) if nodes == 2 else ""
        table.add(str(nodes), f"{rate:,.0f}", f"{rate / best[1]:.2f}", judged)
    return table


def _steady(settings: Settings, servers: Servers) -> Table:
    count, seconds = settings.steady, settings.steady_seconds
    table = Table(
        f"Steady on servers: {count:,} jobs a second, evenly spread, for {seconds} s: lateness",
        ("what", "p50", "p99", "first", "last", "lost"),
        notes=("Lost: not started a few seconds after the last was due.",),
    )
    for each in CONTESTANTS.values():
        figures = servers.measure("server_steady", each.server, contestant=each.name, count=count, seconds=seconds)
        times = [duration(figures[key]) for key in ("p50", "p99", "first", "last")]
        table.add(each.name, *times, f"{figures['lost']:,.0f}")
    return table


def _claim(settings: Settings, servers: Servers) -> Table:
    table = Table(
        "Claim on PostgreSQL: one job that is due, beside jobs that are far ahead",
        ("what", "stored", "each", "of the first"),
        notes=("raw claims many at once, Procrastinate one at a time, as they do when they work.",),
    )
    for name, measurement in CLAIMS.items():
        first = 0.0
        for stored in (settings.stored[0], settings.stored[-1]):
            claim = servers.measure(measurement, stored=stored, count=settings.stored[0])["claim"]
            first = first or claim
            table.add(name, f"{stored:,}", duration(claim), f"{first / claim:.2f}")
    return table


def _wake(settings: Settings, servers: Servers) -> Table:
    table = Table(
        f"Wake-up on PostgreSQL: from the call of NOTIFY to the listener, {settings.wakes:,} times, one after another",
        ("what", "p50", "p99", "last"),
    )
    for name, writes in (("NOTIFY alone", False), ("with a row to write", True)):
        figures = servers.measure("raw_notify", count=settings.wakes, writes=writes)
        table.add(name, *(duration(figures[key]) for key in ("p50", "p99", "last")))
    figures = servers.measure("noonmark_wake", count=settings.wakes)
    what = "Noonmark: from the call that declares a job, due at once, to its start on another node"
    table.add(what, *(duration(figures[key]) for key in ("p50", "p99", "last")))
    figures = servers.measure("emit_to_start", count=settings.wakes)
    what = "Noonmark: from the call of emit to the start of the function, on the same node"
    table.add(what, *(duration(figures[key]) for key in ("p50", "p99", "last")))
    return table


def _version(servers: Servers) -> str:
    return servers.postgres.sql("SHOW server_version").split()[0]
