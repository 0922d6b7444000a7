"""Filling a database with a history: rows as nodes leave them, written by the server itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from tests.servers.postgres import Postgres

OF_EACH = 1_000
"""So many ended occurrences a schedule has, and half of that where there are few in all."""
OF_ONE = 10_000
"""So many one of them has, at most: what is kept of a schedule unless it is told otherwise."""
SPAN = 29 * DAY_SECONDS * SECOND
"""The history is spread over so long; it ends an hour ago."""
HOUR = 3_600 * SECOND

# Rows are written faster without these; they are made again as they were when all rows are there.
_INDEXES = """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'noonmark' AND tablename IN ('occurrences', 'runs')
    AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""
_KEYS = "SELECT min(key), max(key) FROM noonmark.schedules"
# In the order of time, as they come about: what belongs to one schedule lies on as many pages as there are rows.
_OCCURRENCES = """
    INSERT INTO noonmark.occurrences
        (id, schedule, revision, origin, phase, route, nominal, due, first_due, attempt, fence, reason, ended, owner)
    SELECT 'occ_' || md5(number::text),
        CASE WHEN number % {every} = 0 THEN {last} ELSE {first} + (number - number / {every} - 1) % {others} END,
        1, 'trigger', 'completed', 'function:idle', time, time, time, 1, 1, 'succeeded', time + 40000, 1
    FROM generate_series(0::bigint, {count} - 1) AS number, LATERAL (SELECT {begin} + number * {step} AS time) AS fires
"""
_RUNS = """
    INSERT INTO noonmark.runs (occurrence, fence, schedule, attempt, node, started, ended, outcome, result)
    SELECT key, fence, schedule, 1, 'worker-3.example-4711-0a1b2c', nominal + 1500, ended, 'completed', '{"rows":1024}'
    FROM noonmark.occurrences WHERE ended IS NOT NULL ORDER BY key
"""
_STATES = """
    UPDATE noonmark.schedule_states SET history = found.count, total = found.count, successful = found.count
    FROM (SELECT schedule, count(*) FROM noonmark.occurrences WHERE ended IS NOT NULL GROUP BY schedule) AS found
    WHERE schedule_states.schedule = found.schedule
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What there is to be found: so many schedules with so many ends each, that far apart from a moment on."""

    schedules: int
    of_each: int
    begin: Micros
    step: Micros


def fill(server: Postgres, database: str, count: int) -> Filled:
    """Keep `count` ended occurrences with a run each."""
    others, every = max(1, count // OF_EACH), max(2, count // OF_ONE)
    schedules = others + 1
    now = _make_schedules(server.url(database), schedules)
    step = SPAN // count
    begin = now - HOUR - count * step
    indexes = [line.split("|", 1) for line in server.sql(_INDEXES, database).splitlines()]
    for name, _ in indexes:
        server.sql(f"DROP INDEX noonmark.{name}", database)
    first, last = map(int, server.sql(_KEYS, database).split("|"))
    assert last - first + 1 == schedules, "the keys of the schedules have gaps"
    numbers = {"first": first, "last": last, "others": others, "every": every}
    server.sql(_OCCURRENCES.format(**numbers, begin=begin, step=step, count=count), database)
    server.sql(_RUNS, database)
    for _, definition in indexes:
        server.sql(definition, database)
    server.sql(_STATES, database)
    server.sql("VACUUM (ANALYZE)", database)
    server.sql("CHECKPOINT", database)
    return Filled(schedules=schedules, of_each=(count - ceil(count / every)) // others, begin=begin, step=step)


def _make_schedules(url: str, count: int) -> Micros:
    """Keep schedules that have all their time before them; the time of the store."""
    scheduler = Scheduler(url)
    now = scheduler._store.clock()
    trigger = OnceTrigger(from_micros(now + 365 * DAY_SECONDS * SECOND))
    scheduler.create_many({"func": _idle, "function_name": "idle", "trigger": trigger} for _ in range(count))
    scheduler.close()
    return now


def _idle() -> None:
    """What the schedules with a history run; none of them is due before a year has passed."""
