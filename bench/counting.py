"""Long stretches are counted, not enumerated: a year of seconds, a century, and the decision after a year away."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from bench.caches import forget_zones
from bench.contestants import NEW_YORK
from bench.report import Table, bar, duration
from bench.timing import best_of
from noonmark import CronTrigger
from noonmark.core.instants import SECOND, to_micros
from noonmark.core.policies.catch_up import CatchUp, decide
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.settings import Settings

EVERY_SECOND = "* * * * * *"
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
A_YEAR_ON = datetime(2027, 1, 1, tzinfo=UTC)
A_CENTURY_ON = datetime(2126, 1, 1, tzinfo=UTC)
SECONDS_OF_A_YEAR = 365 * 86_400
SECONDS_OF_A_CENTURY = 36_524 * 86_400
COUNTS = (
    ("a year", EVERY_SECOND, A_YEAR_ON, SECONDS_OF_A_YEAR),
    ("a century", EVERY_SECOND, A_CENTURY_ON, SECONDS_OF_A_CENTURY),
    ("a century", "0 9 * * 1-5", A_CENTURY_ON, 26_088),
)
POLICIES = (
    Skip(),
    CatchUpOne(),
    CatchUpAll(),
    CatchUpWithin(window=86_400 * SECOND),
    Spread(),
)
MAX_SECONDS = 0.010


def tables(settings: Settings) -> Iterator[Table]:
    """Counts, then decisions."""
    yield _counts(settings)
    yield _decisions(settings)


def _counts(settings: Settings) -> Table:
    table = Table(
        f"count_between in {NEW_YORK}",
        ("stretch", "expression", "fires", "first time", "again", "bar"),
        notes=(
            f"Bar: a year within {duration(MAX_SECONDS)}, the first time.",
            "The first time, the zone's clock changes are not known yet.",
        ),
    )
    for stretch, expression, until, wanted in COUNTS:
        assert _count(expression, until)() == wanted, f"{stretch} of {expression} is {wanted:,}"
        best = best_of(
            settings.rounds,
            {"cold": partial(_count_anew, expression, until), "warm": partial(_count, expression, until)},
        )
        met = bar(met=best["cold"] <= MAX_SECONDS) if until == A_YEAR_ON else ""
        table.add(stretch, expression, f"{wanted:,}", duration(best["cold"]), duration(best["warm"]), met)
    return table


def _count(expression: str, until: datetime) -> Callable[[], int]:
    trigger = CronTrigger(expression, NEW_YORK)
    return lambda: trigger.count_between(JANUARY, until)


def _count_anew(expression: str, until: datetime) -> Callable[[], int]:
    forget_zones()
    return _count(expression, until)


def _decisions(settings: Settings) -> Table:
    table = Table(
        f"Catching up after a year away: {EVERY_SECOND} in {NEW_YORK}",
        ("policy", "due", "run", "missed", "time", "bar"),
        notes=(f"Bar: {duration(MAX_SECONDS)}.",),
    )
    trigger = CronTrigger(EVERY_SECOND, NEW_YORK)
    for policy in POLICIES:
        ask = partial(decide, policy, trigger, uid="bench", after=to_micros(JANUARY), now=to_micros(A_YEAR_ON))
        decision: CatchUp = ask()
        missed = decision.missed.count if decision.missed else 0
        due = len(decision.starts) + missed
        assert due == SECONDS_OF_A_YEAR, f"{policy.kind} accounts for {due:,} fires"
        seconds = best_of(settings.rounds, {"ask": lambda ask=ask: ask})["ask"]
        numbers = (due, len(decision.starts), missed)
        table.add(
            str(policy.kind),
            *(f"{number:,}" for number in numbers),
            duration(seconds),
            bar(met=seconds <= MAX_SECONDS),
        )
    return table
