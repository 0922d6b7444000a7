"""Connections to Redis that break: reads are tried again, and a commit whose answer is lost says so."""

from contextlib import closing

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.redis.store import RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis_conversation import RedisConversation
from tests.stores.test_sqlite_file import plans


@pytest.fixture
def proxy(redis):
    with closing(Proxy(redis.port, RedisConversation)) as made:
        yield made


@pytest.fixture
def store(redis, redis_url, proxy):
    made = RedisStore(redis.url(port=proxy.port))
    made.open()
    with closing(made):
        yield made


def names(store):
    return sorted(one.schedule.schedule_id for one in store.schedules("acme", after=None, limit=100))


def test_connections_that_were_ended_are_replaced(store, redis, proxy):
    for number in range(5):
        redis.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert store.create(plans(1, f"a-{number}")) == [True]
        proxy.cut()
        assert len(names(store)) == number + 1


def test_transaction_whose_connection_breaks_while_it_reads_is_tried_again(store, proxy):
    tries = []

    def work(uow):
        tries.append(uow.transaction.now())
        if len(tries) < 3:
            proxy.refuse()
            proxy.cut()
        try:
            return store._client.size("schedules")
        finally:
            proxy.heal()

    for transact in (store._read, store._glance, store._write):
        tries.clear()
        assert transact(work) == 0
        assert len(tries) == 3


def test_lost_answer_of_a_commit_is_unknown_and_not_repeated(store, redis_url, proxy):
    proxy.drop_replies()
    with pytest.raises(StoreUnavailable, match="whether the transaction was written is unknown"):
        store.create(plans(1))
    proxy.heal()
    assert proxy.seen["dropped"] == 1
    assert len(names(store)) == 1
    assert store.create(plans(1)) == [False], "it is there"


def test_server_that_is_away_is_named(store, proxy):
    proxy.refuse()
    proxy.cut()
    with pytest.raises(StoreUnavailable, match=r"Redis at redis://127.0.0.1:\d+/0 did not answer"):
        store.create(plans(1))
    proxy.heal()
    assert store.create(plans(1)) == [True]


def test_silent_server_is_given_up_in_time(redis, redis_url, proxy):
    with closing(RedisStore(redis.url(port=proxy.port, timeout=0.5))) as store:
        store.open()
        proxy.black_hole()
        with pytest.raises(StoreUnavailable, match="did not answer: Timeout"):
            store.clock()
        proxy.heal()
        assert store.create(plans(1)) == [True]
