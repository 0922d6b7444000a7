"""Nodes on one Redis server do not keep each other from committing, and take each row once."""

import threading

import pytest

from noonmark.core.instants import SECOND
from noonmark.stores.redis import connected_store
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.redis.transactions.client import TURN_KEY
from noonmark.stores.redis.transactions.table import Table
from tests.servers.redis import wait_until
from tests.stores.test_sqlite_file import plans

COUNTERS = Table("counters", ("name", "count"))
ROWS, BATCH, CREATES = 120, 10, 12
LEASE = 600 * SECOND
WAITS = 0.2
"""Seconds in which a commit is done many times over, unless it has to wait."""


def add_one(uow):
    counters = uow.transaction.records(COUNTERS)
    counted = (counters.get("all") or ("all", 0))[1] + 1
    counters.put(("all", counted))
    return counted


@pytest.fixture
def nodes(redis_url):
    """Three stores, as nodes have them."""
    stores = [RedisStore(redis_url) for _ in range(3)]
    for store in stores:
        store.open()
    yield stores
    for store in stores:
        store.close()


def test_who_is_always_too_late_gets_a_turn(nodes):
    slow, quick, _ = nodes
    others = []

    def overtaken(uow):
        counted = add_one(uow)
        others.append(threading.Thread(target=quick._write, args=(add_one,)))
        others[-1].start()
        if uow.transaction.name == "":
            others[-1].join()  # so that it is in the way
        else:
            others[-1].join(WAITS)
            assert others[-1].is_alive(), "it commits in the turn of another"
        return counted

    assert slow._write(overtaken) == connected_store._HASTY + 1
    for other in others:
        other.join()
    assert quick._write(add_one) == connected_store._HASTY + 3
    assert len(others) == connected_store._HASTY + 1


def test_who_reads_while_others_write_gets_a_turn(nodes):
    slow, quick, _ = nodes
    quick._write(add_one)

    def overtaken(uow):
        counters = uow.transaction.records(COUNTERS)
        found = counters.get("all")
        if uow.transaction.name == "":
            quick._write(add_one)
        counters.get("another")
        return found

    assert slow._read(overtaken) == ("all", connected_store._HASTY + 1)


def test_the_turn_of_a_node_that_has_died_ends(nodes, redis):
    redis.run("SET", f"noonmark:{TURN_KEY}", "who is gone", "PX", 200)
    assert nodes[0]._write(add_one) == 1
    assert redis.run("EXISTS", f"noonmark:{TURN_KEY}") == 0


def test_no_two_nodes_claim_the_same_row(nodes):
    nodes[0].create(list(plans(ROWS)))
    now = nodes[0].clock() + SECOND
    routes = {plan.snapshot.schedule.declaration.target.route for plan in plans(1)}
    claimed = [[] for _ in nodes]

    def claim(number):
        while claims := nodes[number].claim(f"node-{number}", routes, now=now, until=2**60, limit=BATCH, lease=LEASE):
            claimed[number] += [one.occurrence.id for one in claims]

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one for ids in claimed for one in ids]
    assert len(ids) == len(set(ids)) == ROWS


def test_creates_that_come_together_share_a_commit(nodes):
    store, answers = nodes[0], []
    threads = [
        threading.Thread(target=lambda plan=plan: answers.append(store.create([plan]))) for plan in plans(CREATES)
    ]
    with store._lock:  # the first of them waits for it, and the others for the first
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(map(len, store._grouped_creates._queues.values())) == CREATES, "not all of them wait")
        before = store._client.commits
    for thread in threads:
        thread.join()
    assert answers == [[True]] * CREATES
    assert store._client.commits == before + 1
