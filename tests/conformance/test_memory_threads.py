"""The memory store is thread-safe: each call is atomic."""

from concurrent.futures import ThreadPoolExecutor
from sys import getswitchinterval, setswitchinterval

import pytest

from noonmark.core.ids import manual
from noonmark.core.planner import first_plan
from noonmark.core.triggers import EventTrigger
from noonmark.stores.memory import MemoryStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, Bench
from noonmark.testing.factories import NOW

THREADS, EACH = 4, 200


@pytest.fixture
def _restless():
    """Threads take turns as often as they can."""
    before = getswitchinterval()
    setswitchinterval(1e-6)
    yield
    setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
def test_threads_share_the_work_and_nothing_is_done_twice():
    clock = HandClock()
    store = MemoryStore(clock)
    bench = Bench(store, clock)
    schedules = [factories.schedule(f"uid-{number}", trigger=EventTrigger("seen")) for number in range(THREADS * EACH)]
    store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules])

    def work(number):
        mine = schedules[number * EACH : (number + 1) * EACH]
        claimed = []
        for own in mine:
            store.add([factories.occurrence(own, manual("key"), nominal=NOW)])
            claims = store.claim(f"node-{number}", [ROUTE], now=NOW, until=NOW, limit=2, lease=LEASE)
            for claim in claims:
                bench.settle(bench.start(claim))
            claimed += [claim.occurrence.id for claim in claims]
        return claimed

    with ThreadPoolExecutor(THREADS) as pool:
        claimed = [one for ids in pool.map(work, range(THREADS)) for one in ids]
    assert len(claimed) == len(set(claimed))
    rest = store.claim("node", [ROUTE], now=NOW, until=NOW, limit=THREADS * EACH, lease=LEASE)
    assert len(claimed) + len(rest) == THREADS * EACH
    assert sum(len(store.runs(one.uid)) for one in schedules) == len(claimed)
