"""The cost of a Redis store: as many round trips for many records as for few, and no table is scanned."""

from contextlib import contextmanager

import pytest

from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Reservation
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.ids import manual
from noonmark.core.planner import plan
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.targets import WorkflowTarget
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun
from noonmark.ports.budgets import Settled, UsageRecord
from noonmark.ports.records import MarkScope, OccurrenceFilter, ScheduleFilter, Span
from noonmark.ports.workflows import StepWrites
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.redis.transactions.client import Client
from noonmark.testing import factories
from noonmark.testing.conformance import Bench, HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, start
from noonmark.testing.factories import MINUTE

DATABASE = 12
FEW, MANY = 3, 12
LISTED = 3
"""So many are on a page of a list."""
STORED = 60
"""So many schedules of somebody else have a history of an occurrence each."""
OTHER = Owner(tenant="other", user="bob")
TENANT = Budget(tenant="acme", scope=BudgetScope.TENANT, scope_id="acme", period=Period.TOTAL, max_cost=10**9)


class Meter:
    """Counts the round trips of a store, and the bytes that it is sent, by verb."""

    def __init__(self, server):
        self._server = server
        self.trips, self.bytes = {}, {}
        self._count = 0

    def watch(self, monkeypatch):
        translated = Client.translated

        def counted(client, *args, **kwargs):
            self._count += 1
            return translated(client, *args, **kwargs)

        monkeypatch.setattr(Client, "translated", counted)

    @contextmanager
    def of(self, verb):
        count, sent = self._count, self._sent()
        yield
        self.trips[verb] = self._count - count
        self.bytes[verb] = self._sent() - sent

    def _sent(self):
        return self._server.run("INFO", "stats")["total_net_output_bytes"]


@pytest.fixture
def make_bench(redis, monkeypatch):
    """Makes a store that is empty, and measures it."""
    collected = []

    def make():
        redis.run("FLUSHDB", database=DATABASE)
        clock, meter = HandClock(), Meter(redis)
        store = RedisStore(redis.url(DATABASE), clock)
        collected.append(store)
        store.open()
        meter.watch(monkeypatch)
        return Bench(store, clock), meter

    yield make
    for store in collected:
        store.close()


def a_call(occurrence, number):
    return Reservation(
        call_id=f"{occurrence.id}/{number}",
        tenant="acme",
        user="ada",
        schedule_id=occurrence.schedule_id,
        session_id=None,
        occurrence_id=occurrence.id,
        fence=occurrence.fence,
        model="m",
        provider=None,
        most=Amount(tokens=10, cost=10),
    )


def a_day(bench, meter, count):
    """Plan, claim, start and end so many occurrences and workflow runs, call models, and look at everything."""
    store = bench.store
    for number in range(count):
        bench.create(f"uid-{number}")
        flow = bench.create_quiet(f"flow-{number}", target=WorkflowTarget(workflow_id="etl"))
        bench.add(flow, "a")
    store.put_budget(TENANT)
    bench.advance(MINUTE)
    with meter.of("plannable"):
        snapshots = store.plannable(bench.now, count)
    with meter.of("commit_plans"):
        assert all(store.commit_plans([plan(one, now=bench.now, lookahead=LOOKAHEAD) for one in snapshots]))
    with meter.of("claim"):
        claims = store.claim("node", [ROUTE, "workflow"], now=bench.now, until=bench.now, limit=2 * count, lease=LEASE)
    with meter.of("admit"):
        admitted = store.admit([start(one) for one in claims], now=bench.now, lease=LEASE)
    started = [one.occurrence for one in admitted]
    runs = [one for one in started if one.route == "workflow"]
    assert (len(started), len(runs)) == (2 * count, count)
    with meter.of("reserve"):
        store.reserve([a_call(one, 1) for one in started])
    with meter.of("settle_calls"):
        used = Usage(input_tokens=5, cost=5)
        settled = [Settled(call_id=f"{one.id}/1", tenant="acme", usage=used) for one in started]
        assert all(store.settle_calls(settled))
    with meter.of("record_usage"):
        told = [UsageRecord(call_id=f"told-{one.id}", tenant="acme", user="ada", usage=used) for one in started]
        assert all(store.record_usage(told))
    for verb, phase, ended in (("begin", StepPhase.RUNNING, None), ("end", StepPhase.COMPLETED, bench.now)):
        writes = [
            StepWrites(
                occurrence_id=one.id,
                fence=one.fence,
                run=WorkflowRun(occurrence_id=one.id, workflow_id="etl", version=1, inputs={}, started=bench.now),
                steps=[StepRecord(step_id="a", phase=phase, attempt=1, started=bench.now, ended=ended)],
            )
            for one in runs
        ]
        with meter.of(f"commit_steps: {verb}"):
            assert all(store.commit_steps(writes))
    with meter.of("open_steps"):
        store.open_steps([one.id for one in runs])
    with meter.of("settle"):
        assert all(store.settle([bench.settlement(one) for one in started]))
    with meter.of("add_audit_entries"):
        store.add_audit_entries("acme", [AuditEntry(at=bench.now, caller="ada", operation="edit")] * count)
    look(bench, meter, started)


