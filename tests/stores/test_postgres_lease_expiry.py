"""A lease on PostgreSQL while another transaction locks its row: it is lost when it has expired, not before."""

from noonmark.testing.conformance.bench import LEASE, Bench, hold


def test_what_is_being_taken_over_is_lost_and_what_is_only_busy_is_not(stores, watcher):
    store = stores.open()
    bench = Bench(store, store._clock)
    running = bench.run(bench.create_quiet(), "a")
    watcher.run("BEGIN")
    watcher.fetch(f"SELECT key FROM {stores.name}.occurrences FOR UPDATE")  # noqa: S608 - our own names
    assert store.renew([hold(running)], now=bench.now, lease=LEASE).lost == frozenset()
    bench.advance(LEASE)
    assert store.renew([hold(running)], now=bench.now, lease=LEASE).lost == {running.id}
    watcher.run("ROLLBACK")
    assert store.renew([hold(running)], now=bench.now, lease=LEASE).lost == frozenset(), "nobody took it"
