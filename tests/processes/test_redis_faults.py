"""A Redis server that is killed, fails over, refuses writes or is busy, under load.

Every fire ends once all the same, and what was acknowledged is there, as far as the server promises.
"""

import threading
from contextlib import closing, contextmanager

import pytest
from redis.exceptions import ResponseError

from noonmark import Scheduler
from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, Chance, RedisFleet, every
from tests.servers.proxy import Proxy
from tests.servers.redis import running, wait_until
from tests.servers.redis_conversation import RedisConversation, Replication
from tests.soak import SCALE

ALL = {"type": "catch_up_all", "limit": 1_000}
LEASE = 2.0
ENDLESS = "while true do end"


@pytest.fixture
def fleet(redis_fleet):
    return redis_fleet


@contextmanager
def proxied(server, conversation=RedisConversation):
    """A proxy that can be led to another server."""
    proxy = Proxy(server.port, conversation)
    try:
        yield proxy
    finally:
        proxy.close()


def declare(fleet, *, count, schedules=6, seconds=0.5, **settings):
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


def acknowledged(fleet):
    return {line["id"] for line in fleet.journal.of("created")}


def stored(fleet):
    return {one["schedule_id"] for one in fleet.table("schedules")}


def assert_sound(verdict):
    assert verdict.is_sound, verdict
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.accepted == 1


def test_killed_server_that_waits_for_the_disk_loses_nothing(fleet, figure):
    kills = 2 * SCALE
    nodes = [fleet.node(LEASE) for _ in range(2)]
    ids = declare(fleet, count=5 * kills, args=[0.1])
    caller = fleet.start("caller", ready="created", does="insist")
    chance = Chance("kills")
    for _ in range(kills):
        seen = len(acknowledged(fleet))
        fleet.until(lambda before=seen: len(acknowledged(fleet)) > before + 5)
        chance.pause(0.1, 0.5)
        fleet.server.kill()
        chance.pause(0.2, 0.5)
        fleet.server.start()
    seen = len(acknowledged(fleet))
    fleet.until(lambda: len(acknowledged(fleet)) > seen)
    fleet.kill(caller)
    fleet.completed(ids)
    verdict, lost = check(fleet, ids), acknowledged(fleet) - stored(fleet)
    figure(
        f"Redis killed {kills} times (appendfsync always): {len(acknowledged(fleet))} acknowledged creates,"
        f" lost {len(lost)}, {verdict}"
    )
    assert not lost
    assert all(node.poll() is None for node in nodes)
    assert_sound(verdict)
    assert not fleet.complaints("Traceback")


def test_killed_server_that_writes_every_second_loses_at_most_about_that(tmp_path, figure):
    kills, lost = SCALE, []
    with running(appendonly="yes", appendfsync="everysec", save="") as server:
        fleet = RedisFleet(tmp_path, server)
        try:
            caller = fleet.start("caller", ready="created", does="insist")
            for _ in range(kills):
                seen = len(acknowledged(fleet))
                fleet.until(lambda before=seen: len(acknowledged(fleet)) > before + 20)
                fleet.freeze(caller)
                server.kill()
                killed = CLOCK.micros()
                server.start()
                missing = acknowledged(fleet) - stored(fleet)
                lost += [killed - line["at"] for line in fleet.journal.of("created") if line["id"] in missing]
                fleet.thaw(caller)
        finally:
            fleet.close()
    age = max(lost, default=0) / SECOND
    figure(
        f"Redis killed {kills} times (appendfsync everysec): {len(acknowledged(fleet))} acknowledged creates,"
        f" lost {len(lost)}, the oldest {age:.3f} s old"
    )
    assert age < 3.0


def test_log_that_breaks_off_has_each_commit_as_a_whole_or_not_at_all(fleet, figure):
    """As after a power failure: the end of the file is missing, wherever the disk was."""
    cuts = 5 * SCALE
    for _ in range(10):
        fleet.scheduler.schedule(work.nothing)
    fleet.server.kill()
    log = fleet.server.folder / "appendonly.aof"
    whole, chance = log.read_bytes(), Chance("cuts")
    begin, counts = len(whole) // 2, []
    for _ in range(cuts):
        log.write_bytes(whole[: begin + chance.below(len(whole) - begin)])
        fleet.server.start()
        schedules, states = fleet.table("schedules"), {one["schedule"]: one for one in fleet.table("schedule_states")}
        live = [one["schedule"] for one in fleet.table("occurrences") if one["ended"] is None]
        assert {one["key"] for one in schedules} == states.keys()
        assert {key: one["live"] for key, one in states.items()} == {key: live.count(key) for key in states}
        assert fleet.server.run("ZCARD", "noonmark:schedules:by_tenant:") == len(schedules)
        counts.append(len(schedules))
        fleet.server.kill()
    figure(f"append-only file cut {cuts} times: {sorted(counts)} of 10 schedules, all whole")
    assert min(counts) < 10
    fleet.server.start()


