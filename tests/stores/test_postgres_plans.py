"""Query plans of PostgreSQL before its first ANALYZE."""

import re

import pytest

from noonmark.core.filters.index import discriminator
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.policies.limits import Horizon
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.ports.records import OccurrenceFilter
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sql.claims import READY_ROUTES
from noonmark.stores.sql.dependencies import IDENTITIES
from noonmark.stores.sql.fast_path import ENDABLE, STARTABLE
from noonmark.stores.sql.reads import history, search
from noonmark.stores.sql.reads.history import ALWAYS, BUCKET, EXPIRED, READY, WAITING
from noonmark.stores.sql.subscriptions import FIELDS, LISTENERS
from noonmark.stores.sql.workflows import WAIT_FIELDS, WAITS
from noonmark.testing import factories
from noonmark.testing.conformance import Bench, HandClock
from noonmark.testing.conformance.bench import ROUTE
from noonmark.testing.factories import NOW
from tests.embedded.waiting import eventually
from tests.stores.connected import ask
from tests.workflow_store import waiting_runs

SCHEDULES = 1_000
IDS = [f"occ_{n:032x}" for n in range(SCHEDULES)]


@pytest.fixture
def store(database):
    store = PostgresStore(database.url)
    store.open()
    many = {"trigger": IntervalTrigger(60, start_at=from_micros(NOW)), "horizon": Horizon(occurrences=8)}
    schedules = [factories.schedule(f"uid-{n}", **many) for n in range(SCHEDULES)]
    assert all(store.create([first_plan(one, lookahead=0) for one in schedules]))
    yield store
    store.close()


@pytest.mark.parametrize(("query", "values"), [(STARTABLE, (1, 0, ["acme"], IDS, 1)), (ENDABLE, (IDS, 1, 0))])
def test_what_starts_or_ends_is_found_by_its_id_and_no_other_schedule_is_read(store, query, values):
    plan = store._autocommit(lambda uow: uow.session.query(f"EXPLAIN {query}", *values))
    steps = "\n".join(line for (line,) in plan)
    assert "Seq Scan on schedule_states" not in steps, steps


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (READY, (ROUTE, NOW, 9)),
        (EXPIRED, (ROUTE, NOW, 9)),
        (WAITING, (9, 9, NOW, 9, NOW, 9)),
        (READY_ROUTES, (ALWAYS, ALWAYS)),
    ],
    ids=["ready", "expired", "waiting", "routes"],
)
def test_a_backlog_is_counted_by_what_is_in_it(store, query, values):
    plan = store._autocommit(lambda uow: uow.session.query(f"EXPLAIN {query}", *values))
    steps = "\n".join(line for (line,) in plan)
    assert "Seq Scan on occurrences" not in steps, steps


def test_no_schedule_is_read_for_each_id_of_a_large_create(store):
    ids = [("acme", f"new-{n}") for n in range(SCHEDULES)]
    plan = store._autocommit(lambda uow: uow.session.query(f"EXPLAIN ANALYZE {IDENTITIES}", ids))
    steps = [line for (line,) in plan]
    reads = [line for line in steps if " on schedules" in line and "schedules_by_id" not in line]
    assert all("loops=1)" in line for line in reads), "\n".join(steps)


def test_listeners_are_found_by_what_they_want(database):
    store = PostgresStore(database.url)
    store.open()
    triggers = [EventTrigger("seen", {"customer": f"c-{n}"}) for n in range(SCHEDULES)]
    schedules = [factories.schedule(f"uid-{n}", trigger=one) for n, one in enumerate(triggers)]
    assert all(store.create([first_plan(one, lookahead=0) for one in schedules]))
    asked = [(n, "acme", "seen", *discriminator(triggers[n].filters), 0) for n in range(9)]
    queries = {
        LISTENERS: ((100, asked), "(narrow_wanted = j.c4) AND (schedule > j.c5)"),
        FIELDS: (([("acme", "seen", "")],), "(narrow_fields > one_1.fields)"),
    }
    for work in ("SELECT 1", "ANALYZE event_listeners"):
        ask(store, work)
        for query, (values, condition) in queries.items():
            steps = [line for (line,) in ask(store, f"EXPLAIN ANALYZE {query}", *values)]
            [place] = [number for number, step in enumerate(steps) if " on event_listeners " in step]
            assert "using event_listeners_by_narrow_discriminator" in steps[place], steps
            assert condition in steps[place + 1], steps
    store.close()


def test_waiting_steps_are_found_by_what_they_want(database):
    clock = HandClock()
    store = PostgresStore(database.url, clock)
    store.open()
    waiting_runs(Bench(store, clock), SCHEDULES)
    asked = [("acme", "paid", *discriminator({"order": n})) for n in range(9)]
    queries = {
        WAITS: ((asked,), "(wanted = j.c3)"),
        WAIT_FIELDS: (([("acme", "paid")],), "(fields > one_1.fields)"),
    }
    for work in ("SELECT 1", "ANALYZE step_waits"):
        ask(store, work)
        for query, (values, condition) in queries.items():
            steps = [line for (line,) in ask(store, f"EXPLAIN ANALYZE {query}", *values)]
            places = [number for number, step in enumerate(steps) if " on step_waits" in step]
            assert places
            assert all("using step_waits_by_discriminator" in steps[place] for place in places), steps
            assert condition in steps[places[-1] + 1], steps
    store.close()


