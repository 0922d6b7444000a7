"""What the web page asks for, with many schedules and a long history: lists, timelines, trends and the overview."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.report import Table, bar, duration
from noonmark import CronTrigger, Scheduler
from noonmark.core.ids import owner_number
from noonmark.core.instants import DAY_SECONDS, SECOND, to_text
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.ports.records import ScheduleFilter
from tests.servers.postgres import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.settings import Settings

MOST, OF_EACH = 100_000, 10
"""How many schedules there are, and ended occurrences of each on average."""
OF_ONE = 8_760
"""The ended occurrences of one of them: every hour of a year."""
ROUNDS = 5
LIMIT = 0.2
DAY, HOUR = DAY_SECONDS * SECOND, 3_600 * SECOND
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT CAST(0 AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < {count} - 1)"
# Of a month, in the order of time. One in fifty failed, one in a hundred was skipped, one in forty started late.
_OCCURRENCES = """
    INSERT INTO {schema}occurrences
        (id, schedule, revision, origin, phase, route, nominal, due, first_due, attempt, fence, reason, ended, owner,
        late)
    {numbers}
    SELECT 'occ_{name}_' || i, {schedule}, 1, 'trigger',
        CASE WHEN i % 50 = 7 THEN 'failed' WHEN i % 100 = 9 THEN 'skipped' ELSE 'completed' END, 'function:idle',
        {begin} + i * {step}, {begin} + i * {step}, {begin} + i * {step}, CASE WHEN i % 100 = 9 THEN 0 ELSE 1 END, 1,
        CASE WHEN i % 50 = 7 THEN 'failed' WHEN i % 100 = 9 THEN 'paused' ELSE 'succeeded' END,
        {begin} + i * {step} + 400000, {owner},
        CASE WHEN i % 100 = 9 THEN NULL WHEN i % 40 = 3 THEN 5000000 ELSE 2000 + i % 9000 END
    FROM n
"""
_RUNS = """
    INSERT INTO {schema}runs (occurrence, fence, schedule, attempt, node, started, ended, outcome, result)
    SELECT key, fence, schedule, 1, 'worker-3.example-4711-0a1b2c', first_due + late, ended + key % 1000000,
        CASE WHEN phase = 'failed' THEN 'failed' ELSE 'completed' END, '{{"rows":1024}}'
    FROM {schema}occurrences WHERE ended IS NOT NULL AND late IS NOT NULL
"""
_STATES = """
    UPDATE {schema}schedule_states SET history = {each}, total = {each}, successful = {each}, last_phase = 'completed'
"""


def tables(settings: Settings) -> Iterator[Table]:
    """The time of each request, on both databases."""
    count = min(MOST, max(settings.stored))
    table = Table(
        f"Timelines: {count:,} schedules, {count * OF_EACH:,} occurrences",
        ("what", "SQLite", "PostgreSQL", "bar", ""),
        notes=(f"The median of {ROUNDS}, from the request of an operation to its answer as JSON text.",),
    )
    with TemporaryDirectory() as folder:
        sqlite = _sqlite(Path(folder) / "noonmark.db", count)
    postgres = _postgres(count)
    for what, took in sqlite.items():
        slowest = max(took, postgres[what])
        table.add(what, duration(took), duration(postgres[what]), "200 ms", bar(met=slowest <= LIMIT))
    yield table


def _sqlite(path: Path, count: int) -> dict[str, float]:
    def fill(text: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(text)

    return _measure(f"sqlite:///{path}", count, "", fill, lambda: None)


def _postgres(count: int) -> dict[str, float]:
    with running() as server:
        url = server.create("page")
        return _measure(
            url, count, "noonmark.", lambda text: server.sql(text, "page"), lambda: server.sql("VACUUM ANALYZE", "page")
        )


def _measure(
    url: str, count: int, schema: str, fill: Callable[[str], object], analyse: Callable[[], object]
) -> dict[str, float]:
    with closing(Scheduler(url)) as scheduler:
        store: Any = scheduler._store
        now = store.clock()
        for first, last in ((0, 1_000), (1_000, count)):  # a database plans badly for tables that it believes empty
            scheduler.create_many(_schedule(n) for n in range(first, last))
            analyse()
        [found] = store.schedules(LOCAL.owner.tenant, limit=1, wanted=ScheduleFilter(labels={"team": "hourly"}))
        hourly = found.schedule
        of_most = count * OF_EACH - OF_ONE
        owner = owner_number(hourly.owner.tenant, hourly.owner.user)
        of_one = f"(SELECT schedule FROM {schema}schedule_states WHERE uid = '{hourly.uid}')"  # noqa: S608 - our own text
        lowest = f"(SELECT min(key) FROM {schema}schedules)"  # noqa: S608 - likewise
        for name, number, schedule, length in (
            ("many", of_most, f"{lowest} + i % {count}", 30 * DAY),
            ("one", OF_ONE, of_one, OF_ONE * HOUR),
        ):
            fill(
                _OCCURRENCES.format(
                    schema=schema,
                    numbers=_NUMBERS.format(count=number),
                    name=name,
                    schedule=schedule,
                    begin=now - length,
                    step=length // number,
                    owner=owner,
                )
            )
        fill(_RUNS.format(schema=schema))
        fill(_STATES.format(schema=schema, each=OF_EACH))
        analyse()
        service = Service(store=store, lookahead=2 * SECOND, fresh_id=lambda: "fresh")
        midnight = now // DAY * DAY
        one_year = {"schedule_id": hourly.schedule_id, "from": to_text(now - 365 * DAY), "to": to_text(now)}
        requests: dict[str, tuple[str, dict[str, Any]]] = {
            "list, 50 schedules with 30 outcomes": ("schedule/list", {"limit": 50, "outcomes": 30}),
            "timeline, 20 schedules, 12 hours": ("timeline", {}),
            "timeline, all schedules, yesterday": (
                "timeline",
                {"by": "all", "from": to_text(midnight - DAY), "to": to_text(midnight)},
            ),
            "timeline, all schedules, today": (
                "timeline",
                {"by": "all", "from": to_text(midnight), "to": to_text(midnight + DAY)},
            ),
            "timeline, one schedule, a year": ("timeline", {**one_year, "buckets": 366}),
            "trends, one schedule, a year by day": ("schedule/trends", {**one_year, "timezone": "Europe/Stockholm"}),
            "overview": ("overview", {"timezone": "Europe/Stockholm"}),
        }
        return {
            what: median(_timed(lambda: json.dumps(perform(service, LOCAL, *request))) for _ in range(ROUNDS))  # noqa: B023 - called at once
            for what, request in requests.items()
        }


def _schedule(n: int) -> dict[str, Any]:
    """A schedule that fires once a day."""
    trigger = CronTrigger(f"{n % 60} {n // 60 % 24} * * *", timezone="UTC")
    return {
        "func": _idle,
        "function_name": "idle",
        "trigger": trigger,
        "labels": {"team": f"t{n % 20}" if n else "hourly"},
    }


def _idle() -> None:
    """What is stored; it never runs."""


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
