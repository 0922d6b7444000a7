"""Nodes: who was heard of, who is alive, and who of them leads, under which term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.system_events import of_lost_node
from noonmark.ports.records import Heartbeat, Leadership, NodeRecord
from noonmark.testing.conformance.bench import LEASE, case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

DAY = DAY_SECONDS * SECOND


def _beat(bench: Bench, node: str, lease: int = LEASE) -> None:
    bench.store.beat(Heartbeat(node=node, lease=lease), now=bench.now)


def _lead(bench: Bench, node: str, lease: int = LEASE) -> Leadership:
    return bench.store.lead(node, now=bench.now, lease=lease)


def _alive(bench: Bench) -> list[str]:
    return [node.name for node in bench.store.nodes() if node.is_alive]


def _names(bench: Bench) -> list[str]:
    return [node.name for node in bench.store.nodes()]


def _leaders(bench: Bench) -> list[str]:
    return [node.name for node in bench.store.nodes() if node.is_leader]


@case
def a_node_is_known_by_its_last_beat(bench: Bench) -> None:
    assert bench.store.nodes() == []
    first = Heartbeat(
        node="node-a",
        routes=("http", "function:work"),
        capacity=10,
        load=3,
        version="1.2",
        started=NOW - 5,
        lease=LEASE,
    )
    bench.store.beat(first, now=bench.now)
    [node] = bench.store.nodes()
    assert node == NodeRecord(
        name="node-a",
        routes=("http", "function:work"),
        capacity=10,
        load=3,
        version="1.2",
        started=NOW - 5,
        seen=NOW,
        left=None,
        is_alive=True,
        is_leader=False,
    )
    assert (node.started_at, node.seen_at, node.left_at) == (from_micros(NOW - 5), from_micros(NOW), None)
    bench.advance(SECOND)
    again = Heartbeat(node="node-a", routes=(), capacity=20, load=0, version="1.3", started=NOW - 4, lease=LEASE)
    bench.store.beat(again, now=bench.now)
    [node] = bench.store.nodes()
    assert (node.routes, node.capacity, node.load, node.version) == ((), 20, 0, "1.3")
    assert (node.started, node.seen) == (NOW - 4, NOW + SECOND)


@case
def nodes_are_told_by_name(bench: Bench) -> None:
    for name in ("node-c", "node-a", "node-b"):
        _beat(bench, name)
    assert [node.name for node in bench.store.nodes()] == ["node-a", "node-b", "node-c"]


@case
def a_node_is_alive_until_it_was_silent_for_two_of_its_own_leases(bench: Bench) -> None:
    _beat(bench, "short", SECOND)
    _beat(bench, "long", LEASE)
    bench.advance(2 * SECOND - 1)
    assert _alive(bench) == ["long", "short"]
    bench.advance(1)
    assert _alive(bench) == ["long"]
    bench.advance(2 * LEASE - 2 * SECOND - 1)
    assert _alive(bench) == ["long"]
    bench.advance(1)
    assert _alive(bench) == []
    assert len(bench.store.nodes()) == 2


@case
def a_node_that_was_not_heard_of_for_a_day_is_told_no_more(bench: Bench) -> None:
    for name in ("node-a", "node-b", "node-c"):
        _beat(bench, name)
    bench.store.leave("node-a")
    event = of_lost_node("node-b", seen=NOW, started=0, version="", load=0, routes=())
    assert bench.store.lose("node-b", NOW, event)
    bench.advance(DAY)
    assert _names(bench) == ["node-a", "node-b", "node-c"]
    bench.advance(1)
    assert _names(bench) == ["node-c"]
    _beat(bench, "node-d")
    assert _names(bench) == ["node-c", "node-d"]


@case
def a_node_of_whose_loss_nobody_was_told_is_kept_for_30_days(bench: Bench) -> None:
    for name in ("node-a", "node-b"):
        _beat(bench, name)
    bench.advance(30 * DAY)
    _beat(bench, "node-c")
    assert [(node.name, node.is_lost) for node in bench.store.nodes()] == [
        ("node-a", True),
        ("node-b", True),
        ("node-c", False),
    ]
    event = of_lost_node("node-a", seen=NOW, started=0, version="", load=0, routes=())
    assert bench.store.lose("node-a", NOW, event)
    assert _names(bench) == ["node-b", "node-c"]
    bench.advance(1)
    assert _names(bench) == ["node-c"]
    _beat(bench, "node-c")
    assert _names(bench) == ["node-c"]


@case
def a_node_that_leaves_is_alive_no_more_but_still_told(bench: Bench) -> None:
    _beat(bench, "node-a")
    _beat(bench, "node-b")
    bench.advance(SECOND)
    bench.store.leave("node-a")
    bench.store.leave("nobody")
    assert _alive(bench) == ["node-b"]
    gone, _ = bench.store.nodes()
    assert (gone.name, gone.left, gone.seen) == ("node-a", NOW + SECOND, NOW)
    assert gone.left_at == from_micros(NOW + SECOND)
    _beat(bench, "node-a")
    assert _alive(bench) == ["node-a", "node-b"]


@case
def whoever_comes_first_leads_and_the_others_are_told(bench: Bench) -> None:
    leadership = Leadership(term=1, leader="node-a", until=NOW + LEASE)
    assert _lead(bench, "node-a") == leadership
    bench.advance(LEASE - 1)
    assert _lead(bench, "node-b", lease=1) == leadership
    assert leadership.is_of("node-a", NOW + LEASE - 1)
    assert not leadership.is_of("node-a", NOW + LEASE)
    assert not leadership.is_of("node-b", NOW)


@case
def a_leader_that_renews_in_time_keeps_its_term(bench: Bench) -> None:
    _lead(bench, "node-a")
    bench.advance(LEASE - 1)
    assert _lead(bench, "node-a") == Leadership(term=1, leader="node-a", until=bench.now + LEASE)
    bench.advance(1)
    assert _lead(bench, "node-b").leader == "node-a"


@case
def the_lead_is_free_at_exactly_the_end_of_its_lease(bench: Bench) -> None:
    _lead(bench, "node-a")
    bench.advance(LEASE)
    taken = Leadership(term=2, leader="node-b", until=bench.now + LEASE)
    assert _lead(bench, "node-b") == taken
    assert _lead(bench, "node-a") == taken


@case
def whoever_takes_the_lead_again_too_late_has_a_new_term(bench: Bench) -> None:
    _lead(bench, "node-a")
    bench.advance(LEASE)
    assert _lead(bench, "node-a").term == 2
    bench.advance(10 * LEASE)
    assert _lead(bench, "node-a").term == 3


@case
def a_leader_that_leaves_gives_up_the_lead_and_its_term_is_used_up(bench: Bench) -> None:
    _beat(bench, "node-a")
    _lead(bench, "node-a")
    bench.store.leave("node-a")
    assert _leaders(bench) == []
    assert _lead(bench, "node-b") == Leadership(term=2, leader="node-b", until=NOW + LEASE)
    bench.store.leave("node-a")
    assert _lead(bench, "node-c").leader == "node-b"


@case
def a_leader_that_left_and_comes_back_has_a_new_term(bench: Bench) -> None:
    _lead(bench, "node-a")
    bench.store.leave("node-a")
    assert _lead(bench, "node-a") == Leadership(term=2, leader="node-a", until=NOW + LEASE)


@case
def the_leader_is_told_until_its_lease_ends(bench: Bench) -> None:
    _beat(bench, "node-a", DAY)
    _beat(bench, "node-b", DAY)
    assert _leaders(bench) == []
    _lead(bench, "node-b")
    assert _leaders(bench) == ["node-b"]
    bench.advance(LEASE - 1)
    assert _leaders(bench) == ["node-b"]
    bench.advance(1)
    assert _leaders(bench) == []


@case
def terms_rise_by_one_with_every_change_and_never_fall(bench: Bench) -> None:
    terms = []
    for node in ("node-a", "node-b", "node-a", "node-c"):
        terms.append(_lead(bench, node).term)
        terms.append(_lead(bench, node).term)
        bench.advance(LEASE)
    assert terms == [1, 1, 2, 2, 3, 3, 4, 4]
    bench.advance(-100 * LEASE)  # the clock was ahead, and has been set back
    assert _lead(bench, "node-c") == Leadership(term=4, leader="node-c", until=bench.now + LEASE)
    bench.advance(LEASE)
    assert _lead(bench, "node-a").term == 5
