"""The tables of work beyond functions: calls beside a bare loop, and events beside what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ledger.child import measure
from bench.report import Table, bar, duration
from bench.work import receiver
from bench.work.calls import AT_ONCE
from bench.work.events import RANGE, VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

SHARE, FLAT = 0.8, 0.8
TYPE = 100
"""Schedules that wait for one type of events, where there are many types."""


def calls(settings: Settings) -> Iterator[Table]:
    """Requests to a server on this machine."""
    count = settings.calls
    table = Table(
        f"Calls: {count:,} requests to a server on this machine, {AT_ONCE} at a time",
        ("what", "calls/s", "of bare", "bar"),
        notes=(
            f"Best of {settings.server_rounds}, in turn. Bare: a loop with the same library that keeps nothing.",
            "Schedules: due at one instant, from then until the last answer is written down.",
            f"Bar: {SHARE} x bare, on SQLite.",
        ),
    )
    best: dict[str, float] = {}
    with receiver.answering() as port:
        for _ in range(settings.server_rounds):
            found = {
                "bare loop": measure("calls_bare", port=port, count=count),
                "the HTTP target alone": measure("calls_of_target", port=port, count=count),
                "schedules, SQLite": measure("calls_of_schedules", port=port, count=count),
            }
            best = {name: max(one["rate"], best.get(name, 0)) for name, one in found.items()}
    bare = best["bare loop"]
    for name, rate in best.items():
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
            f"Best of {settings.server_rounds}; of the last, seen once. Those of one type are told apart by a filter.",
            "emit to start: afterwards, one at a time, for another type.",
            f"Bar: what waits for other types, or other values, costs nothing: >= {FLAT} x the first row of its kind.",
        ),
    )
    rows = {
        f"{TYPE} of other types": (TYPE, 0, VALUE, emits),
        f"{many:,} of other types": (many, 0, VALUE, emits),
        f"{emits:,} of one type, by a value": (emits, emits, VALUE, emits),
        f"{many:,}, {TYPE} of each type, by a value": (many, TYPE, VALUE, emits),
        f"{many // 10:,} of one type, by a value": (many // 10, many // 10, VALUE, emits),
        f"{many // 10:,} of one type, by a range": (many // 10, many // 10, RANGE, 4),
    }
    firsts: dict[bool, float] = {}
    for name, (stored, each, by, count) in rows.items():
        rounds = 1 if by == RANGE else settings.server_rounds
        found = measure(
            "events_matched", stored=stored, each=each, by=by, emits=count, singles=settings.emits // 5, rounds=rounds
        )
        is_first = bool(each) not in firsts
        first = firsts.setdefault(bool(each), found["rate"])
        cells = f"{each if by == RANGE else 1:,}", f"{found['emitted']:,.0f}", _rate(found["rate"])
        judged = "" if by == RANGE or is_first else bar(met=found["rate"] >= FLAT * first)
        table.add(name, *cells, duration(found["p50"]), duration(found["p99"]), judged)
    yield table


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