def test_a_plan_that_was_made_while_the_tables_were_empty_serves_when_they_are_full(database):
    store = PostgresStore(database.url)
    store.open()
    ask(store, "ANALYZE")  # as the server does by itself, now and then
    schedules = [factories.schedule(f"uid-{n}") for n in range(2_000)]
    for schedule in schedules[:20]:  # by now the server has settled on a plan for what it is asked again and again
        assert store.create([first_plan(schedule, lookahead=0)]) == [True]
    assert all(store.create([first_plan(one, lookahead=0) for one in schedules[20:]]))
    for schedule in schedules[:20]:
        assert store.find(schedule.owner.tenant, schedule.schedule_id) is not None
    store.close()
    watcher = PostgresStore(database.url)
    watcher.open()
    read = "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE seq_tup_read > 1000 AND schemaname = 'noonmark'"
    eventually(lambda: ask(watcher, "SELECT sum(n_tup_ins) FROM pg_stat_user_tables")[0][0] >= 4_000)
    read_through = ask(watcher, read)
    watcher.close()
    assert read_through == []


FAILED, PAGE = 100_000, 100
FAILURES = f"""
    INSERT INTO occurrences
        (id, schedule, revision, origin, phase, route, nominal, due, first_due, attempt, fence, reason, ended, owner)
    SELECT 'failed_' || n, (SELECT min(key) FROM schedules), 1, 'trigger',
        CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'completed' END, 'r', n, n, n, 1, 1, 'failed', {NOW} + n, 1
    FROM generate_series(1, {FAILED}) AS n
"""  # noqa: S608 - our own text
ROWS = re.compile(r" on .*actual .*rows=(?P<rows>\d+)")


class Explained:
    """A session that explains its queries from a table before it makes them."""

    def __init__(self, session, table, order):
        self.of, self.steps, self._from, self._order = session, [], f"FROM {table} ", f"ORDER BY {order}"

    def query(self, text, *values):
        if self._from in text and self._order in text:
            self.steps += [line for (line,) in self.of.query(f"EXPLAIN ANALYZE {text}", *values)]
        return self.of.query(text, *values)

    def __getattr__(self, name):
        return getattr(self.of, name)


def test_failures_are_found_in_their_index_and_no_more_of_them_are_read_than_a_page(database):
    store = PostgresStore(database.url)
    store.open()
    schedule = factories.schedule("uid-1")
    assert store.create([first_plan(schedule, lookahead=0)]) == [True]
    store._write_unlocked(lambda uow: uow.session.execute(FAILURES))
    wanted = OccurrenceFilter(phases=frozenset({Phase.FAILED}), since=NOW)

    def read(uow):
        session = uow.session = Explained(uow.session, "occurrences", "ended")
        first = search.search(uow, schedule.owner.tenant, wanted, PAGE, None)
        second = search.search(uow, schedule.owner.tenant, wanted, PAGE, first.after)
        uow.session = session.of
        return [len(first.occurrences), len(second.occurrences)], session.steps

    for work in ("SELECT 1", "ANALYZE occurrences"):
        ask(store, work)
        found, steps = store._read(read)
        scans = [line for line in steps if " on occurrences" in line]
        assert (found, len(scans)) == ([PAGE, PAGE], 2)
        assert all("using occurrences_failed" in line for line in scans), steps
        assert all(int(ROWS.search(line)["rows"]) <= PAGE for line in scans), steps
    store.close()


KEPT, SURPLUS = 2 * BUCKET, 100
FILL = f"UPDATE schedule_states SET history = CASE WHEN schedule % {SURPLUS} = 0 THEN {KEPT + 1} ELSE {KEPT} END"  # noqa: S608 - our own text


def test_pruning_by_number_reads_only_schedules_with_more_than_are_kept(store):
    def prune(uow):
        session = Explained(uow.session, "schedule_states", "history_bucket")
        history.prune(session, before=0, keep=KEPT, limit=2 * SCHEDULES)
        return session.steps

    for work in ("SELECT 1", "ANALYZE schedule_states"):
        store._write_unlocked(lambda uow: uow.session.execute(FILL))
        ask(store, work)
        steps = store._write_unlocked(prune)
        [read] = [step for step in steps if " on schedule_states " in step]
        assert int(ROWS.search(read)["rows"]) == SCHEDULES // SURPLUS, steps
        assert "schedules_with_history" in "\n".join(steps), steps
        assert "Rows Removed" not in "\n".join(steps), steps
