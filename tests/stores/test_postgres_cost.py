"""The cost of a PostgreSQL store follows due work, not stored rows: no statement scans a table."""

# ruff: noqa: S608 - the statements are the test's own

import re

import pytest

from noonmark.core.instants import from_micros
from noonmark.core.triggers import IntervalTrigger
from noonmark.stores.postgres.connections import Connection
from noonmark.stores.sql.schema.tables import metadata
from noonmark.testing.conformance.bench import Bench
from noonmark.testing.factories import MINUTE, NOW
from tests.embedded.waiting import eventually
from tests.stores.connected import ask
from tests.stores.test_sqlite_cost import DAYS, TABLES, a_day_of_work

STORED = 10_000
"""So many rows each table has, if it has any: those of a day, again and again."""
APART = 10_000
"""So far from each other are the numbers of what is stored twice."""
AS_IF_LARGE = "SET enable_seqscan = off; SET random_page_cost = 1"
"""A small table is walked where a large one would not be."""
LATER = 10**15
"""Microseconds: what is stored has its time, and had its end, long after the test."""
READ = {*TABLES, *(index.name for name in TABLES for index in metadata.tables[name].indexes)}
ALL_WORK = "event_streams_behind"
"""The one index that may be walked: it holds tenants with events to match, and nothing else."""
SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan", "Tid Scan", "Sample Scan"}
KEYS = ("key", "schedule", "occurrence", "session", "holder")
NAMES = ("uid", "id", "schedule_id", "upstream_id", "event_id", "event_type")
OF_TENANTS = ("concurrency_keys", "event_streams", "events", "idempotency_keys", "mobs", "notes", "sessions")
TIMES = (
    "deadline",
    "lease_end",
    "nominal",
    "due",
    "first_due",
    "ready",
    "plan_at",
    "watermark",
    "ended",
    "emitted",
    "matched_until",
    "newest",
    "noted",
)


