"""The view `execution_history`: every run, and every occurrence without one, the same in SQLite and PostgreSQL."""

import re
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from noonmark.core.admission import End
from noonmark.core.budgets.spend import Usage, to_dollars
from noonmark.core.instants import SECOND, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, RunInProgress, interim, settle
from noonmark.stores.sql.schema.ddl import execution_history
from noonmark.stores.sql.schema.tables import metadata
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import Bench
from noonmark.testing.factories import MINUTE, NOW
from tests.servers.postgres import QUICK, running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "execution-history.md"
EVERYTHING = "SELECT * FROM schedule_execution_history ORDER BY occurrence_id, run_id"
USAGE = Usage(model="m", input_tokens=1_000, output_tokens=200, model_calls=1, cost=250_000_000)
TIMES = ("nominal", "due", "started", "ended", "occurrence_ended")


@pytest.fixture
def bench(tmp_path):
    clock = HandClock()
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    yield Bench(store, clock)
    store.close()


def query(bench, text):
    with bench.store._connections.reading() as connection:
        rows = connection.execute(text)
        names = [column[0] for column in rows.description]
        return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]


def history(bench):
    """One of every kind; in each schedule a time of its own, with microseconds."""
    quiet = {name: bench.create_quiet(name, name=f"the {name}") for name in ("ran", "again", "goes-on", "open")}
    bench.advance(1_234_567)
    ran = bench.run(quiet["ran"], "a")
    bench.advance(1_500_000)
    delivered = Delivered(outcome=Outcome.COMPLETED, started=NOW + 1_234_567, ended=bench.now, usage=USAGE)
    [settled] = bench.store.settle([settle(ran, quiet["ran"], delivered, node="node-a")])
    assert settled
    again = bench.run(quiet["again"], "a")
    assert bench.retry(again, bench.now + SECOND)
    bench.advance(SECOND)
    assert bench.fail(bench.start(bench.claim_one("node-b")))
    accepted = bench.run(quiet["open"], "a")
    accepts = Accepted(started=bench.now, accepted=bench.now)
    [settled] = bench.store.settle([settle(accepted, quiet["open"], accepts, node="node-a")])
    assert settled
    bench.add(quiet["ran"], "b")
    bench.decide(End(claim=bench.claim_one(), phase=Phase.SKIPPED, reason=Reason.OVERLAP))
    bench.run(quiet["goes-on"], "a")
    planned = bench.create("planned")
    return [*quiet.values(), planned]


def text(micros):
    """With six decimals, always."""
    return None if micros is None else f"{to_text(micros - micros % SECOND)[:-1]}.{micros % SECOND:06}Z"


def told(bench, schedules):
    """What the store itself says, as rows of the view."""
    rows = []
    for schedule in schedules:
        runs = bench.store.runs(schedule.uid)
        for occurrence in bench.store.occurrences(schedule.uid):
            mine = [run for run in runs if run.occurrence_id == occurrence.id] or [None]
            rows += [expected(bench, schedule, occurrence, run) for run in mine]
    return sorted(rows, key=lambda row: (row["occurrence_id"], row["run_id"] or ""))


def expected(bench, schedule, occurrence, run):
    [(ended,)] = [
        tuple(row.values())
        for row in query(bench, f"SELECT ended FROM occurrences WHERE id = '{occurrence.id}'")  # noqa: S608 - a test's own text
    ]
    columns = {
        "schedule_id": schedule.schedule_id,
        "schedule_name": schedule.declaration.name,
        "tenant": schedule.owner.tenant,
        "username": schedule.owner.user,
        "occurrence_id": occurrence.id,
        "origin": occurrence.origin,
        "phase": str(occurrence.phase),
        "reason": None if occurrence.reason is None else str(occurrence.reason),
        "missed_count": occurrence.missed_count,
        "nominal": occurrence.nominal,
        "due": occurrence.due,
        "occurrence_ended": ended,
        "run_id": run and run.id,
        "attempt": run and run.attempt,
        "node": run and run.node,
        "started": run and run.started,
        "ended": run and run.ended,
        "outcome": run and run.outcome and str(run.outcome),
        "error": run and run.error,
        "tokens": run and run.usage and run.usage.total_tokens,
        "cost_usd": run and run.usage and to_dollars(run.usage.cost),
        "duration_seconds": (run.ended - run.started) / SECOND if run and run.ended else None,
    }
    return columns | {f"{name}_at": text(columns[name]) for name in TIMES}


