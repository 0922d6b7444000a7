"""The table of the engine: occurrences a second through it, beside the same work started by Temporal Schedules."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.report import Table
from tests.servers import temporal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

CONTESTANTS = {
    "Noonmark through the engine": "noonmark_engine",
    "Temporal Schedules": "temporal_schedules",
}


def tables(settings: Settings) -> Iterator[Table]:
    """The one there is."""
    with temporal.running() as server:
        rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
        for _ in range(settings.server_rounds):
            for name, measurement in CONTESTANTS.items():
                figures = measure(measurement, address=server.address, count=settings.engine_runs)
                rates[name].append(figures["rate"])
    yield beside_schedules(settings, rates)


def beside_schedules(settings: Settings, rates: dict[str, list[float]]) -> Table:
    """The rates of both in each round, as medians."""
    table = Table(
        f"Engine: {settings.engine_runs:,} occurrences that are due at one instant, until the last has ended",
        ("what", "occurrences/s", "x Temporal Schedules"),
        notes=(
            f"Medians of {settings.server_rounds} rounds, in turn, on one Temporal server with its state in a file.",
            "Both run a workflow with an activity that does nothing, on one worker. Noonmark also writes the end to a",
            "ledger in a SQLite file, where the occurrences were planned, claimed and admitted.",
        ),
    )
    theirs = median(rates["Temporal Schedules"])
    for name, found in rates.items():
        table.add(name, f"{median(found):,.1f}", f"{median(found) / theirs:.2f}")
    return table
