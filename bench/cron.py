"""Fires per second of parsed cron expressions, warm and cold."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.contestants import APSCHEDULER, CONTESTANTS, CRONSIM, NEW_YORK, NOONMARK, NOONMARK_FIRES
from bench.report import Table, bar, duration
from bench.timing import best_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contestants import Contestant
    from bench.settings import Settings

EXPRESSIONS = ("*/5 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 1 * *", "0 0 29 2 *")
BARRED = EXPRESSIONS[:4]
MONTHLY = "0 0 1 * *"
START = datetime(2026, 3, 7, 12, 34, 56, tzinfo=UTC)
"""The day before New York's clocks go forward, so that every walk there meets a change; no expression fires at it."""
QUIET_START, QUIET_END = datetime(2026, 3, 8, 12, 34, 56, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
"""Between two changes of New York's clocks."""
MIN_RATE = 100_000
MIN_RATIO = 5
COLD = (NOONMARK, CRONSIM)


def tables(settings: Settings) -> Iterator[Table]:
    """Warm, then cold."""
    for zone in ("UTC", NEW_YORK):
        for expression in EXPRESSIONS:
            _agree(expression, zone, settings.fires)
    yield _warm(settings)
    yield _cold(settings)


def _agree(expression: str, zone: str, count: int) -> None:
    """Every contestant must name the same instants, or its speed means nothing."""
    for start, end in ((START, datetime.max.replace(tzinfo=UTC)), (QUIET_START, QUIET_END)):
        wanted = [fire for fire in NOONMARK.walk(expression, zone, start)(count) if fire < end]
        for contestant in CONTESTANTS:
            if zone != "UTC" and start is START and not contestant.debian:
                continue
            found = [fire for fire in contestant.walk(expression, zone, start)(count) if fire < end]
            assert found == wanted, f"{contestant.name} disagrees on {expression} in {zone}"


def _warm(settings: Settings) -> Table:
    ours, all_at_once = f"{NOONMARK.name} / cronsim", f"{NOONMARK_FIRES.name} / cronsim"
    table = Table(
        "Fires per second, parsed once",
        ("zone", "expression", *(contestant.name for contestant in CONTESTANTS), ours, all_at_once, "bar"),
        notes=(
            f"Bar: next_after {MIN_RATE:,} fires/s and {MIN_RATIO} x cronsim, in {NEW_YORK}, but for 29 February.",
            "next_after and fires() are Noonmark, which answers in UTC; the others answer in the zone.",
            f"All agree in UTC, all but {APSCHEDULER.name} in {NEW_YORK}, and that one between two clock changes.",
        ),
    )
    for zone in ("UTC", NEW_YORK):
        for expression in EXPRESSIONS:
            seconds = best_of(
                settings.rounds,
                {each: partial(_walk, each, expression, zone, settings.fires) for each in CONTESTANTS},
            )
            rates = [settings.fires / seconds[each] for each in CONTESTANTS]
            ratio = seconds[CRONSIM] / seconds[NOONMARK]
            barred = zone == NEW_YORK and expression in BARRED
            table.add(
                zone,
                expression,
                *(f"{rate:,.0f}" for rate in rates),
                f"{ratio:.1f}",
                f"{seconds[CRONSIM] / seconds[NOONMARK_FIRES]:.1f}",
                bar(met=rates[0] >= MIN_RATE and ratio >= MIN_RATIO) if barred else "",
            )
    return table


def _walk(contestant: Contestant, expression: str, zone: str, count: int) -> Callable[[], object]:
    return partial(contestant.walk(expression, zone, START), count)


def _cold(settings: Settings) -> Table:
    table = Table(
        f"Cold: {MONTHLY} in {NEW_YORK}, parsed and asked for {settings.cold_fires:,} fires in a new process",
        ("contestant", "time", "fires/s", "x cronsim"),
        notes=("The zone's clock changes are not known yet; imports are not counted.",),
    )
    times: dict[Contestant, list[float]] = {each: [] for each in COLD}
    for _ in range(settings.cold_rounds):
        for contestant in COLD:
            times[contestant].append(_in_new_process(contestant, settings.cold_fires))
    for contestant in COLD:
        seconds = min(times[contestant])
        rate = f"{settings.cold_fires / seconds:,.0f}"
        table.add(contestant.name, duration(seconds), rate, f"{min(times[CRONSIM]) / seconds:.1f}")
    return table


def _in_new_process(contestant: Contestant, count: int) -> float:
    command = [sys.executable, "-m", "bench.cold", contestant.name, str(count)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)  # noqa: S603 - our own module
    return float(done.stdout)
