"""Many callers on two nodes race for the last places of a quota: exactly as many pass as there are places."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from noonmark.core.errors import QuotaExceeded
from noonmark.core.ids import manual
from noonmark.core.planner import first_plan
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.schedule import Owner
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD

CALLS, LIMIT, THREADS = 1_000, 50, 8
QUOTA = Quota(Resource.SCHEDULES, Scope.USER, LIMIT)
OTHER = Owner(tenant="other", user="ada")


@pytest.fixture
def nodes(make_store):
    """Two stores on one database, as two nodes have them."""
    made = [make_store() for _ in range(2)]
    for store in made:
        store.open()
    yield made
    for store in made:
        store.close()


def test_of_many_racing_creates_as_many_pass_as_the_limit_allows(nodes):
    def create(number):
        plan = replace(first_plan(factories.schedule(f"uid-{number}"), lookahead=LOOKAHEAD), quotas=(QUOTA,))
        try:
            return nodes[number % 2].create([plan]) == [True]
        except QuotaExceeded as error:
            return error.limit["used"] != LIMIT

    with ThreadPoolExecutor(THREADS) as threads:
        passed = list(threads.map(create, range(CALLS)))
    assert sum(passed) == LIMIT
    assert nodes[0].count_schedules("acme") == LIMIT
    other = first_plan(factories.schedule("other", owner=OTHER), lookahead=LOOKAHEAD)
    assert nodes[1].create([replace(other, quotas=(QUOTA,))]) == [True]


def test_of_many_racing_runs_as_many_wait_as_the_limit_allows(nodes):
    schedule, limit = factories.schedule("busy", trigger=EventTrigger("seen")), Quota(Resource.QUEUED, Scope.TENANT, 20)
    assert nodes[0].create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]

    def run(number):
        try:
            return nodes[number % 2].add([factories.occurrence(schedule, manual(str(number)))], limits=[limit])[0]
        except QuotaExceeded:
            return False

    with ThreadPoolExecutor(THREADS) as threads:
        assert sum(threads.map(run, range(60))) == 20
    assert nodes[0].count_waiting("acme") == 20
