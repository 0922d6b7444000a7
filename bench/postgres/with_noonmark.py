"""Noonmark on PostgreSQL: one node or several, a steady load, claims beside what is stored, and the wake-up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ledger import ours
from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros

if TYPE_CHECKING:
    from bench.postgres.agenda import Load, Outcome
    from noonmark.stores.postgres import PostgresStore

YEAR = 365 * 86_400
STORED = """
INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS one, generate_series(1, {count}) AS n WHERE {whose}
"""
COPIED = {
    "schedules": {"key": "{last} + n", "schedule_id": "'idle_' || n"},
    "schedule_states": {"schedule": "{last} + n", "uid": "'idle_' || n"},
    "occurrences": {"key": "{last} + n", "id": "'idle_' || n", "schedule": "{last} + n"},
}
ROOT = Path(__file__).parents[2]
NODE = """
import sys, threading
from bench.ledger.ours import nothing
from noonmark import Scheduler
scheduler = Scheduler(sys.argv[1])
scheduler.register_function("nothing", nothing)
scheduler.start()
print("ready", flush=True)
threading.Event().wait()
"""


def work(url: str, load: Load) -> Outcome:
    """Store every job as a schedule that fires once, then run a node until all have ended."""
    scheduler = Scheduler(url)
    scheduler.register_function("note", ours.note_lateness)
    agenda = load.begin()
    triggers = [OnceTrigger(from_micros(int(due * SECOND))) for due in agenda.dues()]
    ours.keep(scheduler, ours._schedules(scheduler, "note", triggers))
    agenda.all_stored()
    scheduler.start()
    node = scheduler._runners.current.loop.driver.node  # type: ignore[union-attr]
    while not agenda.is_over and (len(ours.LATENESS) < load.count or node.load):
        time.sleep(0.002 if len(ours.LATENESS) > 0.95 * load.count else 0.02)
    outcome = agenda.outcome(ours.LATENESS)
    scheduler.stop(timeout=5)
    scheduler.close()
    return outcome


def noonmark_nodes(url: str, count: int, nodes: int) -> dict[str, float]:
    """A burst on several nodes, each a process: from the due time until the last end, by the server's clock."""
    scheduler = Scheduler(url)
    running = [_start_node(url) for _ in range(nodes)]
    try:
        for node in running:
            assert node.stdout is not None
            node.stdout.readline()
        ours.keep(scheduler, ours._once(scheduler, "nothing", count, in_seconds=3 + count / 2_500))
        due: float = scheduler.due  # type: ignore[attr-defined]
        assert time.time() < due, "they were due before all of them were there"
        store = scheduler._store
        time.sleep(max(0.0, due - time.time()))
        while _ask(store, "SELECT count(*) FROM occurrences WHERE ended IS NULL"):
            time.sleep(0.05)
        seconds = _ask(store, "SELECT max(ended) FROM occurrences") / SECOND - due
        shares = _ask(store, "SELECT count(DISTINCT node) FROM runs")
    finally:
        for node in running:
            node.terminate()
            node.wait()
        scheduler.close()
    return {"rate": count / seconds, "seconds": seconds, "nodes": shares}


def noonmark_server_claim(url: str, stored: int, count: int) -> dict[str, float]:
    """How long it takes to claim an occurrence that is due, in batches, beside stored ones that are not."""
    scheduler = Scheduler(url)
    store = scheduler._store
    ours.keep(scheduler, ours._once(scheduler, "idle", 1, in_seconds=YEAR))
    _copy(store, stored)
    ours.keep(scheduler, ours._once(scheduler, "due", 3 * count, in_seconds=0))
    best = 1e9
    for _ in range(3):
        now = store.clock()
        begun = time.perf_counter()
        claims = store.claim(
            "bench", ["function:due"], now=now, until=now + 60 * SECOND, limit=count, lease=60 * SECOND
        )
        best = min(best, (time.perf_counter() - begun) / count)
        assert len(claims) == count
    scheduler.close()
    return {"claim": best}


def noonmark_wake(url: str, count: int) -> dict[str, float]:
    """From the call that declares a job that is due at once to its start on another node, which sleeps until then."""
    declaring, running = Scheduler(url), Scheduler(url)
    began = threading.Semaphore(0)
    started: list[float] = []
    running.register_function("begin", lambda: (started.append(time.perf_counter()), began.release()))
    declaring.register_function("begin", print)
    running.start()
    taken = []
    for _ in range(count):
        called = time.perf_counter()
        declaring._declarations.create([declaring._declarations.new(print, {"function_name": "begin"})])
        began.acquire()
        taken.append(started[-1] - called)
    running.stop()
    running.close()
    declaring.close()
    return {"heard": len(taken), **ours.percentiles(taken)}


def _start_node(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", NODE, url], cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own code


def _copy(store: PostgresStore, count: int) -> None:
    """Copy the one stored schedule within the server."""
    [(last,)] = _query(store, "SELECT max(key) FROM schedules")
    for table, changes in COPIED.items():
        found = _query(
            store,
            "SELECT column_name FROM information_schema.columns"  # noqa: S608 - our own names
            f" WHERE table_schema = current_schema() AND table_name = '{table}' AND is_generated = 'NEVER'",
        )
        names = [name for (name,) in found]
        values = ", ".join(changes.get(name, f"one.{name}").format(last=1_000_000 + last) for name in names)
        whose = f"one.{'key' if table == 'schedules' else 'schedule'} = {last}"
        _query(store, STORED.format(table=table, names=", ".join(names), values=values, count=count, whose=whose))
        _query(store, f"ANALYZE {table}")


def _ask(store: PostgresStore, text: str) -> int:
    [(answer,)] = _query(store, text)
    return int(answer)


def _query(store: PostgresStore, text: str) -> list[tuple[int, ...]]:
    connection = store._pool.acquire()
    try:
        connection.run("SET statement_timeout = 0")
        return connection.fetch(text)
    finally:
        store._pool.release(connection)
