"""PostgreSQL crashes, hangs up, answers late or not at all, and nodes freeze in a transaction.

Every fire ends once all the same, and nobody waits longer than it has to.
"""

import os
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from noonmark.core.instants import SECOND
from noonmark.embedded.declarations import OWNER
from noonmark.stores.postgres.store import _lock_of
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, Chance, PostgresFleet, every, is_stopped
from tests.servers.postgres import QUICK, Database, running
from tests.servers.proxy import proxied
from tests.soak import SCALE

ALL = {"type": "catch_up_all", "limit": 1_000}
LEASE = 2.0
POOL = 5
OURS = "FROM pg_stat_activity WHERE application_name = 'noonmark' AND datname = current_database()"
HANG_UP = f"SELECT pg_terminate_backend(pid) {OURS} AND ($1 OR state <> 'idle') ORDER BY random() LIMIT 1"
WAITING = f"SELECT pid {OURS} AND wait_event = 'advisory'"
IDLE = f"SELECT pid {OURS} AND state = 'idle in transaction'"


@pytest.fixture
def fleet(postgres_fleet):
    return postgres_fleet


def declare(fleet, *, count, schedules=10, seconds=0.5, **settings):
    """Schedules whose fires fall at different times."""
    return [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(seconds, count=count, offset=n * 23_003),
            overlap="allow",
            misfire=ALL,
            **settings,
        )
        for n in range(schedules)
    ]


def test_commits_whose_outcome_is_unknown_lose_and_double_nothing(fleet, figure, database):
    with proxied(database.server) as proxy:
        for _ in range(3):
            fleet.node(3 * LEASE, store=database.through(proxy))
        proxy.drop_replies(0.05, statements=True)
        often, once = (
            declare(fleet, count=8 * SCALE, schedules=6, delivery=delivery)
            for delivery in ("at_least_once", "at_most_once")
        )
        fleet.completed([*often, *once])
        proxy.heal()
    dropped, commits = proxy.seen["dropped"], proxy.seen["commits"] + proxy.seen["statements"]
    verdict, at_most_once = check(fleet, often), check(fleet, once)
    figure(f"outcome unknown: {dropped} of {commits} replies dropped, {verdict}; at most once: {at_most_once}")
    assert dropped
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert at_most_once.is_sound
    assert at_most_once.outcomes.keys() <= {"completed", "delivery_failed"}
    assert at_most_once.repeated == 0
    for one in (verdict, at_most_once):
        assert one.duplicates == 0
        assert one.accepted == 1


@pytest.mark.parametrize(("mode", "seconds"), [("fast", 5), ("immediate", 3)])
def test_a_server_that_was_down_finds_its_nodes_alive_and_at_rest(tmp_path, figure, mode, seconds):
    with running(**QUICK) as server:
        server.create("down")
        fleet = PostgresFleet(tmp_path, Database(server, "down"))
        try:
            nodes = [fleet.node(LEASE) for _ in range(2)]
            ids = declare(fleet, count=2 * (seconds + 2) * SCALE, schedules=5, args=[0.4])
            fleet.until(lambda: fleet.journal.of("begin"))
            server.stop(mode)
            down, used = CLOCK.micros(), [cpu_seconds(node) for node in nodes]
            fleet.until(lambda: CLOCK.micros() > down + seconds * SCALE * SECOND)
            passed = (CLOCK.micros() - down) / SECOND
            busy = max((cpu_seconds(node) - before) / passed for node, before in zip(nodes, used, strict=True))
            up = CLOCK.micros()
            server.start()
            fleet.until(lambda: [line for line in fleet.journal.of("begin") if line["at"] > up])
            back = min(line["at"] for line in fleet.journal.of("begin") if line["at"] > up) - up
            fleet.completed(ids)
            verdict = check(fleet, ids)
            figure(
                f"server down ({mode}) for {passed:.1f} s: busiest node used {100 * busy:.1f} % of a processor, "
                f"first run {back / SECOND:.1f} s after the start, {verdict}"
            )
            assert all(node.poll() is None for node in nodes)
            assert busy < 0.2
            assert verdict.is_sound
            assert verdict.outcomes == {"completed": verdict.fires}
            assert verdict.accepted == 1
            assert not fleet.complaints("Traceback")
        finally:
            fleet.close()


