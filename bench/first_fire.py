"""From text to the first fire: what declaring one schedule costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from bench.caches import PARSED, forget_expressions
from bench.contestants import APSCHEDULER, CRONITER, CRONSIM, NEW_YORK, NOONMARK
from bench.report import Table, bar
from bench.timing import best_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contestants import Contestant
    from bench.settings import Settings

    Prepare = Callable[[datetime], Callable[[], list[datetime]]]

EXPRESSION = "0 9 * * 1-5"
MONDAY = datetime(2026, 6, 1, 0, 17, 42, tzinfo=UTC)
STARTS = tuple(MONDAY + timedelta(days=day, hours=hour) for day in range(7) for hour in (2, 8, 14, 20))
OTHERS = (CRONSIM, CRONITER, APSCHEDULER)
MIN_RATIO = 2
ROUNDS, TURNS = 3, 3
"""A first fire is soon over, so it takes more rounds to meet a quiet moment. In each round a contestant goes through
the week several times, for at first the processor is still warm with the code of the one before."""

FORGET, KEEP = "Noonmark", "with cache"


def tables(settings: Settings) -> Iterator[Table]:
    """One table: the averages over a week of starts."""
    others = tuple(each.name for each in OTHERS)
    table = Table(
        f"Parse {EXPRESSION} and find its first fire: microseconds, average over {len(STARTS)} starts in a week",
        ("zone", FORGET, KEEP, *others, f"{FORGET} / cronsim", f"{KEEP} / cronsim", "bar"),
        notes=(
            f"Bar: {FORGET} {MIN_RATIO} x cronsim in {NEW_YORK}, nothing cached: before each parse, cache_clear() is",
            f"     called on {' and '.join(PARSED)}.",
            f"{KEEP}: the same expression was parsed before, as when many schedules share one.",
            "The zone's clock changes are known by then, as zoneinfo's data is to the others.",
        ),
    )
    for zone in ("UTC", NEW_YORK):
        seconds = _averages(zone, settings.rounds * ROUNDS)
        ratio = seconds[CRONSIM.name] / seconds[FORGET]
        table.add(
            zone,
            *(f"{seconds[name] * 1e6:.1f}" for name in (FORGET, KEEP, *others)),
            f"{ratio:.2f}",
            f"{seconds[CRONSIM.name] / seconds[KEEP]:.2f}",
            bar(met=ratio >= MIN_RATIO) if zone == NEW_YORK else "",
        )
    yield table


def _averages(zone: str, rounds: int) -> dict[str, float]:
    """The seconds each contestant takes, the best for every start, averaged over the starts."""
    entries: dict[str, Prepare] = {FORGET: partial(_anew, NOONMARK, zone), KEEP: partial(_first, NOONMARK, zone)}
    entries |= {each.name: partial(_first, each, zone) for each in OTHERS}
    for start in STARTS:
        wanted = NOONMARK.walk(EXPRESSION, zone, start)(1)
        for name, prepare in entries.items():
            assert prepare(start)() == wanted, f"{name} disagrees on the first fire after {start} in {zone}"
    best = best_of(
        rounds,
        {
            (name, start, turn): partial(prepare, start)
            for name, prepare in entries.items()
            for turn in range(TURNS)
            for start in STARTS
        },
    )
    return {
        name: sum(min(best[name, start, turn] for turn in range(TURNS)) for start in STARTS) / len(STARTS)
        for name in entries
    }


def _first(contestant: Contestant, zone: str, start: datetime) -> Callable[[], list[datetime]]:
    mine = contestant.starting(zone, start)
    return lambda: contestant.parse(EXPRESSION, zone, mine)(1)


def _anew(contestant: Contestant, zone: str, start: datetime) -> Callable[[], list[datetime]]:
    forget_expressions()
    return _first(contestant, zone, start)
