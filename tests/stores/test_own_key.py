"""The key of a store: all callers get the same one, and it is durable."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sqlite import SqliteStore

NODES = 4


def asked_at_once(make_store):
    """What each of several nodes is told, none of which was there before the others."""
    (first := make_store()).open()
    first.close()
    nodes, together = [make_store() for _ in range(NODES)], Barrier(NODES)

    def ask(store):
        store.open()
        together.wait()
        try:
            return store.own_key()
        finally:
            store.close()

    with ThreadPoolExecutor(NODES) as threads:
        return list(threads.map(ask, nodes))


def test_nodes_that_share_a_file_are_told_one_key(tmp_path):
    path = tmp_path / "noonmark.db"
    told = asked_at_once(lambda: SqliteStore(path, SystemClock().micros))
    assert (len(told), len(set(told))) == (NODES, 1)
    assert set(asked_at_once(lambda: SqliteStore(tmp_path / "other.db", SystemClock().micros))) != set(told)
    store = SqliteStore(path, SystemClock().micros)
    store.open()
    assert store.own_key() == told[0]
    store.close()


def test_nodes_that_share_a_server_are_told_one_key(postgres):
    told = asked_at_once(lambda: PostgresStore(f"{postgres.url()}?schema=own_key"))
    assert (len(told), len(set(told))) == (NODES, 1)


def test_nodes_that_share_a_redis_server_are_told_one_key(redis_url):
    told = asked_at_once(lambda: RedisStore(redis_url))
    assert (len(told), len(set(told))) == (NODES, 1)


@pytest.mark.parametrize("damaged", ["", "not a key", "ab" * 31, b"\xff" * 32])
def test_a_damaged_key_is_an_error_that_does_not_repeat_it(damaged, tmp_path):
    store = SqliteStore(tmp_path / "noonmark.db", SystemClock().micros)
    store.open()
    store.own_key()
    with store._connections.writing() as connection:
        connection.execute("UPDATE secrets SET sealed = ? WHERE tenant = ''", (damaged,))
    with pytest.raises(StoreUnavailable, match=r"record of the store's own key is damaged\Z"):
        store.own_key()
    store.close()
