"""Filling a database: Noonmark stores one schedule and one ended occurrence, and SQL copies them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.history.verbs import NODE, work_off
from noonmark import IntervalTrigger, Scheduler
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.history.databases import Database
    from noonmark.core.instants import Micros

LARGEST = 10_000
"""The most ended occurrences of one schedule: the default of how many are kept."""
WATCHED, OF_WATCHED = 20, 250
"""Schedules with the same number of ended occurrences in a store of any size, so that the same pages can be read."""
SPAN = 29 * DAY_SECONDS * SECOND
"""The history is spread over so long; it ends an hour ago."""
HOUR = 3_600 * SECOND
LATE, TOOK = 1_500, 38_500
TABLES = ("schedules", "schedule_states", "occurrences", "runs")
LEAST_HISTORY, LEAST_SCHEDULES = 2 * WATCHED * OF_WATCHED, 2 * WATCHED

_NUMBER = "substr(CAST(10000000000 + number AS TEXT), 2)"
"""The digits that ids differ in; without them an id of the template has 16 of a schedule's 26."""
# In the order of time, as they come about: what belongs to one schedule lies on as many pages as there are rows.
_SCHEDULE = """
    {first} + CASE WHEN number % {every_largest} = 0 THEN 0
        WHEN number % {every_watched} = 1 THEN 1 + number / {every_watched} % {watched}
        ELSE 1 + {watched} + number % ({schedules} - 1 - {watched}) END
"""
_TIME = "{begin} + number * {step}"
_ENDS = """series AS (
    SELECT key, schedule AS of_schedule, nominal, ended AS end_time FROM occurrences
    WHERE ended IS NOT NULL AND key <> {template}
)"""
_COUNTS = """counts AS (
    SELECT schedule AS of_schedule, count(*) AS ends FROM occurrences WHERE ended IS NOT NULL GROUP BY schedule
)"""
_COUNTED = "LEFT JOIN counts ON of_schedule = {first} + number"
_UIDS = "SELECT uid FROM schedule_states ORDER BY schedule LIMIT {most} OFFSET {skipped}"
_ID = "'occ_00' || to_hex({nominal} / 1000000) || substr(md5({text}), 1, 22)"
"""As the product computes them, except for the hash: in this century, seconds have 8 digits."""
_COLUMNS = {
    "schedules": {
        "key": "{first} + number",
        "schedule_id": f"substr(schedule_id, 1, 20) || {_NUMBER}",
        "created": "created + number",
    },
    "pending": {
        "key": "{last} + number",
        "id": _ID.format(nominal="nominal", text="'next ' || number"),
        "schedule": "{first} + number",
    },
    "ended": {
        "key": "{last} + {schedules} + number",
        "id": _ID.format(nominal=f"({_TIME})", text="CAST(number AS TEXT)"),
        "schedule": _SCHEDULE,
        "nominal": _TIME,
        "due": _TIME,
        "first_due": _TIME,
        "ended": f"{_TIME} + {LATE} + {TOOK}",
        "late": f"{LATE}",
    },
    "runs": {"occurrence": "key", "schedule": "of_schedule", "started": f"nominal + {LATE}", "ended": "end_time"},
    "schedule_states": {
        "schedule": "{first} + number",
        "uid": f"substr(uid, 1, 16) || {_NUMBER}",
        **dict.fromkeys(("history", "total", "successful", "admitted"), "coalesce(ends, 0)"),
    },
}
_LARGEST = """
    UPDATE schedule_states SET (history, total, successful, admitted) = (
        SELECT count(*), count(*), count(*), count(*) FROM occurrences WHERE schedule = {first} AND ended IS NOT NULL
    ) WHERE schedule = {first}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What there is to be found."""

    uids: list[str]
    """The schedules whose pages are read."""
    largest: str
    """The one with the most ended occurrences."""
    middle: str
    """The one in the middle of all."""
    end: Micros
    """The history is older than this."""
    seconds: float
    """It took so long to fill."""
    megabytes: float


