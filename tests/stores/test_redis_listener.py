"""Notifications on Redis: a node gets those of other processes, over any connection."""

from contextlib import closing

import pytest

from noonmark.stores.redis import listener
from noonmark.stores.redis.address import parse_address
from noonmark.stores.redis.transactions.client import Client
from tests.embedded.waiting import eventually
from tests.servers.proxy import Proxy
from tests.servers.redis_conversation import RedisConversation
from tests.stores.test_postgres_listener import Bell, listeners


class Node:
    """A client and its listener."""

    def __init__(self, url):
        address = parse_address(url)
        self.client = Client(address)
        self.listener = listener.make_listener(address, self.client)

    def write(self):
        """Commit something, and tell others."""
        assert self.client.commit(["numbers"], ["s", 1, 1, "field", "value", "p"]) > 0

    def listening(self):
        """A bell that has been rung for the first time, since anything may have happened before."""
        bell = Bell()
        self.listener.listen(bell.ring)
        bell.wait(1)
        return bell

    def close(self):
        self.listener.close()
        self.client.close()


@pytest.fixture
def nodes(redis, redis_url):
    collected = []

    def make(url=redis_url):
        collected.append(Node(url))
        return collected[-1]

    yield make
    for node in collected:
        node.close()
    assert not listeners()


@pytest.fixture
def proxy(redis):
    with closing(Proxy(redis.port, RedisConversation)) as made:
        yield made


def test_writes_of_others_notify_and_own_ones_do_not(nodes):
    node, other = nodes(), nodes()
    bell = node.listening()
    for _ in range(3):
        node.write()
    other.write()
    bell.wait(2)
    assert bell.count == 2


def test_stores_with_another_prefix_are_not_notified(nodes, redis_url):
    node, other, elsewhere = nodes(), nodes(), nodes(f"{redis_url}?prefix=noonmark2")
    bell = node.listening()
    elsewhere.write()
    other.write()
    bell.wait(2)
    assert bell.count == 2


def test_connection_that_was_ended_is_replaced_and_what_was_missed_made_up_for(nodes, redis, monkeypatch, caplog):
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 3_600)  # it learns that the connection has ended without asking
    node, other = nodes(), nodes()
    bell = node.listening()
    redis.run("CLIENT", "KILL", "TYPE", "pubsub")
    bell.wait(2)
    other.write()
    bell.wait(3)
    assert bell.count == 3
    [told] = [one.getMessage() for one in caplog.records]
    assert told.startswith("SUBSCRIBE connection lost; retrying in 0.1 s: ")


def test_silent_connection_is_noticed_and_replaced(nodes, redis, proxy, monkeypatch):
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.05)
    node, other = nodes(redis.url(port=proxy.port, timeout=0.5)), nodes()
    bell = node.listening()
    before = proxy.seen["connections"]
    proxy.black_hole()
    eventually(lambda: proxy.seen["connections"] > before)
    proxy.cut()
    proxy.heal()
    bell.wait(2)
    rings = bell.count
    other.write()
    bell.wait(rings + 1)


def test_quiet_connection_stays(nodes, redis, proxy, monkeypatch):
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.02)
    node = nodes(redis.url(port=proxy.port))
    bell = node.listening()

    def pings():
        return redis.run("INFO", "commandstats").get("cmdstat_ping", {"calls": 0})["calls"]

    before = pings()
    eventually(lambda: pings() > before + 5)
    assert (bell.count, proxy.seen["connections"]) == (1, 1)


@pytest.mark.parametrize("trouble", ["none", "refuse", "black_hole"])
def test_closing_ends_the_thread_at_any_point(nodes, redis, proxy, trouble):
    node = nodes(redis.url(port=proxy.port, timeout=600))
    node.listening()
    before = proxy.seen["connections"]
    if trouble != "none":
        getattr(proxy, trouble)()
        proxy.cut()
    if trouble == "black_hole":  # it is let in, and nobody answers
        eventually(lambda: proxy.seen["connections"] > before)
    node.close()
    assert not listeners()


def test_commits_of_others_are_counted_and_own_ones_are_not(nodes):
    node, other = nodes(), nodes()
    before = node.client.foreign_commits()
    node.write()
    assert node.client.foreign_commits() == before
    other.write()
    assert node.client.foreign_commits() == before + 1