def test_it_says_what_the_store_says(bench):
    schedules = history(bench)
    rows = query(bench, EVERYTHING)
    assert rows == told(bench, schedules)
    kinds = {(row["schedule_id"].removeprefix("schedule-of-"), row["phase"], row["attempt"]) for row in rows}
    assert kinds == {
        ("ran", "completed", 1),
        ("ran", "skipped", None),
        ("again", "failed", 1),
        ("again", "failed", 2),
        ("open", "awaiting_completion", 1),
        ("goes-on", "dispatching", 1),
        ("planned", "pending", None),
    }
    [ran] = [row for row in rows if row["phase"] == "completed"]
    assert (ran["duration_seconds"], ran["tokens"], ran["cost_usd"]) == (1.5, 1_200, 0.25)
    assert ran["started_at"] == "2030-03-17T17:47:01.234567Z"


def test_a_start_that_was_committed_early_begins_when_it_is_due(bench):
    schedule = bench.create_quiet()
    bench.add(schedule, "a", 5_000)
    [claim] = bench.claim(until=NOW + MINUTE)
    bench.start(claim)
    [row] = query(bench, EVERYTHING)
    assert (row["started"], row["ended"], row["duration_seconds"]) == (NOW + 5_000, None, None)


def test_a_run_that_is_retried_is_shown_beside_those_before_it(bench):
    schedule = bench.create_quiet()
    run = bench.run(schedule, "a")
    assert bench.retry(run, bench.now)
    two = bench.start(bench.claim_one("node-b"))
    assert [(row["run_id"], row["node"], row["ended"]) for row in query(bench, EVERYTHING)] == [
        (f"{run.id}-{run.fence}", "node-a", NOW),
        (f"{two.id}-{two.fence}", "node-b", None),
    ]


def test_a_run_that_was_told_of_is_told_once(bench):
    schedule = bench.create_quiet()
    run = bench.run(schedule, "a")
    told = interim(run, RunInProgress(started=NOW + 3, result={"output": "half way"}), node="node-a")
    assert bench.store.progress([told]) == [True]
    assert [(row["run_id"], row["started"], row["ended"]) for row in query(bench, EVERYTHING)] == [
        (told.run.id, NOW + 3, None)
    ]


def test_every_column_is_documented_in_order(bench):
    named = [
        name for row in re.findall(r"^\| (`.*?) \| ", PAGE.read_text("utf-8"), re.MULTILINE) for name in row.split(", ")
    ]
    columns = [row["name"] for row in query(bench, "SELECT name FROM pragma_table_info('schedule_execution_history')")]
    assert [name.strip("`") for name in named] == columns


def test_a_schedule_is_found_without_reading_the_whole_history(bench):
    plan = query(
        bench,
        "EXPLAIN QUERY PLAN SELECT phase, count(*) FROM schedule_execution_history"
        " WHERE tenant = 'acme' AND schedule_id = 'x' GROUP BY phase",
    )
    assert not [step["detail"] for step in plan if step["detail"] in ("SCAN occurrences", "SCAN runs")], plan


def test_postgresql_gives_the_same_rows(bench):
    history(bench)
    tables = [
        table
        for table in metadata.sorted_tables
        if table.name in ("schedules", "occurrences", "runs", "concurrency_keys")
    ]
    statements = [str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in tables]
    migration = files("noonmark.stores.sql.migrations").joinpath("0017_budgets.postgres.sql").read_text("utf-8")
    frozen = migration.replace("CREATE OR REPLACE VIEW", "CREATE VIEW", 1)
    assert f"\n{execution_history('postgresql')};\n" in frozen
    copied = {table.name: query(bench, f"SELECT * FROM {table.name}") for table in tables}  # noqa: S608 - our own names

    with running(**QUICK) as server, psycopg.connect(server.url(), row_factory=dict_row) as connection:
        # Text must not depend on where the reader is.
        connection.execute("SET TIME ZONE 'Asia/Kathmandu'")
        for statement in [*statements, execution_history("postgresql")]:
            connection.execute(statement)
        for name, rows in copied.items():
            if rows:
                with connection.cursor().copy(f"COPY {name} ({', '.join(rows[0])}) FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(list(row.values()))
        found = connection.execute(EVERYTHING.replace("occurrence_id,", 'occurrence_id COLLATE "C",')).fetchall()
    assert found == query(bench, EVERYTHING)
