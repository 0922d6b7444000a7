"""The tables of workflows: steps a second beside DBOS on one PostgreSQL server, and many runs at once on SQLite."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.postgres.tables import DATABASE
from bench.report import Table, bar, duration
from tests.servers import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

LENGTH = 10
"""Steps of each of many runs."""
ONE_CHAIN, SIDE_BY_SIDE = 1, 5
"""How many times as fast as DBOS: in one chain, both wait for a commit after each step."""
TURNS = 3
"""How often one chain is measured in a round, since it ends within a second."""


def tables(settings: Settings) -> Iterator[Table]:
    """All of them."""
    with postgres.running() as server:
        yield beside_dbos(settings, _rates(settings, server))
    yield _many_runs(settings)


def measurements(settings: Settings) -> dict[str, tuple[str, dict[str, int], float | None]]:
    """What is measured of each contestant, with which settings, and how many times as fast as DBOS it has to be."""
    chains = {"chains": settings.chains, "steps": LENGTH}
    return {
        f"one chain of {settings.chain:,} steps": ("chains", {"chains": 1, "steps": settings.chain}, ONE_CHAIN),
        f"{settings.chains:,} chains of {LENGTH} steps, due at one instant": ("chains", chains, SIDE_BY_SIDE),
        "the same, started by one call after another": ("called", chains, None),
        f"one list of {settings.fan_out:,} steps, side by side": ("fan_out", {"count": settings.fan_out}, SIDE_BY_SIDE),
    }


def beside_dbos(settings: Settings, rates: dict[str, tuple[list[float], list[float]]]) -> Table:
    """The rates of Noonmark and DBOS in each round, as medians."""
    table = Table(
        "Workflows: steps that do nothing, on one PostgreSQL server, until the last end is written",
        ("what", "Noonmark, steps/s", "DBOS, steps/s", "x DBOS", "bar"),
        notes=(
            f"Medians of {settings.server_rounds} rounds, in turn, with fsync; of one chain, {TURNS} in each round.",
            "Every step is stored before the next one runs.",
            "Runs that begin at one instant are stored beforehand, by both.",
            f"Bar: {ONE_CHAIN} x DBOS in one chain, {SIDE_BY_SIDE} x side by side.",
        ),
    )
    for what, (_, _, least) in measurements(settings).items():
        ours, theirs = map(median, rates[what])
        judged = "" if least is None else bar(met=ours >= least * theirs)
        table.add(what, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}", judged)
    return table


def _rates(settings: Settings, server: postgres.Postgres) -> dict[str, tuple[list[float], list[float]]]:
    measured = measurements(settings)
    rates: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in measured}
    for _ in range(settings.server_rounds):
        for what, (name, given, _) in measured.items():
            for _ in range(TURNS if given.get("chains") == 1 else 1):
                for contestant, found in zip(("noonmark", "dbos"), rates[what], strict=True):
                    found.append(_measured(server, f"{contestant}_{name}", given)["rate"])
    return rates


def _measured(server: postgres.Postgres, name: str, given: dict[str, int]) -> dict[str, float]:
    """A measurement in a process and a database of its own."""
    url = server.create(DATABASE)
    try:
        return measure(name, url=url, **given)
    finally:
        server.drop(DATABASE)


def _many_runs(settings: Settings) -> Table:
    table = Table(
        f"Many workflow runs: {settings.workflow_runs:,} of {LENGTH} steps, due at one instant, on SQLite",
        ("until the last end", "steps/s", "first step late, p50", "p99", "memory"),
        notes=(f"The run with the median time, of {settings.server_rounds}.",),
    )
    found = sorted(
        (
            measure("noonmark_many_runs", runs=settings.workflow_runs, steps=LENGTH)
            for _ in range(settings.server_rounds)
        ),
        key=lambda one: one["seconds"],
    )[settings.server_rounds // 2]
    times = [duration(found[key]) for key in ("p50", "p99")]
    table.add(duration(found["seconds"]), f"{found['rate']:,.0f}", *times, f"{found['rss_mb']:.0f} MB")
    return table
