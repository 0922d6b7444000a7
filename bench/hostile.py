"""Hostile input: a megabyte of each shape through every parser. It must end soon, in a value or in our own error."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.caches import forget_expressions
from bench.hostile_inputs import EXPRESSIONS, SCHEDULES, TRIGGERS, ZONES
from bench.report import Table, bar, duration
from bench.timing import garbage_kept, timed
from noonmark import CronTrigger, NoonmarkError, parse_schedule, parse_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.hostile_inputs import Inputs
    from bench.settings import Settings

    Parse = Callable[[Any], object]

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MAX_SECONDS = 0.250
MAX_ROUNDS = 2
FOREIGN = "! "
"""Marks an error that is not Noonmark's own."""

PARSERS: dict[str, tuple[Parse, Inputs]] = {
    "CronTrigger": (CronTrigger, EXPRESSIONS),
    "CronTrigger timezone": (partial(CronTrigger, "0 9 * * *"), ZONES),
    "parse_trigger": (partial(parse_trigger, now=NOW), TRIGGERS),
    "parse_schedule": (partial(parse_schedule, now=NOW), SCHEDULES),
}


def tables(settings: Settings) -> Iterator[Table]:
    """One table; once it is shown, an error that is not our own ends the run."""
    table = Table(
        f"Hostile input: {settings.hostile_size:,} characters or entries each, unless another size is given",
        ("parser", "input", "time", "ends in", "bar"),
        notes=(f"Bar: {duration(MAX_SECONDS)}, and a value or an error of Noonmark's own.",),
    )
    rounds = min(settings.rounds, MAX_ROUNDS)
    for parser, (parse, inputs) in PARSERS.items():
        for name, build in inputs.items():
            seconds, outcome = _attack(parse, partial(build, settings.hostile_size), rounds)
            met = seconds <= MAX_SECONDS and not outcome.startswith(FOREIGN)
            table.add(parser, name, duration(seconds), outcome, bar(met=met))
    yield table
    foreign = [row for row in table.rows if row[-2].startswith(FOREIGN)]
    assert not foreign, f"not an error of Noonmark's own: {foreign}"


def _attack(parse: Parse, build: Callable[[], object], rounds: int) -> tuple[float, str]:
    """The best time and the outcome; each round makes its own input, so that none profits from another."""
    outcomes = []
    for _ in range(rounds):
        given = build()
        forget_expressions()
        with garbage_kept():
            outcomes.append(timed(partial(_outcome, parse, given)))
    return min(outcomes)


def _outcome(parse: Parse, given: object) -> str:
    """What came out: the kind of value, or the code of our error."""
    try:
        return type(parse(given)).__name__
    except NoonmarkError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 - whatever escapes is what we are after
        return f"{FOREIGN}{type(error).__name__}"
