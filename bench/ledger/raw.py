"""The limit: a plain loop in one thread that makes the same changes to the same tables, and decides nothing."""

from __future__ import annotations

import sqlite3
import tempfile
import time

from bench.ledger.ours import _once, _scheduler, keep

BATCH = 1_000
CLAIM = """
UPDATE occurrences SET phase = 'claimed', fence = fence + 1, node = 'raw', lease_end = :lease WHERE key = :key
"""
START = """
UPDATE occurrences SET phase = 'dispatching', attempt = attempt + 1, holds_slot = 1, started = :now, lease_end = :lease
WHERE key = :key AND phase = 'claimed'
"""
STARTED = """
UPDATE schedule_states SET last_started = :now, admitted = admitted + 1, holder = :key, newest = :now
WHERE schedule = :schedule
"""
END = """
UPDATE occurrences SET phase = 'completed', reason = 'succeeded', holds_slot = 0, ended = :now, lease_end = NULL,
node = NULL, started = NULL, ready = NULL WHERE key = :key AND phase = 'dispatching'
"""
RUN = """
INSERT INTO runs (occurrence, fence, schedule, attempt, node, started, ended, outcome)
VALUES (:key, 1, :schedule, 1, 'raw', :now, :now, 'completed')
"""
ENDED = """
UPDATE schedule_states SET total = total + 1, successful = successful + 1, last_phase = 'completed',
failures_in_row = 0,
live = live - 1, history = history + 1, holder = NULL, phase = 'completed', updated = :now WHERE schedule = :schedule
"""


def raw_burst(count: int, *, overdue: bool = False) -> dict[str, float]:
    """Take occurrences through every phase, a thousand to a transaction; when overdue, claimed first."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _scheduler("sqlite", folder)
        keep(scheduler, _once(scheduler, "nothing", count, in_seconds=60))
        scheduler._runtime.store.close()
        connection = sqlite3.connect(f"{folder}/bench.db", isolation_level=None)
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768")
        now = int(time.time() * 1e6)
        found = connection.execute("SELECT key, schedule FROM occurrences ORDER BY key").fetchall()
        rows = [{"key": key, "schedule": schedule, "now": now, "lease": now + 15_000_000} for key, schedule in found]
        if not overdue:
            _pass(connection, rows, CLAIM)
        started = time.perf_counter()
        if overdue:
            _pass(connection, rows, CLAIM)
        _pass(connection, rows, START, STARTED)
        _pass(connection, rows, END, RUN, ENDED)
        seconds = time.perf_counter() - started
        [(completed,)] = connection.execute("SELECT count(*) FROM occurrences WHERE phase = 'completed'")
        connection.close()
        assert completed == count, f"only {completed} of {count} were completed"
        return {"seconds": seconds, "rate": count / seconds}


def _pass(connection: sqlite3.Connection, rows: list[dict[str, int]], *statements: str) -> None:
    for first in range(0, len(rows), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.executemany(statement, rows[first : first + BATCH])
        connection.execute("COMMIT")