def cpu_seconds(process):
    """How long a process has been at work."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_connections_that_the_server_ends_at_random_are_harmless(fleet, figure):
    kills = 6 * SCALE
    for _ in range(3):
        fleet.node(3 * LEASE)
    ids = declare(fleet, count=2 * kills, schedules=6, seconds=0.25)
    chance = Chance("connections")
    for n in range(kills):
        chance.pause(0.3, 0.5)
        # Most wait for something to do. Every other time it is one that is at work.
        fleet.until(lambda any_will_do=n % 2 == 0: fleet.sql(HANG_UP, any_will_do), pause=0.01)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    [(errors,)] = fleet.sql("SELECT count(*) FROM runs WHERE error IS NOT NULL OR outcome <> 'completed'")
    figure(f"connections ended: {kills}, runs with an error {errors}, {verdict}")
    assert errors == 0
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.duplicates == 0
    assert verdict.accepted == 1


def test_a_slow_server_costs_no_lease_and_piles_nothing_up(fleet, figure, database):
    with proxied(database.server) as first, proxied(database.server) as second:
        proxies = [first, second]
        for proxy in proxies:
            fleet.node(9.0, store=f"{database.through(proxy)}?pool={POOL}")
        ids = declare(fleet, count=2, schedules=3)
        long = fleet.scheduler.schedule(work.record, args=[11])
        fleet.until(lambda: fleet.journal.begins(long))
        for proxy in proxies:
            proxy.delay(0.1)
        most = 0

        def are_done():
            nonlocal most
            most = max(most, *(proxy.connections for proxy in proxies))
            return fleet.sql("SELECT count(*) FROM occurrences WHERE ended IS NULL") == [(0,)]

        fleet.until(are_done)
        for proxy in proxies:
            proxy.heal()
        fleet.completed([*ids, long])  # nodes that no longer reach the store cannot say so
    verdict = check(fleet, [*ids, long])
    lost = fleet.journal.of("lost")
    ended = {line["occurrence"]: line["at"] for line in fleet.journal.of("end")}
    slowest = max(line["at"] - ended[line["occurrence"]] for line in fleet.journal.of("settled"))
    figure(
        f"slow server: an end is written {slowest / SECOND:.1f} s later at most, leases lost {len(lost)}, "
        f"connections of a node {most} at most, {verdict}"
    )
    assert not lost
    assert most <= POOL + 1
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0


@contextmanager
def keeping_others_out(fleet):
    """Have the lock for which everybody waits who is careful."""
    with psycopg.connect(fleet.url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({_lock_of('noonmark', OWNER.tenant)})")
        yield


def test_the_transaction_of_a_frozen_node_is_ended_by_the_server(fleet, figure):
    frozen = fleet.node(LEASE, store=f"{fleet.url}?timeout=8")
    ids = declare(fleet, count=4)
    fleet.until(lambda: fleet.journal.of("begin"))

    def is_frozen_in_a_transaction():
        """Whoever waits for a lock gives up after a quarter of the timeout, which may be before the node is frozen."""
        ids.extend(declare(fleet, count=4, schedules=2))
        with keeping_others_out(fleet):
            waiting = set(fleet.until(lambda: fleet.sql(WAITING)))
            fleet.freeze(frozen)
        fleet.until(lambda: waiting & set(fleet.sql(IDLE)) or not waiting & set(fleet.sql(WAITING)))
        if waiting & set(fleet.sql(IDLE)):  # one of them has got the lock
            return True
        fleet.thaw(frozen)
        return False

    fleet.until(is_frozen_in_a_transaction)
    since = CLOCK.micros()
    fleet.until(lambda: not fleet.sql(WAITING) and not fleet.sql(IDLE))
    freed = CLOCK.micros() - since
    other = fleet.node(LEASE)
    fleet.completed(ids)
    assert is_stopped(frozen.pid)
    fleet.thaw(frozen)
    fleet.kill(other)
    last = fleet.scheduler.schedule(work.record)
    fleet.completed([last])
    verdict = check(fleet, [*ids, last])
    figure(f"frozen in a transaction: freed after {freed / SECOND:.1f} s, {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.accepted == 1
    assert {line["pid"] for line in fleet.journal.begins(last)} == {frozen.pid}
