"""A Redis store with one of everything answers as a SQLite store with the same history."""

import pytest

from noonmark.core.lifecycle import LIVE, Phase
from noonmark.ports.budgets import UsageBy
from noonmark.ports.records import MarkScope, OccurrenceFilter, ScheduleFilter, Span
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import MINUTE
from tests.driver.rig import ROUTE
from tests.stores.population import TENANTS, populate

DATABASE = 11
ENDED = frozenset({Phase.FAILED, Phase.COMPLETED})


@pytest.fixture(scope="module")
def twins(redis, tmp_path_factory):
    """Both stores, and the time at which they are read."""
    path = tmp_path_factory.mktemp("answers") / "noonmark.db"
    redis.run("FLUSHDB", database=DATABASE)
    now = populate(lambda clock: SqliteStore(path, clock))
    assert populate(lambda clock: RedisStore(redis.url(DATABASE), clock)) == now
    stores = SqliteStore(path, lambda: now), RedisStore(redis.url(DATABASE), lambda: now)
    for store in stores:
        store.open()
    yield *stores, now
    for store in stores:
        store.close()


def unordered(answers):
    return sorted(map(repr, answers))


def pages(store, tenant, uid, phases):
    """The occurrences of a schedule, in pages of three."""
    found, before = [], None
    while True:
        page = store.search(tenant, OccurrenceFilter(uid=uid, phases=phases), 3, before=before)
        found.append(page.occurrences)
        before = page.after
        if before is None:
            return [one for occurrences in found for one in occurrences]


def reads(store, tenant, now):
    """What there is to read of a tenant, by name."""
    span = Span(since=now - 100 * MINUTE, until=now + 10 * MINUTE, now=now)
    past = Span(since=now - 90 * MINUTE, until=now - 10 * MINUTE, now=now)
    edges = [now - 100 * MINUTE, now - 50 * MINUTE, now + MINUTE]
    everything, uids = MarkScope(tenant=tenant), [one.schedule.uid for one in store.schedules(tenant, limit=99)]
    named = MarkScope(tenant=tenant, uids=tuple(uids))
    of_ada = MarkScope(tenant=tenant, wanted=ScheduleFilter(user="ada"))
    return {
        "recent changes": unordered(store.recent_changes(now - MINUTE, 99)),
        "all changes": unordered(store.recent_changes(0, 999)),
        "workload": store.workload(now=now, limit=50),
        "workload of the tenant": store.workload(now=now, limit=50, tenant=tenant),
        "backlog": store.backlog(now, 99),
        "marks": store.marks(everything, span, 99),
        "marks of schedules": store.marks(named, span, 99),
        "first marks": [
            store.marks(one, of, few) for one in (everything, of_ada) for of in (span, past) for few in (1, 4, 9)
        ],
        "counts": [
            unordered(store.count_marks(one, of, MINUTE)) for one in (everything, named, of_ada) for of in (span, past)
        ],
        "last marks": store.last_marks(uids, 3, now=now),
        "trends": [store.trend(uid, edges, now=now) for uid in uids],
        "lateness": [store.lateness(one, of, 95) for one in (everything, named, of_ada) for of in (span, past)],
        "horizons": store.horizons(everything, until=now + 10 * MINUTE, limit=99),
        "search": [store.search(tenant, OccurrenceFilter(phases=one), 99) for one in (frozenset(), ENDED)],
        "pages of schedules": [
            pages(store, tenant, uid, phases) for uid in uids for phases in (frozenset(), ENDED, LIVE)
        ],
        "phases": [store.count_phases(tenant), store.count_phases(tenant, "bob")],
        "usage": [store.usage(tenant, by, since=0, until=now + 1, limit=9) for by in UsageBy],
        "spenders": store.spenders(since=0, above=0, limit=9),
        "workflow runs": store.workflow_runs(tenant, 9),
        "approvals": store.approvals(tenant, 9),
        "sessions": store.sessions(tenant, 9),
        "mobs": store.mobs(tenant, 9),
        "bundles": store.bundles(tenant, 9),
        "secrets": store.secrets(tenant),
        "keys": store.api_keys(None, 9),
        "halts": store.halts(),
        "budgets": store.budgets(tenant, 9),
        "proposals": store.proposals(tenant, 9),
        "audit log": [store.audit_entries(tenant, 99), store.audit_entries(tenant, 99, changes=True)],
        "activities": store.activities(uids),
        "runs": [store.runs(uid) for uid in uids],
        "events": store.events(tenant, 99),
        "nodes": store.nodes(),
        "tenants": store.tenants(9),
        "next time": store.next_time([ROUTE]),
        "newest time": store.newest_time(),
        "plannable": store.plannable(now, 99),
    }


@pytest.mark.parametrize("tenant", TENANTS)
def test_every_list_and_count_is_the_same(twins, tenant):
    sqlite, redis, now = twins
    expected, found = reads(sqlite, tenant, now), reads(redis, tenant, now)
    assert expected["marks"]
    assert {name: answer for name, answer in found.items() if answer != expected[name]} == {}
