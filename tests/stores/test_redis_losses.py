"""A Redis server that loses its data, is full, or refuses a part of a commit."""

from contextlib import closing

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.planner import first_plan
from noonmark.stores.redis.store import RedisStore
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD
from tests.stores.test_sqlite_file import plans

LATER = 1 << 60


@pytest.fixture
def open_store(redis_url):
    """Opens stores on one database, as nodes do."""
    stores = []

    def opened(options="", user=""):
        store = RedisStore(redis_url.replace("redis://", f"redis://{user}") + options)
        stores.append(store)
        store.open()
        return store

    yield opened
    for store in stores:
        store.close()


def contents(redis):
    """All keys and values that a commit writes."""
    with closing(redis.client()) as client:
        keys = [key for key in sorted(client.keys("noonmark:*")) if b":numbers:" not in key and b":commits" not in key]
        return {key: client.dump(key) for key in keys}


def test_node_does_not_write_into_a_store_that_is_gone(redis, open_store):
    store = open_store()
    assert store.create(plans(1)) == [True]
    redis.empty()
    with pytest.raises(StoreUnavailable, match=r"there is no store in .*`noonmark migrate`"):
        store.create(plans(1))
    assert contents(redis) == {}
    open_store()
    assert store.create(plans(1)) == [True]


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.schedules("acme", limit=5),
        lambda store: store.find("acme", "schedule-of-uid-0"),
        lambda store: store.count_schedules("acme"),
        lambda store: store.count_phases("acme"),
        lambda store: store.tenants(5),
        lambda store: store.occurrence("occ_none"),
        lambda store: store.recent_changes(0, 5),
        lambda store: store.inspect(limit=5),
    ],
)
def test_store_that_is_gone_does_not_seem_to_be_empty(redis, open_store, read):
    store = open_store()
    redis.empty()
    with pytest.raises(StoreUnavailable, match=r"there is no store in .*`noonmark migrate`"):
        read(store)
    assert contents(redis) == {}


def test_volatile_store_begins_again_when_it_is_gone(redis, open_store, caplog):
    store = open_store("?volatile=1")
    assert store.create(plans(2)) == [True, True]
    redis.empty()
    assert store.create(plans(1)) == [True]
    assert "has lost the store; it is empty now" in caplog.text
    assert len(open_store().schedules("acme", limit=5)) == 1


def test_node_does_not_write_data_of_another_format(redis, open_store):
    store = open_store()
    before = contents(redis)
    redis.run("SET", "noonmark:format", "0002")
    with pytest.raises(StoreUnavailable, match="format '0002'"):
        store.create(plans(1))
    redis.run("SET", "noonmark:format", "0001")
    assert contents(redis) == before


def test_schedules_of_a_lost_store_are_not_taken_for_those_that_have_their_numbers(redis, open_store):
    store = open_store()
    store.create(plans(1, "lost"))
    [lost] = store.schedules("acme", limit=5)
    redis.empty()
    open_store().create([first_plan(factories.schedule("found-0", schedule_id="found"), lookahead=LOOKAHEAD)])
    [schedule] = store.schedules("acme", limit=5)
    assert (lost.schedule.uid, schedule.schedule.uid, schedule.schedule.schedule_id) == ("lost-0", "found-0", "found")


def test_full_server_refuses_what_adds_and_takes_what_deletes(redis, open_store):
    store = open_store()
    store.create(plans(3))
    waiting = [one.id for n in range(3) for one in store.occurrences(f"uid-{n}")]
    assert len(waiting) == 3
    assert all(map(store.cancel, waiting))
    before = contents(redis)
    redis.run("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailable, match="has reached its maxmemory and takes no writes"):
            store.create(plans(1, "more"))
        assert contents(redis) == before
        assert store.prune(before=LATER, keep=0, limit=10) == 3
    finally:
        redis.run("CONFIG", "SET", "maxmemory", "0")
    assert store.known(waiting) == set()
    assert not store.inspect(limit=100).damaged


def test_user_who_may_not_send_messages_is_refused_and_writes_nothing(redis, open_store):
    rights = ("resetkeys", "resetchannels", "~noonmark:*", "&noonmark:*", "+@all")
    redis.run("ACL", "SETUSER", "app", "on", ">secret", *rights)
    try:
        store = open_store(user="app:secret@")
        before = contents(redis)
        redis.run("ACL", "SETUSER", "app", "resetchannels")
        with pytest.raises(StoreUnavailable, match=r"refuses a command: .*publish"):
            store.create(plans(1))
        assert contents(redis) == before
        with pytest.raises(StoreUnavailable, match=r"the user lacks a right: .*channels"):
            open_store(user="app:secret@")
    finally:
        redis.run("ACL", "DELUSER", "app")
