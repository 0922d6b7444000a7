"""The tables of the ledger: bursts, a steady load, many stored schedules, and what a program feels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ledger.child import measure, measure_best, measure_ratio
from bench.report import Table, bar, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

RAW_SHARE, OVERDUE_SHARE, MEMORY_SHARE, TIMES_APSCHEDULER, TIMES_CREATE = 0.7, 0.4, 0.8, 10, 2
P50, P99, P99_BESIDE_A_THREAD = 0.001, 0.010, 0.150
JOURNAL_KB = 40
FLAT, MAX_MB, MAX_START, MAX_IMPORT, MAX_EMIT = 0.8, 250, 3.0, 0.15, 0.004


def bursts(settings: Settings) -> Iterator[Table]:
    """Many occurrences due at one instant."""
    count, few = settings.burst, settings.burst // 10
    table = Table(
        f"Burst: {count:,} occurrences due at one instant, a function that does nothing, until the last is settled",
        ("what", "Noonmark/s", "raw SQLite/s", "APScheduler/s", "of raw", "x APScheduler", "bar"),
        notes=(
            "raw: the same row changes, a thousand to a transaction, in a plain loop. synchronous=FULL throughout.",
            f"Medians of {settings.ledger_rounds} rounds, in which both sides of a ratio take turns.",
            f"APScheduler 3 on SQLite with {few:,} jobs; it records no phases, runs or results.",
            f"Bars: {RAW_SHARE} x raw and {TIMES_APSCHEDULER} x APScheduler; when overdue, {OVERDUE_SHARE} x raw;",
            f"in memory, {MEMORY_SHARE} x APScheduler.",
        ),
    )
    rounds = settings.ledger_rounds
    theirs = measure_best(rounds, "apscheduler_burst", store="sqlite", count=few)["rate"]
    for what, overdue, least, times in (
        ("SQLite", False, RAW_SHARE, TIMES_APSCHEDULER),
        ("SQLite, overdue at start", True, OVERDUE_SHARE, 0),
    ):
        ours, raw, share = measure_ratio(
            rounds,
            ("noonmark_burst", {"store": "sqlite", "count": count, "overdue": overdue}),
            ("raw_burst", {"count": count, "overdue": overdue}),
        )
        met = share >= least and ours >= times * theirs
        table.add(what, *map(_rate, (ours, raw, theirs)), f"{share:.2f}", f"{ours / theirs:.1f}", bar(met=met))
    in_memory: dict[str, str | float] = {"store": "memory", "count": count}
    ours, theirs, share = measure_ratio(rounds, ("noonmark_burst", in_memory), ("apscheduler_burst", in_memory))
    table.add("memory", _rate(ours), "", _rate(theirs), "", f"{share:.2f}", bar(met=share >= MEMORY_SHARE))
    busy = measure("noonmark_burst", store="sqlite", count=count, busy=True)["rate"]
    table.add("SQLite, beside a CPU-bound thread", _rate(busy), "", "", "", "", "")
    yield table


def embedded(settings: Settings) -> Iterator[Table]:
    """What a program feels: the import, a call of schedule, the way of an event."""
    yield _creates(settings)
    table = Table(
        "Import and events: what a program waits for",
        ("what", "p50", "p99", "bar"),
        notes=(
            "The import, in a process that has done nothing else.",
            "emit: from the call to the start of the function, one at a time, the event durable in between.",
            f"Bars: the import <= {duration(MAX_IMPORT)}; emit on SQLite, p50 <= {duration(MAX_EMIT)}.",
        ),
    )
    import_seconds = measure("noonmark_import", count=settings.rounds)["seconds"]
    table.add("from noonmark import Scheduler", _time(import_seconds), "", bar(met=import_seconds <= MAX_IMPORT))
    for store, judged in (("SQLite", True), ("memory", False)):
        figures = measure("noonmark_emit", store=store.lower(), count=settings.creates // 10)
        met = bar(met=figures["p50"] <= MAX_EMIT) if judged else ""
        table.add(f"emit to start, {store}", _time(figures["p50"]), _time(figures["p99"]), met)
    yield table


def steady(settings: Settings) -> Iterator[Table]:
    """A steady load, and how late each fire starts."""
    count, seconds = settings.steady, settings.steady_seconds
    table = Table(
        f"Steady: {count:,} schedules of 1 s on SQLite, offset by {1000 / count:g} ms each, for {seconds} s: lateness",
        ("what", "p50", "p99", "first", "last", "lost", "bar"),
        notes=(
            f"Bar: p50 <= {duration(P50)}, p99 <= {duration(P99)}, none before its time, none lost;",
            f"beside a CPU-bound thread p99 <= {duration(P99_BESIDE_A_THREAD)}.",
        ),
    )
    contests = (
        ("Noonmark", "noonmark_steady", {}, (P50, P99)),
        ("Noonmark, beside a CPU-bound thread", "noonmark_steady", {"busy": True}, (1.0, P99_BESIDE_A_THREAD)),
        ("APScheduler 3", "apscheduler_steady", {}, None),
    )
    for what, name, more, most in contests:
        figures = measure(name, count=count, seconds=seconds, **more)
        times = [_time(figures[key]) for key in ("p50", "p99", "first", "last")]
        is_exact = figures["first"] >= 0 and figures["lost"] == 0
        judged = "" if most is None else bar(met=is_exact and figures["p50"] <= most[0] and figures["p99"] <= most[1])
        table.add(what, *times, f"{figures['lost']:,.0f}", judged)
    yield table
    yield _journal(settings)


def _journal(settings: Settings) -> Table:
    table = Table(
        "Journal: what a fire of one schedule of 1 s writes on SQLite, synchronous=FULL",
        ("fires", "commits, a fire", "pages", "KB", "bar"),
        notes=(f"With heartbeats and renewals of leases. Bar: <= {JOURNAL_KB} KB.",),
    )
    measured = measure("noonmark_journal", seconds=settings.steady_seconds)
    figures = [f"{measured[key]:.1f}" for key in ("commits", "pages", "kb")]
    table.add(f"{measured['fires']:.0f}", *figures, bar(met=measured["kb"] <= JOURNAL_KB))
    return table


def stored(settings: Settings) -> Iterator[Table]:
    """The cost of what is stored but not due."""
    table = Table(
        f"Stored: schedules in the file, and a burst of {settings.burst:,} beside them",
        ("stored", "start", "burst/s", "of the first", "claim, each", "of the first", "memory MB", "file MB", "bar"),
        notes=(
            f"Bar: burst and claim within 20 % of the first line, start <= {MAX_START:g} s, memory <= {MAX_MB} MB.",
            "Overdue: as many as the second line, all of them due while no node ran.",
        ),
    )
    first: dict[str, float] = {}
    for count in settings.stored:
        figures = measure("noonmark_stored", stored=count, count=settings.burst)
        first = first or figures
        rate, claim = figures["rate"] / first["rate"], first["claim"] / figures["claim"]
        met = min(rate, claim) >= FLAT and figures["start"] <= MAX_START and figures["rss_mb"] <= MAX_MB
        table.add(
            f"{count:,}",
            duration(figures["start"]),
            _rate(figures["rate"]),
            f"{rate:.2f}",
            duration(figures["claim"]),
            f"{claim:.2f}",
            f"{figures['rss_mb']:.0f}",
            f"{figures['file_mb']:.0f}",
            bar(met=met),
        )
    overdue = settings.stored[1]
    figures = measure("noonmark_burst", store="sqlite", count=overdue, overdue=True)
    table.add(f"{overdue:,} overdue", "", _rate(figures["rate"]), "", "", "", f"{figures['rss_mb']:.0f}", "", "")
    yield table


def _creates(settings: Settings) -> Table:
    count, rounds = settings.creates, settings.ledger_rounds
    ours, theirs, times = measure_ratio(
        rounds, ("noonmark_create", {"count": count}), ("apscheduler_create", {"count": count})
    )
    table = Table(
        f"Create: {count:,} schedules one by one on SQLite, each durable when the call returns",
        ("Noonmark/s", "APScheduler/s", "x APScheduler", "bar"),
        notes=(
            f"Medians of {rounds} rounds, in turn. Bar: {TIMES_CREATE} x.",
            "APScheduler's job store has SQLite's default journal, with four syncs a create; ours has one.",
        ),
    )
    table.add(_rate(ours), _rate(theirs), f"{times:.1f}", bar(met=times >= TIMES_CREATE))
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.0f}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