def fill(database: Database, schedules: int, history: int) -> Filled:
    """Store schedules with time before them, and ended occurrences with a run each."""
    assert schedules >= LEAST_SCHEDULES, f"there must be {LEAST_SCHEDULES} schedules"
    assert history >= LEAST_HISTORY, f"there must be {LEAST_HISTORY} ended occurrences"
    begun = time.perf_counter()
    now = _make_template(database.url)
    step = SPAN // history
    begin = now - HOUR - history * step
    database.run(_statements(database, schedules, history, begin, step))
    database.settle()
    uids = [uid for (uid,) in database.query(_UIDS.format(most=1 + WATCHED, skipped=0))]
    [(middle,)] = database.query(_UIDS.format(most=1, skipped=schedules // 2))
    return Filled(
        uids=uids[1:],
        largest=uids[0],
        middle=middle,
        end=begin + history * step,
        seconds=time.perf_counter() - begun,
        megabytes=database.megabytes(),
    )


def _make_template(url: str) -> Micros:
    """Store a schedule that has run once; returns the time of the store."""
    scheduler = Scheduler(url)
    store = scheduler._store
    due = store.clock() + SECOND
    trigger = IntervalTrigger(days=1, start_at=from_micros(due))
    scheduler.create_many([{"func": _idle, "function_name": "idle", "trigger": trigger}])
    while (now := store.clock()) < due:
        time.sleep(0.01)
    work_off(store, store.claim(NODE, ["function:idle"], now=now, until=now, limit=1, lease=SECOND), now)
    scheduler.close()
    return now


def _statements(database: Database, schedules: int, history: int, begin: Micros, step: Micros) -> Iterator[str]:
    # A schedule that is active has its next occurrence, too.
    [(first, pending)] = database.query("SELECT schedule, key FROM occurrences WHERE ended IS NULL")
    [(template,)] = database.query("SELECT key FROM occurrences WHERE ended IS NOT NULL")
    numbers = {
        "first": first,
        "template": template,
        "last": max(template, pending),
        "schedules": schedules,
        "every_largest": max(history // LARGEST, 10),
        "every_watched": history // (WATCHED * OF_WATCHED),
        "watched": WATCHED,
        "begin": begin,
        "step": step,
    }
    # Rows are written faster without indexes; they are made again as they were when all rows are there.
    indexes = database.indexes(TABLES)
    yield from (f"DROP INDEX {name}" for name in indexes)
    each = database.series.format(first=1, last=schedules - 1)
    end = database.series.format(first=1, last=history - 1)
    yield _copy(database, "schedules", numbers, source=each, row=f"key = {first}")
    yield _copy(database, "occurrences", numbers, "pending", source=each, row=f"key = {pending}")
    yield _copy(database, "occurrences", numbers, "ended", source=end, row=f"key = {template}")
    yield _copy(database, "runs", numbers, source=_ENDS, row=f"occurrence = {template}")
    yield _copy(
        database, "schedule_states", numbers, source=f"{each}, {_COUNTS}", join=_COUNTED, row=f"schedule = {first}"
    )
    yield _LARGEST.format(first=first)
    yield from indexes.values()
    yield from database.keys_follow(("schedules", "occurrences"))


def _copy(  # noqa: PLR0913 - the parts of a statement
    database: Database, table: str, numbers: dict[str, int], fields: str = "", *, source: str, row: str, join: str = ""
) -> str:
    """Copy a row that Noonmark has written: its columns, except for those that differ from row to row."""
    values = {name: name for name in database.columns(table)} | _COLUMNS[fields or table]
    text = f"""
        INSERT INTO {table} ({", ".join(values)})
        WITH RECURSIVE template AS (SELECT * FROM {table} WHERE {row}), {source}
        SELECT {", ".join(values.values())} FROM series CROSS JOIN template {join}
    """  # noqa: S608 - our own text
    return text.format(**numbers)


def _idle() -> None:
    """What the schedules run; none of them is due before a day has passed."""
