"""Takeovers: the leases of a node end at once when its process is gone, and only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import End
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.system_events import of_lost_node
from noonmark.ports.records import Heartbeat, Leadership, Renewal
from noonmark.testing.conformance.bench import LEASE, case, hold
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

LOCK = "27b0f6e2-9a4c-4c36-8d5a-0e7d3c1f2a10 64768 1311"
OTHERS = {
    "another machine": "93c4a9ad-01f8-4a53-a4f0-6a2f1bb7f2cd 64768 1311",
    "another file system": "27b0f6e2-9a4c-4c36-8d5a-0e7d3c1f2a10 47 1311",
    "another file": "27b0f6e2-9a4c-4c36-8d5a-0e7d3c1f2a10 64768 1312",
    "no lock": "",
}


def _beat(bench: Bench, node: str, process_lock: str = "") -> None:
    bench.store.beat(Heartbeat(node=node, lease=LEASE, process_lock=process_lock), now=bench.now)


def _with_lock(bench: Bench, node: str = "node-a") -> None:
    _beat(bench, node, LOCK)


@case
def what_a_gone_process_held_can_be_claimed_at_once(bench: Bench) -> None:
    _with_lock(bench)
    schedule, other = bench.create_quiet(), bench.create_quiet("uid-2")
    running = bench.run(schedule, "a")
    bench.add(other, "b")
    bench.claim_one()
    bench.advance(SECOND)
    assert bench.claim("node-b") == []
    assert bench.store.expire_leases("node-a", LOCK) == 2
    assert bench.store.next_time([running.route]) == bench.now
    found = {claim.occurrence.uid: claim for claim in bench.claim("node-b")}
    assert {uid: claim.found_in for uid, claim in found.items()} == {
        schedule.uid: Phase.DISPATCHING,
        other.uid: Phase.CLAIMED,
    }
    taken = found[schedule.uid].occurrence
    assert (taken.losses, taken.attempt, taken.fence, taken.node) == (1, 0, running.fence + 1, "node-b")
    assert bench.store.renew([hold(running)], now=bench.now, lease=LEASE).lost == {running.id}


@case
def a_run_that_was_lost_with_a_gone_process_says_so(bench: Bench) -> None:
    _with_lock(bench)
    running = bench.run(bench.create_quiet(), "a")
    bench.advance(SECOND)
    bench.store.expire_leases("node-a", LOCK)
    bench.claim_one("node-b")
    [run] = bench.store.occurrence_runs(running.id)
    assert (run.node, run.started, run.ended, run.outcome) == ("node-a", NOW, NOW + SECOND, Outcome.LEASE_LOST)
    assert run.error == "the process of node node-a was gone before it had ended"


@case
def what_may_begin_once_only_is_ended_when_its_process_was_gone(bench: Bench) -> None:
    _with_lock(bench)
    running = bench.run(bench.create_quiet(delivery="at_most_once"), "a")
    bench.store.expire_leases("node-a", LOCK)
    claim = bench.claim_one("node-b")
    end = End(claim=claim, phase=Phase.DELIVERY_FAILED, reason=Reason.OUTCOME_UNKNOWN, was_begun=True)
    ended = bench.decide(end)
    assert (ended.id, ended.phase, ended.reason) == (running.id, Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)


@case
def leases_of_a_node_with_another_lock_hold(bench: Bench) -> None:
    _with_lock(bench)
    _beat(bench, "older")
    running = bench.run(bench.create_quiet(), "a")
    for why, lock in OTHERS.items():
        assert bench.store.expire_leases("node-a", lock) == 0, why
    assert bench.store.expire_leases("older", LOCK) == 0
    assert bench.store.expire_leases("older", "") == 0
    assert bench.store.expire_leases("unknown", LOCK) == 0
    assert bench.claim("node-b") == []
    assert [node.is_alive for node in bench.store.nodes()] == [True, True]
    assert bench.store.renew([hold(running)], now=bench.now, lease=LEASE) == Renewal(lost=frozenset(), stop={})


@case
def the_leases_of_other_nodes_hold_when_a_process_is_gone(bench: Bench) -> None:
    _with_lock(bench)
    _beat(bench, "node-b", OTHERS["another file"])
    bench.add(bench.create_quiet(), "a")
    bench.claim_one("node-b")
    assert bench.store.expire_leases("node-a", LOCK) == 0
    assert bench.claim("node-c") == []


@case
def a_lease_that_has_ended_does_not_end_again(bench: Bench) -> None:
    _with_lock(bench)
    bench.run(bench.create_quiet(), "a")
    assert bench.store.expire_leases("node-a", LOCK) == 1
    bench.advance(SECOND)
    assert bench.store.expire_leases("node-a", LOCK) == 0
    bench.claim_one("node-b")
    assert bench.store.expire_leases("node-a", LOCK) == 0


@case
def what_a_process_wrote_last_counts_if_it_arrives_before_the_next_claim(bench: Bench) -> None:
    _with_lock(bench)
    done = bench.run(bench.create_quiet(), "a")
    late = bench.run(bench.create_quiet("uid-2"), "b")
    bench.store.expire_leases("node-a", LOCK)
    assert bench.settle(done)
    assert [claim.occurrence.id for claim in bench.claim("node-b")] == [late.id]
    assert not bench.settle(late)


@case
def what_awaits_its_completion_elsewhere_does_not_begin_again_with_its_node(bench: Bench) -> None:
    _with_lock(bench)
    running = bench.run(bench.create_quiet(), "a")
    accepted = {"phase": Phase.AWAITING_COMPLETION, "reason": Reason.ACCEPTED, "deadline": NOW + 10 * LEASE}
    assert bench.settle(running, **accepted)
    assert bench.store.expire_leases("node-a", LOCK) == 0
    assert bench.claim("node-b") == []
    assert bench.row(running).phase is Phase.AWAITING_COMPLETION


@case
def a_node_whose_process_is_gone_is_not_alive_and_can_be_reported_lost(bench: Bench) -> None:
    _with_lock(bench)
    bench.advance(SECOND)
    bench.store.expire_leases("node-a", LOCK)
    [node] = bench.store.nodes()
    assert (node.is_alive, node.left, node.gone, node.is_lost) == (False, None, NOW + SECOND, True)
    assert node.gone_at == from_micros(NOW + SECOND)
    bench.advance(SECOND)
    bench.store.expire_leases("node-a", LOCK)
    assert bench.store.nodes() == [node]
    event = of_lost_node("node-a", seen=node.seen, started=0, version="", load=0, routes=())
    assert bench.store.lose("node-a", node.seen, event)
    [node] = bench.store.nodes()
    assert (node.is_missed, node.is_lost) == (True, False)


@case
def a_node_that_sends_a_heartbeat_is_not_gone(bench: Bench) -> None:
    _with_lock(bench)
    bench.store.expire_leases("node-a", LOCK)
    bench.advance(SECOND)
    _with_lock(bench)
    [node] = bench.store.nodes()
    assert (node.is_alive, node.gone, node.gone_at) == (True, None, None)


@case
def a_leader_whose_process_is_gone_leads_no_more(bench: Bench) -> None:
    _with_lock(bench)
    _beat(bench, "node-b")
    bench.store.lead("node-a", now=bench.now, lease=LEASE)
    assert bench.store.expire_leases("node-a", OTHERS["another file"]) == 0
    assert bench.store.lead("node-b", now=bench.now, lease=LEASE).leader == "node-a"
    bench.store.expire_leases("node-a", LOCK)
    assert not any(node.is_leader for node in bench.store.nodes())
    taken = Leadership(term=2, leader="node-b", until=NOW + LEASE)
    assert bench.store.lead("node-b", now=bench.now, lease=LEASE) == taken
    bench.store.expire_leases("node-a", LOCK)
    assert bench.store.lead("node-a", now=bench.now, lease=LEASE) == taken