class Traced:
    """A store on which every statement is explained before it is carried out."""

    def __init__(self, store, monkeypatch):
        self.bench = Bench(store, store._clock)
        self.plans = {}
        """How each statement is carried out with the values that it first had."""
        self._counts = {}
        self._monkeypatch = monkeypatch

    def explain(self):
        """From now on."""
        fetch = Connection.fetch
        for connection in self.bench.store._pool._idle:
            connection.run(AS_IF_LARGE)

        def explained(connection, text, parameters=()):
            if re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", text) and text not in self.plans:
                self.plans[text] = plan_of(fetch(connection, f"EXPLAIN (FORMAT JSON) {text}", parameters))
                self._counts[text] = len(parameters)
            return fetch(connection, text, parameters)

        self._monkeypatch.setattr(Connection, "fetch", explained)

    def plans_for_any_values(self):
        """How the server carries them out once it has seen them often, without looking at the values."""
        connection = self.bench.store._pool.acquire()
        connection.run(f"SET plan_cache_mode = force_generic_plan; {AS_IF_LARGE}")
        for number, (text, count) in enumerate(self._counts.items()):
            connection.run(f"PREPARE one_{number} AS {text}")
            values = f"({', '.join(['NULL'] * count)})" if count else ""
            yield text, plan_of(connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE one_{number}{values}"))
        self.bench.store._pool.discard(connection)


def plan_of(found):
    return found[0][0][0]["Plan"]


def multiply(watcher, schema):
    """Store everything again and again, under other keys and names, with times that have not come."""
    for table in metadata.sorted_tables:
        if table.name in TABLES:
            [(rows,)] = watcher.fetch(f"SELECT count(*) FROM {schema}.{table.name}")
            stored = [column for column in table.columns if column.computed is None]
            columns = [column.name for column in stored]
            values = [stored_again(column) for column in stored]
            watcher.run(
                f"INSERT INTO {schema}.{table.name} ({', '.join(columns)}) SELECT {', '.join(values)}"
                f" FROM {schema}.{table.name} AS one, generate_series(1, {STORED // max(1, rows)}) AS copy"
            )

            watcher.run(f"DELETE FROM {schema}.{table.name} WHERE {first(table)}")
    watcher.run("ANALYZE")


def first(table):
    """What was there in the first place."""
    number = next((column.name for column in table.columns if column.name in KEYS), None)
    return "tenant = 'acme'" if number is None else f"{number} < {APART}"


def stored_again(column):
    name = column.name
    if name in ("name", "tenant") and column.table.name in OF_TENANTS:
        return f"one.{name} || copy"
    if name in KEYS:
        return f"one.{name} + {APART} * copy"
    if name in NAMES or (name == "name" and column.table.name == "schedules"):
        return f"one.{name} || '-' || copy"
    if name in TIMES:
        return f"one.{name} + {LATER} + copy"
    return f"one.{name}"


def walks(plan, *, is_first_enough=False):
    """The steps that read a table, or an index, from one end to the other."""
    if plan["Node Type"] in SCANS:
        name = plan.get("Relation Name", plan.get("Index Name"))
        is_found = "Index Cond" in plan or (is_first_enough and "Filter" not in plan)
        if is_found or name not in READ or plan.get("Index Name") == ALL_WORK:
            return []
        return [f"{plan['Node Type']} {name} {plan.get('Index Name', '')} {plan.get('Filter', '')}"]
    # What is below a limit of one reads one row, if it has nothing to sort or to leave out.
    is_first = plan["Node Type"] == "Limit" and plan["Plan Rows"] == 1
    return [walk for inner in plan.get("Plans", ()) for walk in walks(inner, is_first_enough=is_first)]


def counts(text):
    """To count is to read.

    Of the schedules all of a tenant, and here there is no other; of the backlog and the workload what waits or runs, up
    to a limit, from indexes that hold nothing else.
    """
    is_workload = ") AS fits FROM (" in text
    return text.startswith("SELECT count(*) FROM schedules WHERE tenant") or ") AS awaiting" in text or is_workload


@pytest.mark.parametrize("work", DAYS)
def test_no_statement_walks_a_table(stores, watcher, monkeypatch, work):
    store = stores.open()
    work(Bench(store, store._clock))
    multiply(watcher, stores.name)
    store._schedule_cache.forget()
    traced = Traced(store, monkeypatch)
    traced.explain()
    work(traced.bench)
    assert len(traced.plans) > 20
    for plans in (traced.plans.items(), traced.plans_for_any_values()):
        walked = [
            (found, " ".join(text.split())) for text, plan in plans if not counts(text) and (found := walks(plan))
        ]
        assert not walked, walked


def test_a_claim_reads_what_is_due_in_the_order_in_which_it_takes_it(stores, watcher, monkeypatch):
    """If it had to sort, each claim of a burst would read all that is due at that instant."""
    store = stores.open()
    a_day_of_work(Bench(store, store._clock))
    multiply(watcher, stores.name)
    traced = Traced(store, monkeypatch)
    traced.explain()
    a_day_of_work(traced.bench)
    [(_, plan)] = [(text, plan) for text, plan in traced.plans_for_any_values() if "ready_ones" in text]
    kinds = [step["Node Type"] for step in steps(plan)]
    assert "LockRows" in kinds
    assert not [kind for kind in kinds if "Sort" in kind]


def steps(plan):
    """Every step of a plan, outermost first."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from steps(inner)


UPDATES = """
    SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'schedule_states' AND schemaname = '{}'
"""


def test_starts_ends_and_pruning_by_age_write_to_no_index_of_schedules(stores, watcher):
    """Those updates are HOT: each changes no column that an index of `schedule_states` names."""

    def counted(store):
        store.close()
        eventually(lambda: not stores.backends())  # only then, all that they have done is counted
        [counts] = watcher.fetch(UPDATES.format(stores.name))
        return counts

    first = stores.open()
    bench = Bench(first, first._clock)
    for number in range(5):
        bench.create(f"uid-{number}", trigger=IntervalTrigger(60, start_at=from_micros(NOW)))
    # Some of these are in the index of long histories; one more or less leaves each in its bucket.
    ask(first, "UPDATE schedule_states SET history = 30 * (schedule % 3) RETURNING 1")
    claims = bench.claim()
    before = counted(first)
    second = stores.open()
    bench = Bench(second, first._clock)
    for claim in claims:
        assert bench.settle(bench.start(claim))
    assert second.prune(before=bench.now + MINUTE, keep=100, limit=100) == len(claims) == 5
    updates, hot = (after - was for after, was in zip(counted(second), before, strict=True))
    assert (updates, hot) == (15, 15)
