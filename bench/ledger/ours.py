"""Noonmark's side of each measurement."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark import EventTrigger, IntervalTrigger, OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.planner import first_plan
from noonmark.core.schedule import Owner, parse_schedule
from noonmark.operations.schedule_edits import new_schedule
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from noonmark.core.triggers import Trigger

CHUNK = 5_000
OWNER = Owner(tenant="default", user="local")
LATENESS: list[float] = []
RAN: list[None] = []


def nothing() -> None:
    """The work of a burst: as little as one can do and still be counted."""
    RAN.append(None)


def note_lateness(context: object) -> None:
    """The work of a steady load: how late did it start."""
    due_at: datetime = context.due_at  # type: ignore[attr-defined]
    LATENESS.append(time.time() - due_at.timestamp())


def burn(until: threading.Event) -> None:
    """Keep the interpreter busy."""
    number = 1
    while not until.is_set():
        for _ in range(10_000):
            number = number * 3 % 1_000_003


def settled(scheduler: Scheduler, count: int) -> float:
    """Wait until `count` have run and the last of them is settled; returns the time."""
    node = scheduler._runners.current.loop.driver.node  # type: ignore[union-attr]
    limit = time.time() + 300
    while len(RAN) < count or node.load:
        assert time.time() < limit, f"only {len(RAN):,} of {count:,} have run"
        # Each look takes the interpreter from the work, so look seldom until the end is near.
        time.sleep(0.002 if len(RAN) > 0.95 * count else 0.02)
    return time.time()


def noonmark_burst(
    store: str, count: int, stored: int = 0, *, overdue: bool = False, busy: bool = False
) -> dict[str, float]:
    """Occurrences due at one instant: from then until the last is settled, with everything recorded."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler(store, folder)
        keep(scheduler, _once(scheduler, "idle", stored, in_seconds=86_400 * 365))
        lead = 0.5 if overdue else max(1.0, count / 4_000)
        keep(scheduler, _once(scheduler, "nothing", count, in_seconds=lead))
        due = scheduler.due  # type: ignore[attr-defined]
        stop = threading.Event()
        if busy:
            threading.Thread(target=burn, args=(stop,), daemon=True).start()
        if overdue:
            time.sleep(max(0, due - time.time()) + 0.5)
            due = time.time()
        scheduler.start()
        end = settled(scheduler, count)
        stop.set()
        scheduler.stop()
        return {"seconds": end - due, "rate": count / (end - due), "rss_mb": _resident()}


def noonmark_steady(count: int, seconds: int, *, busy: bool = False) -> dict[str, float]:
    """Schedules of one second, offset by a millisecond each, on SQLite: how late each fire starts."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        scheduler.register_function("note", note_lateness)
        begin = (int(time.time()) + 1 + max(1, count // 300)) * SECOND
        end = begin + seconds * SECOND - 1
        triggers = [
            IntervalTrigger(1, start_at=from_micros(begin + offset * SECOND // count), end_at=from_micros(end))
            for offset in range(count)
        ]
        keep(scheduler, _schedules(scheduler, "note", triggers))
        stop = threading.Event()
        if busy:
            threading.Thread(target=burn, args=(stop,), daemon=True).start()
        scheduler.start()
        wanted = count * seconds
        limit = time.time() + seconds + 30
        while len(LATENESS) < wanted and time.time() < limit:
            time.sleep(0.1)
        stop.set()
        scheduler.stop()
        return {"lost": wanted - len(LATENESS), **percentiles(LATENESS)}


def noonmark_journal(seconds: int) -> dict[str, float]:
    """One schedule of one second on SQLite: what it writes to the journal, for each fire."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        scheduler.schedule(nothing, function_name="nothing", trigger=IntervalTrigger(1))
        with scheduler, closing(sqlite3.connect(f"{folder}/bench.db")) as reader:
            [(page,)] = reader.execute("PRAGMA page_size")
            _ran(2)
            # An open read transaction keeps the journal from being overwritten.
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM schedules").fetchone()
            fires, before = len(RAN), _frames(f"{folder}/bench.db-wal", page)
            _ran(fires + seconds)
            fires, after = len(RAN) - fires, _frames(f"{folder}/bench.db-wal", page)
        new = after[len(before) :]
        pages = len(new) / fires
        commits = sum(size > 0 for size in new) / fires
        return {"fires": fires, "commits": commits, "pages": pages, "kb": pages * (page + FRAME_HEAD) / 1_000}


def _ran(count: int) -> None:
    limit = time.time() + count + 60
    while len(RAN) < count:
        assert time.time() < limit, f"only {len(RAN):,} of {count:,} have run"
        time.sleep(0.02)
    time.sleep(0.5)  # halfway between two fires


FRAME_HEAD = 24


def _frames(path: str, page: int) -> list[int]:
    """The frames of a journal: for each the size of the database after a commit, 0 within a transaction."""
    log = Path(path).read_bytes()
    salt = log[16:24]
    heads = (log[at : at + FRAME_HEAD] for at in range(32, len(log), page + FRAME_HEAD))
    return [int.from_bytes(head[4:8]) for head in takewhile(lambda head: head[8:16] == salt, heads)]