def look(bench, meter, started):
    """Read lists and timelines, a page of each."""
    store, uids = bench.store, tuple(sorted({one.uid for one in started}))
    span = Span(since=bench.now - MINUTE, until=bench.now + MINUTE, now=bench.now)
    reads = {
        "next_time": lambda: store.next_time([ROUTE]),
        "search": lambda: store.search("acme", OccurrenceFilter(), LISTED),
        "marks": lambda: store.marks(MarkScope(tenant="acme"), span, LISTED),
        "marks of schedules": lambda: store.marks(MarkScope(tenant="acme", uids=uids), span, LISTED),
        "count_marks": lambda: store.count_marks(MarkScope(tenant="acme"), span, MINUTE),
        "last_marks": lambda: store.last_marks(uids, LISTED, now=bench.now),
        "schedules": lambda: store.schedules("acme", limit=LISTED),
        "audit_entries": lambda: store.audit_entries("acme", LISTED),
        "workflow_runs": lambda: store.workflow_runs("acme", LISTED),
        "budgets": lambda: store.budgets("acme", LISTED),
        "costs_of_runs": lambda: store.costs_of_runs(uids[0], LISTED),
        "run_usage": lambda: store.run_usage(started[0].id),
        "backlog": lambda: store.backlog(bench.now, LISTED),
        "activities": lambda: store.activities(uids),
    }
    for verb, read in reads.items():
        with meter.of(verb):
            read()


def of_somebody_else(bench):
    """A history, calls of models and audit entries that are none of the tenant's."""
    store = bench.store
    for number in range(STORED):
        schedule = bench.create_quiet(f"other-{number}", owner=OTHER)
        store.add([factories.occurrence(schedule, manual("a"))])
    for claim in bench.claim(limit=STORED):
        bench.settle(bench.start(claim))
    usage = Usage(input_tokens=1, cost=1)
    store.record_usage([UsageRecord(call_id=f"c-{n}", tenant="other", user="bob", usage=usage) for n in range(STORED)])
    store.add_audit_entries("other", [AuditEntry(at=bench.now, caller="bob", operation="edit")] * STORED)


def test_many_take_as_many_round_trips_as_few(make_bench):
    few, meter = make_bench()
    a_day(few, meter, FEW)
    many, meter_of_many = make_bench()
    a_day(many, meter_of_many, MANY)
    more = {
        verb: (meter.trips[verb], trips) for verb, trips in meter_of_many.trips.items() if trips > meter.trips[verb]
    }
    assert not more, more
    assert max(meter.trips[verb] for verb in ("claim", "admit", "settle", "reserve", "settle_calls")) <= 4


def test_what_is_only_stored_is_not_read(make_bench):
    alone, meter = make_bench()
    a_day(alone, meter, FEW)
    beside, meter_beside = make_bench()
    of_somebody_else(beside)
    a_day(beside, meter_beside, FEW)
    assert meter_beside.trips == meter.trips
    more = {
        verb: (meter.bytes[verb], size)
        for verb, size in meter_beside.bytes.items()
        if size > 1.2 * meter.bytes[verb] + 500
    }
    assert not more, more


def test_lists_take_nothing_from_those_who_write(make_bench, redis):
    bench, _ = make_bench()
    bench.create("uid-1")
    for claim in bench.claim():
        bench.settle(bench.start(claim))
    store, named = bench.store, ScheduleFilter(text="uid")
    occurrences = [one.id for one in store.occurrences("uid-1")]
    lists = [
        lambda: store.schedules("acme", limit=5, wanted=named),
        lambda: store.count_schedules("acme", named),
        lambda: store.activities(["uid-1"]),
        lambda: store.runs("uid-1", 5),
        lambda: store.last_runs(occurrences),
        lambda: store.backfills("uid-1"),
    ]

    def scripts():
        return redis.run("INFO", "commandstats")["cmdstat_evalsha"]["calls"]

    before = scripts()
    for read in lists:
        read()
    assert scripts() == before  # no commit checks what they have read, so none waits for its turn
