"""Which Redis servers a store accepts, what it says about them, and which data it refuses."""

import logging
import re
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noonmark.core.errors import InvalidSchedule, StoreUnavailable
from noonmark.stores.redis import bootstrap
from noonmark.stores.redis.address import Address, parse_address
from noonmark.stores.redis.bootstrap import ServerFacts, is_lossy, promise, refusal
from noonmark.stores.redis.copy_endpoint import RedisEndpoint
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.redis.transactions.client import Client
from tests.servers.redis import QUICK, running
from tests.stores.test_postgres_listener import listening
from tests.stores.test_sqlite_file import plans

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "redis.md"

OURS = Address("cache", 6379, 0, prefix="ours", timeout=2.5, is_volatile=True)
SAFE = {"version": "7.2.4", "has_log": True, "fsync": "always", "snapshots": ""}


def opened(url, **options):
    """Open a store at an address as a node does."""
    address = parse_address(url)
    with closing(Client(address)) as client:
        bootstrap.log_promise(bootstrap.make_ready(client, address, **options), address)


@contextmanager
def refused(*parts):
    with pytest.raises(StoreUnavailable) as caught:
        yield
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"version": "6.2.0"}, None),
        ({"version": "6.0.16"}, "version 6.0.16, and Noonmark needs 6.2"),
        ({"version": "unknown"}, "version unknown"),
        ({"mode": "cluster"}, "Redis Cluster"),
        ({"mode": "sentinel"}, "a Sentinel, which has no data"),
        ({"role": "slave"}, "name the primary server"),
        ({"eviction": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"eviction": "volatile-ttl"}, "set it to noeviction"),
        ({"has_log": False}, "writes nothing to a disk; set appendonly to yes"),
        ({"has_log": False, "snapshots": None}, "does not say if it has save points"),
        ({"has_log": False, "snapshots": "3600 1"}, None),
        ({"has_log": True, "fsync": None, "snapshots": None}, None),
    ],
)
def test_servers_that_would_lose_data_are_refused(facts, reason):
    error = refusal(ServerFacts(**{**SAFE, **facts}), is_volatile=False)
    assert error == reason if reason is None else reason in error


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"eviction": "allkeys-lru"}, None),
        ({"has_log": False}, None),
        ({"mode": "cluster"}, "Redis Cluster"),
        ({"mode": "sentinel"}, "a Sentinel, which has no data"),
        ({"role": "slave"}, "replica"),
        ({"version": "5.0.7"}, "6.2"),
    ],
)
def test_volatile_accepts_losses_and_nothing_else(facts, reason):
    error = refusal(ServerFacts(**{**SAFE, **facts}), is_volatile=True)
    assert error == reason if reason is None else reason in error


@pytest.mark.parametrize(
    ("facts", "sentence", "lossy"),
    [
        ({}, "every acknowledged write survives a crash of the server (appendfsync always)", False),
        ({"is_rewrite_exempt": True}, "except during a rewrite of its append-only file", False),
        ({"fsync": "everysec"}, "loses acknowledged writes of about the last second", False),
        ({"fsync": "no"}, "loses what the system has not written yet", True),
        ({"fsync": None}, "does not show its appendfsync", False),
        ({"has_log": False, "snapshots": "3600 1"}, "since its last snapshot (save 3600 1)", True),
        ({"has_log": False}, "a restart of the server loses everything", True),
        ({"eviction": "allkeys-lru"}, "any part of the store may be deleted when memory is short", True),
        ({"replicas": 1}, "1 replica follows asynchronously, so a fail-over loses acknowledged writes", False),
        ({"replicas": 2}, "2 replicas follow asynchronously", False),
    ],
)
def test_promise_follows_the_settings(facts, sentence, lossy):
    described = ServerFacts(**{**SAFE, **facts})
    assert sentence in promise(described)
    assert is_lossy(described) is lossy


def test_promise_is_logged_at_the_start(redis, redis_url, caplog):
    caplog.set_level(logging.INFO, "noonmark.store")
    redis.run("CONFIG", "SET", "appendfsync", "always")
    opened(redis_url)
    redis.run("CONFIG", "SET", "appendfsync", "no")
    opened(redis_url)
    always, never = ((one.levelname, one.getMessage()) for one in caplog.records)
    kept, lost = "every acknowledged write survives a crash of the server", "a crash of the server's machine loses what"
    assert always == ("INFO", f"Redis at {redis.address}/0: {kept} (appendfsync always)")
    assert never == ("WARNING", f"Redis at {redis.address}/0: {lost} the system has not written yet (appendfsync no)")


def test_server_that_evicts_is_refused_unless_that_is_accepted(redis, redis_url):
    redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with refused("maxmemory-policy is allkeys-lru"):
            opened(redis_url)
        opened(f"{redis_url}?volatile=1")
    finally:
        redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_server_without_persistence_and_one_with_snapshots_only():
    with running(save="") as server:
        with refused("writes nothing to a disk"):
            opened(server.url())
        opened(server.url(volatile=1))
        server.run("CONFIG", "SET", "save", "3600 1")
        opened(server.url())


