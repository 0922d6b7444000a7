"""Work that a node on PostgreSQL hands back when it stops: other nodes are notified."""

import threading
from dataclasses import replace

from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance.bench import Bench, HandClock

PATIENCE = 60


def test_a_run_that_is_handed_back_is_news_to_the_others(database):
    url = database.url
    clock, told = HandClock(), threading.Event()
    bench, other = Bench(PostgresStore(url, clock), clock), PostgresStore(url, clock)
    bench.store.open()
    begun = bench.run(bench.create_quiet(), "a")
    other.listen(told.set)
    try:
        assert told.wait(PATIENCE), "when it begins to listen, it may have missed something"
        told.clear()
        unfinished = replace(bench.settlement(begun).run, outcome=Outcome.LEASE_LOST)
        assert bench.settle(
            begun, phase=Phase.PENDING, reason=Reason.LEASE_LOST, run=unfinished, retry_at=bench.now, attempt=0
        )
        assert told.wait(PATIENCE)
    finally:
        other.close()
        bench.store.close()
