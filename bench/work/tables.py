"""The tables of work beyond functions: calls beside a bare loop, and events beside what is stored."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.report import Table, bar, duration
from bench.work import receiver
from bench.work.calls import AT_ONCE
from bench.work.events import PREFIX, RANGE, VALUE, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

SHARE, FLAT = 0.8, 0.8
RATE, TO_START = 500, 0.004
"""Events a second that ranges or prefixes tell apart, and how long one takes to start a function, in seconds."""
TYPE = 100
"""Schedules that wait for one type of events, where there are many types."""


def calls(settings: Settings) -> Iterator[Table]:
    """Requests to a server on this machine."""
    count = settings.calls
    table = Table(
        f"Calls: {count:,} requests to a server on this machine, {AT_ONCE} at a time",
        ("what", "calls/s", "of bare", "bar"),
        notes=(
            f"Median of {settings.server_rounds}, in turn. Bare: a loop with the same library that keeps nothing.",
            "Schedules: due at one instant, from then until the last answer is written down.",
            f"Bar: {SHARE} x bare, on SQLite.",
        ),
    )
    rounds: list[dict[str, float]] = []
    with receiver.answering() as port:
        for _ in range(settings.server_rounds):
            found = {
                "bare loop": measure("calls_bare", port=port, count=count),
                "the HTTP target alone": measure("calls_of_target", port=port, count=count),
                "schedules, SQLite": measure("calls_of_schedules", port=port, count=count),
            }
            rounds.append({name: one["rate"] for name, one in found.items()})
    rates = {name: median(one[name] for one in rounds) for name in rounds[0]}
    bare = rates["bare loop"]
    for name, rate in rates.items():
        share = rate / bare
        judged = bar(met=share >= SHARE) if name == "schedules, SQLite" else ""
        table.add(name, f"{rate:,.0f}", "" if name == "bare loop" else f"{share:.2f}", judged)
    yield table


def events(settings: Settings) -> Iterator[Table]:
    """Events beside few and many schedules that wait for some."""
    many, emits = settings.triggers, settings.emits
    table = Table(
        f"Events: {emits:,} emitted one by one, then matched and run, each by one schedule; on SQLite",
        ("stored", "looked at, an event", "emitted/s", "matched and run/s", "emit to start, p50", "p99", "bar"),
        notes=(
            f"Best of {settings.server_rounds}. Filters distinguish those of one type.",
            "emit to start: afterwards, one at a time, for another type.",
            f"Bar: what waits for other types, or other values, costs nothing: >= {FLAT} x the first row of its kind;",
            f"by a range or prefix >= {RATE}/s; emit to start, p50, <= {duration(TO_START)}.",
        ),
    )
    ten = many // 10
    rows = {
        f"{TYPE} of other types": (TYPE, 0, VALUE),
        f"{many:,} of other types": (many, 0, VALUE),
        f"{emits:,} of one type, by a value": (emits, emits, VALUE),
        f"{many:,}, {TYPE} of each type, by a value": (many, TYPE, VALUE),
        f"{ten:,} of one type, by a value": (ten, ten, VALUE),
        f"{ten:,} of one type, by a range": (ten, ten, RANGE),
        f"{ten:,} of one type, by a prefix": (ten, ten, PREFIX),
    }
    firsts: dict[bool, float] = {}
    for name, (stored, each, by) in rows.items():
        figures = measure(
            "events_matched",
            stored=stored,
            each=each,
            by=by,
            emits=emits,
            singles=emits // 5,
            rounds=settings.server_rounds,
        )
        is_first = bool(each) not in firsts
        first = firsts.setdefault(bool(each), figures["rate"])
        looked_at = f"{shown(each, by, emits) if each else 1:.3g}"
        cells = looked_at, f"{figures['emitted']:,.0f}", f"{figures['rate']:,.0f}"
        least = 0.0 if is_first else FLAT * first if by == VALUE else RATE
        judged = bar(met=figures["rate"] >= least and figures["p50"] <= TO_START)
        table.add(name, *cells, duration(figures["p50"]), duration(figures["p99"]), judged)
    yield table