def noonmark_stored(stored: int, count: int) -> dict[str, float]:
    """A file with schedules in it: how long to start, and to work off a burst beside them."""
    with tempfile.TemporaryDirectory() as folder:
        made = _scheduler("sqlite", folder)
        keep(made, _once(made, "idle", stored, in_seconds=86_400 * 365))
        keep(made, _once(made, "nothing", count, in_seconds=max(1.5, count / 2_000)))
        due = made.due  # type: ignore[attr-defined]
        made._runtime.store.close()
        started = time.perf_counter()
        scheduler = _scheduler("sqlite", folder)
        scheduler.start()
        start_seconds = time.perf_counter() - started
        end = settled(scheduler, count)
        scheduler.stop()
        claims = _claim_seconds(scheduler, count)
        return {
            "start": start_seconds,
            "rate": count / (end - due),
            "claim": claims,
            "rss_mb": _resident(),
            "file_mb": sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6,
        }


def noonmark_create(count: int) -> dict[str, float]:
    """Schedules created one by one, each durable when the call returns."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        trigger = OnceTrigger(from_micros((int(time.time()) + 86_400) * SECOND))
        assert not scheduler.list_jobs(), "a new store"  # made here, as `start` does for the other
        started = time.perf_counter()
        for _ in range(count):
            scheduler.schedule(nothing, trigger=trigger, function_name="nothing")
        return {"rate": count / (time.perf_counter() - started)}


def noonmark_import(count: int) -> dict[str, float]:
    """The import of the scheduler in a process that has done nothing else; the median of several."""
    clock = "import time; begun = time.perf_counter()"
    script = f"{clock}; from noonmark import Scheduler; print(time.perf_counter() - begun)"
    command = [sys.executable, "-c", script]
    took = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(count)]  # noqa: S603
    return {"seconds": sorted(took)[count // 2]}


def noonmark_emit(store: str, count: int) -> dict[str, float]:
    """From the call of emit to the start of the function that it sets off, one event at a time."""
    started = threading.Event()
    waited: list[float] = []

    def listen(context: object) -> None:
        waited.append(time.perf_counter() - context.payload)  # type: ignore[attr-defined]
        started.set()

    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler(store, folder)
        scheduler.schedule(listen, trigger=EventTrigger("bench"), function_name="listen")
        with scheduler:
            for _ in range(count):
                started.clear()
                scheduler.emit("bench", time.perf_counter())
                assert started.wait(30), "the event set nothing off"
        return percentiles(waited)


def keep(scheduler: Scheduler, plans: Iterator[object]) -> None:
    """Store many schedules at once."""
    chunk = []
    for plan in plans:
        chunk.append(plan)
        if len(chunk) == CHUNK:
            scheduler._store.create(chunk)  # type: ignore[arg-type]
            chunk = []
    if chunk:
        scheduler._store.create(chunk)  # type: ignore[arg-type]


def percentiles(values: list[float]) -> dict[str, float]:
    """The middle and the ends, in seconds."""
    ordered = sorted(values) or [0.0]
    found = {f"p{part}": ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (50, 99)}
    return {**found, "first": ordered[0], "last": ordered[-1]}


def _scheduler(store: str, folder: str) -> Scheduler:
    url = "memory://" if store == "memory" else f"sqlite:///{folder}/bench.db"
    scheduler = Scheduler(url)
    scheduler.register_function("nothing", nothing)
    return scheduler


def _once(scheduler: Scheduler, function: str, count: int, *, in_seconds: float) -> Iterator[object]:
    scheduler.due = round(time.time() + in_seconds, 3)  # type: ignore[attr-defined]
    trigger = OnceTrigger(from_micros(int(scheduler.due * SECOND)))  # type: ignore[attr-defined]
    return _schedules(scheduler, function, (trigger for _ in range(count)))


def _schedules(
    scheduler: Scheduler, target: str | dict[str, str], triggers: Iterator[Trigger] | list[Trigger]
) -> Iterator[object]:
    """Schedules of a target, or of a function by its name."""
    clock, lookahead = scheduler._runtime.clock, scheduler._runtime.timing.lookahead
    now = clock.micros()
    document = {
        "trigger": {"type": "once", "delay_seconds": 60},
        "target": {"target_kind": "function", "function": target} if isinstance(target, str) else target,
    }
    declared = parse_schedule(document, now=from_micros(now))
    for trigger in triggers:
        uid = fresh_id(clock)
        schedule = new_schedule(
            replace(declared, trigger=trigger), uid=uid, schedule_id=f"job_{uid}", owner=OWNER, source="bench", now=now
        )
        yield first_plan(schedule, lookahead=lookahead)


def _claim_seconds(scheduler: Scheduler, count: int) -> float:
    """How long one claim of a thousand takes, in a file that holds all the rest."""
    limit = min(1_000, count // 3)
    keep(scheduler, _once(scheduler, "nothing", 3 * limit, in_seconds=0.001))
    now, best = scheduler._runtime.clock.micros() + SECOND, 1e9
    for _ in range(3):
        started = time.perf_counter()
        claims = scheduler._store.claim("bench", ["function:nothing"], now=now, until=now, limit=limit, lease=SECOND)
        assert claims, "there was nothing to claim"
        best = min(best, (time.perf_counter() - started) / len(claims))
    return best


def _resident() -> float:
    """The largest resident set so far, in MB. What `getrusage` says may be that of the parent, which started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    [line] = [one for one in status.read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