def test_cluster_and_replica_are_refused():
    with running(cluster_enabled="yes", **QUICK) as server:
        url = server.url(volatile=1)
        with refused("Redis Cluster", "single server"):
            opened(url)
        with closing(RedisStore(url)) as store, refused("Redis Cluster"):
            store.condition()
        with closing(RedisEndpoint(url)) as endpoint, refused("Redis Cluster"):
            endpoint.unfinished()
    with running(**QUICK) as replica:
        replica.run("REPLICAOF", "127.0.0.1", "1")
        with refused("replica", "primary"):
            opened(replica.url())


def test_rights_of_the_guide_are_enough(redis, redis_url):
    [rule] = re.findall(r"^ACL SETUSER .*$", GUIDE.read_text("utf-8"), re.MULTILINE)
    redis.run(*rule.split())
    try:
        store = RedisStore(redis_url.replace("redis://", "redis://noonmark:password@"))
        with closing(store):
            store.open()
            bell = listening(store)
            with closing(RedisStore(redis_url)) as other:
                other.open()
                bell.wait(2)
            assert store.create(plans(3)) == [True, True, True]
            assert len(store.schedules("acme", after=None, limit=5)) == 3
            assert "appendfsync no" in store.condition().promise
            assert not store.inspect(limit=100).damaged
    finally:
        redis.run("ACL", "DELUSER", "noonmark")


def test_user_who_may_not_ask_for_settings(redis, redis_url):
    rights = ("resetkeys", "resetchannels", "~noonmark:*", "&noonmark:*", "+@all", "-config")
    redis.run("ACL", "SETUSER", "app", "on", ">secret", *rights)
    try:
        url = redis_url.replace("redis://", "redis://app:secret@")
        opened(url)
        with refused("refuses the user or password"):
            opened(redis_url.replace("redis://", "redis://app:wrong@"))
        with refused("the user lacks a right: ", "keys"):
            opened(f"{url}?prefix=other")
    finally:
        redis.run("ACL", "DELUSER", "app")


def test_format_of_the_data(redis, redis_url):
    with refused("there is no store", "noonmark migrate"):
        opened(redis_url, migrates=False)
    opened(redis_url)
    opened(redis_url, migrates=False)
    assert redis.run("GET", "noonmark:format") == b"0001"
    redis.run("SET", "noonmark:format", "0002")
    with refused("format '0002'", "upgrade Noonmark"):
        opened(redis_url)
    redis.run("SET", "noonmark:format", "copy 0027 0123456789abcdef")
    with refused("unfinished copy"):
        opened(redis_url)
    redis.run("DEL", "noonmark:format")
    redis.run("HSET", "noonmark:schedules", "a", "b")
    with refused("damaged", "noonmark:format"):
        opened(redis_url)
    opened(f"{redis_url}?prefix=other")


def test_condition_says_what_the_server_could_not_write(redis, redis_url):
    opened(redis_url)
    address = parse_address(redis_url)
    with closing(Client(address)) as client:
        found = bootstrap.condition(client, address)
        assert (found.kind, found.schema, found.expected_schema, found.problems) == ("redis", "0001", "0001", ())
        assert found.version == redis.run("INFO", "server")["redis_version"]
        assert found.is_lossy


def test_server_that_is_away_is_named_without_its_password(redis):
    with refused(f"redis://127.0.0.1:{redis.port}/0"):
        opened(redis.url().replace("redis://", "redis://app:hidden@"))
    with refused("redis://127.0.0.1:1/0 did not answer"):
        opened("redis://127.0.0.1:1/0")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", Address("cache", 6379, 0)),
        ("redis://cache:7000/3", Address("cache", 7000, 3)),
        ("rediss://me:a%2Fb@[::1]/1", Address("::1", 6379, 1, "me", "a/b", tls=True)),
        ("redis://:only@cache", Address("cache", 6379, 0, None, "only")),
        ("redis://cache?prefix=ours&timeout=2.5&volatile=1", OURS),
    ],
)
def test_addresses(url, expected):
    assert parse_address(url) == expected
    assert "a/b" not in repr(parse_address(url))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://cache/name", "cannot be read"),
        ("redis://cache:port", "cannot be read"),
        ("redis://user:pa/ss@cache", "cannot be read"),
        ("redis://cache?pool=5", "unknown option 'pool'"),
        ("redis://cache?prefix=a:b", "prefix 'a:b' must be"),
        ("redis://cache?timeout=0", "timeout '0' must be"),
        ("redis://cache?timeout=soon", "timeout 'soon' must be"),
        ("redis://cache?volatile=yes", "volatile 'yes' must be 0 or 1"),
    ],
)
def test_addresses_that_cannot_be_read(url, problem):
    with pytest.raises(InvalidSchedule) as caught:
        parse_address(url)
    assert problem in str(caught.value)
    assert "pa/ss" not in str(caught.value)
