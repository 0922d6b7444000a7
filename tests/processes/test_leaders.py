"""Leaders that are killed or frozen: another node soon leads under a new term, and no fire is missed."""

import pytest

from noonmark.core.instants import SECOND
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, every
from tests.soak import SCALE

LEASE = 1.0
RENEWAL = LEASE / 3
MARGIN = 20
"""Seconds beyond what is promised, on a busy machine."""
ALL = {"type": "catch_up_all", "limit": 1_000}


def leader_after(fleet, term):
    """Wait for somebody who leads under a later term; what it wrote down about the latest."""

    def later():
        gains = [line for line in fleet.journal.of("leader", leads=True) if line["term"] > term]
        return max(gains, key=lambda line: line["term"], default=None)

    return fleet.until(later)


@pytest.mark.parametrize("fleet", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"], indirect=True)
def test_when_the_leader_is_killed_another_leads_under_a_later_term(fleet, figure):
    kills = 1 if SCALE == 1 else 2 * SCALE
    nodes = {node.pid: node for node in (fleet.node(LEASE) for _ in range(3))}
    ids = [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(0.5, count=10 * kills, offset=n * 61_003),
            overlap="allow",
            misfire=ALL,
        )
        for n in range(4)
    ]
    gaps, led = [], leader_after(fleet, 0)
    for _ in range(kills):
        # It may have lost the lead meanwhile, where a renewal came too late.
        led = leader_after(fleet, led["term"] - 1)
        killed = fleet.kill(nodes.pop(led["pid"]))
        following = leader_after(fleet, led["term"])
        gaps.append((following["at"] - killed) / SECOND)
        assert following["pid"] != led["pid"]
        led = following
        node = fleet.node(LEASE)
        nodes[node.pid] = node
    fleet.completed(ids)
    verdict = check(fleet, ids)
    terms = [line["term"] for line in fleet.journal.of("leader", leads=True)]
    figure(
        f"killed leaders: {kills} kills, terms {sorted(terms)}, without a leader {min(gaps):.2f} to {max(gaps):.2f} s "
        f"(promised {LEASE + RENEWAL:.2f}), {verdict}"
    )
    assert len(set(terms)) == len(terms) > kills
    assert max(gaps) <= LEASE + RENEWAL + MARGIN
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}


def test_a_leader_that_wakes_from_a_freeze_learns_that_it_leads_no_longer(fleet, figure):
    frozen = fleet.node(LEASE)
    led = leader_after(fleet, 0)
    other = fleet.node(15.0)
    fleet.freeze_between_transactions(frozen)
    following = leader_after(fleet, led["term"])
    while following["pid"] == frozen.pid:  # a renewal came too late, just before it was frozen
        following = leader_after(fleet, following["term"])
    woken = CLOCK.micros()
    fleet.thaw(frozen)
    [lost] = fleet.until(lambda: fleet.journal.of("leader", pid=frozen.pid, leads=False))
    figure(f"frozen leader: told after {(lost['at'] - woken) / 1_000:.1f} ms that it leads no longer")
    assert following["pid"] == other.pid
    assert lost["term"] == following["term"]
    [leader] = fleet.until(lambda: [node for node in fleet.scheduler.nodes() if node.is_leader])
    assert f"-{other.pid}-" in leader.name
    fleet.until(lambda: [node.is_alive for node in fleet.scheduler.nodes()] == [True, True])