def test_fail_over_loses_only_what_the_replica_has_not_received(fleet, figure):
    with (
        running(appendonly="yes", appendfsync="always", save="") as replica,
        proxied(fleet.server) as proxy,
        proxied(fleet.server, Replication) as link,
    ):
        replica.follow(fleet.server, port=link.port)
        url = fleet.server.url(port=proxy.port)
        nodes = [fleet.node(LEASE, store=url) for _ in range(2)]
        caller = fleet.start("caller", ready="created", does="insist", store=url)
        fleet.until(lambda: len(acknowledged(fleet)) > 20)
        safe, offset = acknowledged(fleet), fleet.server.run("INFO", "replication")["master_repl_offset"]
        wait_until(
            lambda: replica.run("INFO", "replication")["master_repl_offset"] >= offset, "the replica does not follow"
        )
        link.black_hole()
        behind = len(acknowledged(fleet))
        fleet.until(lambda: len(acknowledged(fleet)) > behind + 10)
        fleet.server.kill()
        proxy.lead_to(replica.port)
        refused = len(fleet.journal.of("refused"))
        fleet.until(lambda: [one for one in fleet.journal.of("refused")[refused:] if "read-only" in one["error"]])
        told = acknowledged(fleet)
        replica.follow(None)
        fleet.until(lambda: len(acknowledged(fleet)) > len(told))
        fleet.kill(caller)
        fleet.server = replica
        lost = told - stored(fleet)
        with closing(Scheduler(replica.url())) as after:
            ids = [after.schedule(work.record, trigger=every(0.2, count=3), misfire=ALL) for _ in range(3)]
            fleet.until(lambda: all(len(fleet.journal.begins(one)) >= 3 for one in ids))
        figure(
            f"fail-over to a replica that has fallen behind: {len(told)} acknowledged creates, lost {len(lost)}, of"
            f" {len(told) - len(safe)} since it was known to be in step"
        )
        assert lost, "the replica had not received them"
        assert not safe & lost
        assert all(node.poll() is None for node in nodes)
        for node in nodes:
            fleet.kill(node)


def test_server_that_is_read_only_or_full_refuses_and_loses_nothing(fleet, figure):
    server = fleet.server
    node = fleet.node(LEASE)
    ids = declare(fleet, count=6, schedules=3)
    refusals = {
        "read-only replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        "reached its maxmemory": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    }
    before = stored(fleet)
    for reason, (harm, heal) in refusals.items():
        fleet.until(lambda: fleet.journal.of("begin"))
        server.run(*harm)
        with pytest.raises(StoreUnavailable, match=f"{reason}.*nothing was written"):
            fleet.scheduler.schedule(work.nothing)
        failures = len(fleet.journal.of("store_failed"))
        fleet.until(lambda count=failures: len(fleet.journal.of("store_failed")) > count)
        server.run(*heal)
        assert stored(fleet) == before
    schedule = fleet.scheduler.schedule(work.record)
    fleet.completed([*ids, schedule])
    verdict = check(fleet, [*ids, schedule])
    figure(f"read-only, then out of memory: {verdict}")
    assert node.poll() is None
    assert_sound(verdict)


def endless(client):
    with pytest.raises(ResponseError, match="killed"):
        client.eval(ENDLESS, 0)


def test_slow_script_of_another_program_delays_and_loses_nothing(fleet, figure):
    fleet.server.run("CONFIG", "SET", "lua-time-limit", "50")
    fleet.node(3 * LEASE)
    ids = declare(fleet, count=6, schedules=3)
    fleet.until(lambda: fleet.journal.of("begin"))
    with fleet.server.client() as killer, fleet.server.client() as other:
        killer.ping()
        slow = threading.Thread(target=endless, args=(other,))
        slow.start()
        fleet.until(lambda: any("BUSY" in line["error"] for line in fleet.journal.of("store_failed")))
        killer.script_kill()
        slow.join()
    fleet.completed(ids)
    verdict = check(fleet, ids)
    figure(f"slow script of another program: {verdict}")
    assert_sound(verdict)


def test_commits_whose_outcome_is_unknown_lose_and_double_nothing(fleet, figure):
    with proxied(fleet.server) as proxy:
        for _ in range(2):
            fleet.node(3 * LEASE, store=fleet.server.url(port=proxy.port))
        proxy.drop_replies(0.05)
        often, once = (
            declare(fleet, count=6 * SCALE, schedules=4, delivery=delivery)
            for delivery in ("at_least_once", "at_most_once")
        )
        fleet.completed([*often, *once])
        proxy.heal()
    dropped, commits = proxy.seen["dropped"], proxy.seen["commits"]
    verdict, at_most_once = check(fleet, often), check(fleet, once)
    figure(f"outcome unknown: {dropped} of {commits} replies dropped, {verdict}; at most once: {at_most_once}")
    assert dropped
    assert_sound(verdict)
    assert at_most_once.is_sound
    assert at_most_once.outcomes.keys() <= {"completed", "delivery_failed"}
    assert at_most_once.repeated == at_most_once.duplicates == verdict.duplicates == 0
