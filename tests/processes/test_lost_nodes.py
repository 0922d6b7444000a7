"""Nodes that are killed, frozen or poisoned: every fire ends once, and a node without its lease changes nothing."""

import signal

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from tests.processes import work
from tests.processes.checker import check, percentile
from tests.processes.fleet import STORES, Chance, every
from tests.soak import SCALE

ALL = {"type": "catch_up_all", "limit": 1_000}
RECOVERY = 20
"""Seconds: it should take a lease, one look for news and a moment, and takes longer on a busy machine."""
on_each_store = pytest.mark.parametrize("fleet", STORES, indirect=True)


@on_each_store
def test_killing_a_random_node_every_second_loses_nothing(fleet, figure):
    kills = 3 * SCALE
    nodes = [fleet.node() for _ in range(3)]
    ids = [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(0.5, count=2 * kills, offset=n * 61_003),
            args=[0.3],
            overlap="allow",
            misfire=ALL,
        )
        for n in range(8)
    ]
    chance, killed = Chance("kills"), {}
    for _ in range(kills):
        chance.pause(0.7, 1.2)
        busy = [one for one in nodes if one.pid in fleet.journal.busy_pids()]
        victim = chance.of(busy or nodes)
        killed[victim.pid] = fleet.kill(victim)
        nodes[nodes.index(victim)] = fleet.node()
    fleet.completed(ids)
    verdict = check(fleet, ids)
    recovery = recoveries(fleet.journal, killed)
    figure(f"killed nodes: {kills} kills, {verdict}, recovery p99 {percentile(recovery, 99):.1f} s")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.accepted == 1
    assert recovery, "no kill hit a run"
    assert percentile(recovery, 99) < RECOVERY


def recoveries(journal, killed):
    """Seconds from each kill to the next beginning of a run that it had cut."""
    ended = {(line["occurrence"], line["pid"]) for line in journal.of("end")}
    begins = journal.of("begin")
    cut = [one for one in begins if one["pid"] in killed and (one["occurrence"], one["pid"]) not in ended]
    again = [
        min(
            two["at"] - killed[one["pid"]]
            for two in begins
            if two["occurrence"] == one["occurrence"] and two is not one
        )
        for one in cut
    ]
    return [wait / SECOND for wait in again if wait > 0]


@on_each_store
def test_what_may_run_once_at_most_is_not_begun_again_when_its_node_is_killed(fleet, figure):
    node = fleet.node()
    ids = [fleet.scheduler.schedule(work.record, args=[30], delivery="at_most_once") for _ in range(5)]
    fleet.until(lambda: len(fleet.journal.of("begin")) == len(ids))
    fleet.kill(node)
    fleet.node()
    fleet.completed(ids)
    ends = {(row.phase, row.reason) for one in ids for row in fleet.scheduler.occurrences(one)}
    begins = len(fleet.journal.of("begin"))
    figure(f"at most once: {len(ids)} runs cut by a kill, begun {begins} times in all")
    assert ends == {(Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)}
    assert begins == len(ids)


@on_each_store
def test_what_a_frozen_holder_writes_when_it_wakes_does_not_count(fleet, figure, tmp_path):
    zombie = fleet.node()
    folders = [tmp_path / "obeys", tmp_path / "defies"]
    for folder in folders:
        folder.mkdir()
    ids = [
        fleet.scheduler.schedule(work.hold, args=[str(folder)], kwargs={"obeys": folder.name == "obeys"})
        for folder in folders
    ]
    fleet.until(lambda: len(fleet.journal.of("begin", pid=zombie.pid)) == 2)
    fleet.freeze_between_transactions(zombie)
    other = fleet.node(15.0)
    fleet.until(lambda: len(fleet.journal.of("begin", pid=other.pid)) == 2)
    fleet.thaw(zombie)
    # Each is delivered by the other one now: the first run is told to stop, and what it says no longer counts.
    fleet.until(lambda: fleet.journal.of("end", pid=zombie.pid, stopped=True))
    (folders[1] / "let-first-go").touch()
    fleet.until(lambda: len(fleet.journal.of("lost", pid=zombie.pid, had_ended=True)) == 2)
    for folder in folders:
        (folder / "let-second-go").touch()
    fleet.completed(ids)
    zombie.send_signal(signal.SIGTERM)
    assert zombie.wait(30) == 0
    stale = fleet.journal.of("settled", pid=zombie.pid)
    told = {line["occurrence"] for line in fleet.journal.of("lost", pid=zombie.pid)}
    figure(
        f"frozen holder: 2 runs taken over, stale writes accepted {len(stale)}, "
        f"told that the lease was lost {len(told)} of 2"
    )
    assert not stale
    assert len(told) == 2
    assert [[run.result for run in fleet.scheduler.runs(one) if run.result] for one in ids] == [["second"], ["second"]]
    assert {line["pid"] for line in fleet.journal.of("settled")} == {other.pid}


@on_each_store
def test_a_node_that_stood_still_between_claim_and_start_starts_nothing(fleet, figure):
    ids = [fleet.scheduler.schedule(work.record) for _ in range(5)]
    frozen = fleet.start("node", ready="freezing", lease=1.0, freezes=True)
    claimed = {line["occurrence"]: line["fence"] for line in fleet.journal.of("claimed", pid=frozen.pid)}
    # The next one stands still with its claims, too: only their fences tell them from those of the first.
    other = fleet.start("node", ready="freezing", lease=15.0, freezes=True)
    fleet.thaw(frozen)
    fleet.until(lambda: len({line["occurrence"] for line in fleet.journal.of("lost", pid=frozen.pid)}) == len(claimed))
    fleet.thaw(other)
    fleet.completed(ids)
    frozen.send_signal(signal.SIGTERM)
    assert frozen.wait(30) == 0
    started = fleet.journal.of("started")
    verdict = check(fleet, ids)
    figure(f"stood still after the claim: {len(claimed)} claims lost, {verdict}")
    assert claimed
    assert verdict.is_sound
    assert verdict.repeated == 0
    assert {line["pid"] for line in started} == {other.pid}
    assert len(started) == len(ids)
    assert all(line["fence"] > claimed.get(line["occurrence"], 0) for line in started)


def test_a_run_that_kills_its_node_is_parked_and_the_others_go_on(fleet, figure):
    nodes = [fleet.node() for _ in range(2)]
    steady = [
        fleet.scheduler.schedule(
            work.record, trigger=every(0.5, count=20, offset=n * 100_000), misfire=ALL, overlap="queue"
        )
        for n in range(4)
    ]
    poison = fleet.scheduler.schedule(work.die)

    def is_parked():
        for dead in [node for node in nodes if node.poll() is not None]:
            nodes[nodes.index(dead)] = fleet.node()
        return fleet.scheduler.occurrences(poison)[0].phase not in (Phase.PENDING, Phase.CLAIMED, Phase.DISPATCHING)

    fleet.until(is_parked)
    fleet.completed([poison, *steady])
    [parked] = fleet.scheduler.occurrences(poison)
    deaths = sum(process.poll() is not None for process in fleet.processes)
    verdict = check(fleet, steady)
    figure(f"poison: parked as {parked.phase}/{parked.reason} after {deaths} deaths; beside it {verdict}")
    assert (parked.phase, parked.reason) == (Phase.DELIVERY_FAILED, Reason.POISON)
    assert deaths == len(fleet.journal.begins(poison)) == 6
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
