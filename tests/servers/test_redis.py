"""The Redis server of tests keeps what it acknowledged, stops on request, and has replicas."""

import pytest
from redis.exceptions import ReadOnlyError

from tests.servers.redis import QUICK, running, wait_until


def test_restart_after_kill_has_the_data():
    with running(appendonly="yes", appendfsync="always") as server:
        server.run("SET", "key", "value")
        server.kill()
        server.start()
        assert server.run("GET", "key") == b"value"


def test_settings_may_change_at_a_restart():
    with running(appendonly="yes") as server:
        server.end()
        server.start(maxmemory_policy="allkeys-lru")
        assert server.run("CONFIG", "GET", "maxmemory-policy") == {b"maxmemory-policy": b"allkeys-lru"}


def test_replica_follows_and_is_promoted():
    with running(**QUICK) as primary, running(**QUICK) as replica:
        primary.run("SET", "key", "value")
        replica.follow(primary)
        assert replica.run("GET", "key") == b"value"
        with pytest.raises(ReadOnlyError):
            replica.run("SET", "key", "other")
        primary.kill()
        replica.follow(None)
        wait_until(lambda: replica.run("SET", "key", "other"), "the replica is not promoted")


def test_every_test_has_an_empty_database(redis, redis_url):
    assert redis.run("DBSIZE") == 0
    assert redis_url == f"{redis.address}/0"
