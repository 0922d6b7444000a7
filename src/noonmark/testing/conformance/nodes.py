"""Nodes: heartbeats, leadership, the routes that nodes serve, and orphans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait, unserved
from noonmark.core.instants import DAY, SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.pipeline_ownership import pipeline_schedule_id
from noonmark.core.policies import misfire
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.system_events import of_lost_node
from noonmark.core.targets import FunctionTarget
from noonmark.ports.records import Heartbeat, Leadership, NodeRecord
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.testing.conformance.bench import Bench


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
def a_node_is_read_as_its_last_heartbeat(bench: Bench) -> None:
    assert bench.store.nodes() == []
    first = Heartbeat(
        node="node-a",
        routes=("http", "function:work"),
        capacity=10,
        load=3,
        version="1.2",
        zone_data="2026a",
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
        zone_data="2026a",
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
def nodes_are_listed_by_name(bench: Bench) -> None:
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
def a_node_without_a_heartbeat_for_a_day_is_not_listed(bench: Bench) -> None:
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
def an_unreported_lost_node_is_kept_for_30_days(bench: Bench) -> None:
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
def a_node_that_leaves_is_not_alive_but_still_listed(bench: Bench) -> None:
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
def the_first_node_leads_and_the_others_learn_of_it(bench: Bench) -> None:
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
def a_leader_that_renews_too_late_gets_a_new_term(bench: Bench) -> None:
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
def the_leader_is_known_until_its_lease_ends(bench: Bench) -> None:
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


GRACE = 60 * SECOND
"""The misfire grace, and so the patience, of the schedules here."""


def _serve_routes(bench: Bench, node: str, *routes: str) -> None:
    bench.store.beat(Heartbeat(node=node, routes=routes), now=bench.now)


def _orphans(bench: Bench, limit: int = 10) -> list[Claim]:
    return bench.store.orphans("node-a", now=bench.now, limit=limit, lease=LEASE)


@case
def an_unserved_occurrence_is_an_orphan_after_its_grace_period(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a")
    _serve_routes(bench, "node-a", "http")
    bench.advance(GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    [claim] = _orphans(bench)
    assert (claim.occurrence.id, claim.schedule, claim.claimed) == (occurrence.id, schedule, bench.now)
    assert (claim.occurrence.phase, claim.occurrence.fence) == (Phase.CLAIMED, occurrence.fence + 1)
    assert (claim.occurrence.node, claim.found_in) == ("node-a", Phase.PENDING)
    assert bench.row(occurrence) == claim.occurrence
    assert _orphans(bench) == []
    ended = bench.decide(unserved(claim))
    assert (ended.phase, ended.reason) == (Phase.MISFIRED, Reason.TARGET_MISSING)


@case
def a_route_is_served_as_long_as_a_node_reports_it(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.advance(GRACE)
    _serve_routes(bench, "node-b", "http", ROUTE)
    bench.advance(1)
    _serve_routes(bench, "node-a", "http")
    assert _orphans(bench) == []
    bench.advance(GRACE - 2)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def a_node_that_serves_less_from_now_on_served_it_until_then(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.advance(GRACE + 1)
    _serve_routes(bench, "node-a", ROUTE)
    bench.advance(SECOND)
    _serve_routes(bench, "node-a", "http")
    assert _orphans(bench) == []
    bench.advance(GRACE)
    assert len(_orphans(bench)) == 1


@case
def a_late_heartbeat_does_not_undo_a_newer_one(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.advance(2 * GRACE)
    _serve_routes(bench, "node-a", "http")
    bench.store.beat(Heartbeat(node="node-b", routes=("http",)), now=bench.now - GRACE)
    assert bench.snapshot(schedule).unserved


@case
def the_orphan_grace_period_is_at_least_a_few_heartbeats(bench: Bench) -> None:
    for uid, grace in (("uid-1", SECOND), ("uid-2", 2 * GRACE)):
        bench.add(bench.create_quiet(uid, misfire_policy=misfire.Skip(grace=grace)), uid)
    bench.advance(MIN_PATIENCE)
    assert _orphans(bench) == []
    bench.advance(1)
    assert [claim.schedule.uid for claim in _orphans(bench)] == ["uid-1"]
    bench.advance(2 * GRACE - MIN_PATIENCE)
    assert "uid-2" in [claim.schedule.uid for claim in _orphans(bench)]


@case
def orphans_are_listed_in_claim_order_up_to_the_limit(bench: Bench) -> None:
    schedule = bench.create_quiet()
    for key, after, route in (("c", 3, ROUTE), ("a", 1, "http"), ("b", 2, ROUTE), ("late", GRACE, ROUTE)):
        bench.add(schedule, key, after, route=route)
    bench.advance(GRACE + 10)
    assert [claim.occurrence.origin for claim in _orphans(bench, limit=2)] == ["manual:a", "manual:b"]
    assert [claim.occurrence.origin for claim in _orphans(bench, limit=2)] == ["manual:c"]
    assert _orphans(bench, limit=2) == []


@case
def a_delivery_that_no_node_can_take_over_is_an_orphan(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    bench.advance(LEASE + GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    [claim] = _orphans(bench)
    assert (claim.found_in, claim.occurrence.id, claim.occurrence.losses) == (Phase.DISPATCHING, occurrence.id, 1)
    ended = bench.decide(unserved(claim))
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.TARGET_MISSING)
    [run] = bench.store.runs(schedule.uid)
    assert run.outcome is Outcome.LEASE_LOST


@case
def a_waiting_or_paused_occurrence_is_not_an_orphan(bench: Bench) -> None:
    schedule, paused = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    bench.add(schedule, "a")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.DEPENDENCY_PENDING))
    bench.add_event(paused, "b")
    assert bench.commit(edits.pause(bench.snapshot(paused), now=bench.now))
    bench.advance(10 * GRACE)
    assert _orphans(bench) == []


@case
def a_snapshot_tells_whether_nodes_are_alive_but_none_serves_the_route(bench: Bench) -> None:
    schedule = bench.create()
    assert not bench.snapshot(schedule).unserved
    _serve_routes(bench, "node-a", "http")
    assert bench.snapshot(schedule).unserved
    _serve_routes(bench, "node-b", ROUTE)
    assert not bench.snapshot(schedule).unserved
    bench.advance(GRACE - 1)
    _serve_routes(bench, "node-a", "http")
    assert not bench.snapshot(schedule).unserved
    bench.advance(1)
    assert bench.snapshot(schedule).unserved
    [plannable] = bench.store.plannable(bench.now, 10)
    assert plannable.unserved
    bench.advance(GRACE - 1)
    assert not bench.snapshot(schedule).unserved


@case
def a_snapshot_tells_sooner_that_no_live_node_serves_the_route(bench: Bench) -> None:
    schedule = bench.create()
    assert not bench.snapshot(schedule).lacks_node
    _serve_routes(bench, "node-a", ROUTE)
    bench.advance(MIN_PATIENCE - 1)
    _serve_routes(bench, "node-b", "http")
    assert not bench.snapshot(schedule).lacks_node
    bench.advance(1)
    snapshot = bench.snapshot(schedule)
    assert (snapshot.lacks_node, snapshot.unserved) == (True, False)
    bench.advance(MIN_PATIENCE - 1)
    assert not bench.snapshot(schedule).lacks_node


@case
def a_claim_may_be_of_one_row_alone(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    chosen = bench.add(schedule, "b", 10)

    def claimed(*, until: int, routes: tuple[str, ...] = (ROUTE,)) -> list[str]:
        claims = bench.store.claim("node-a", routes, now=bench.now, until=until, limit=10, lease=LEASE, only=chosen.id)
        return [claim.occurrence.id for claim in claims]

    assert claimed(until=NOW + 9) == []
    assert claimed(until=NOW + 10, routes=("http",)) == []
    assert claimed(until=NOW + 10) == [chosen.id]
    assert claimed(until=NOW + 10) == []
    bench.advance(LEASE)
    assert claimed(until=bench.now) == [chosen.id]
    nothing = bench.store.claim(
        "node-a", [ROUTE], now=bench.now, until=bench.now, limit=10, lease=LEASE, only="nothing"
    )
    assert nothing == []


@case
def what_a_pause_holds_is_not_claimed_alone(bench: Bench) -> None:
    schedule = bench.create_quiet()
    held = bench.add_event(schedule, "a")
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    claims = bench.store.claim("node-a", [ROUTE], now=bench.now, until=bench.now, limit=10, lease=LEASE, only=held.id)
    assert claims == []


@case
def the_routes_of_a_source_are_those_of_its_schedules(bench: Bench) -> None:
    assert bench.store.routes("test") == []
    bench.create("uid-1")
    bench.create("uid-2", target=FunctionTarget(function="other"))
    bench.create("uid-3", target=FunctionTarget(function="other"))
    deleted = bench.create("uid-4", target=FunctionTarget(function="gone"))
    assert bench.commit(edits.delete(bench.snapshot(deleted), now=bench.now))
    assert bench.store.routes("test") == ["function:other", ROUTE]
    assert bench.store.routes("elsewhere") == []


@case
def a_beat_counts_for_as_long_as_patience_lasts_and_no_longer(bench: Bench) -> None:
    schedule = bench.create_quiet(misfire_policy=misfire.Skip(grace=SECOND))
    bench.add(schedule, "a")
    bench.advance(1)
    _serve_routes(bench, "node-a", ROUTE)
    bench.advance(MIN_PATIENCE - 1)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def an_edit_of_the_grace_is_one_of_patience_too(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    patient = replace(schedule.declaration, misfire_policy=misfire.Skip(grace=2 * GRACE))
    assert bench.commit(edits.edit(bench.snapshot(schedule), patient, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(2 * GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def a_route_of_a_node_that_has_left_was_served_until_its_last_beat(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    _serve_routes(bench, "node-a", "http")
    _serve_routes(bench, "node-b", ROUTE)
    bench.store.leave("node-b")
    bench.advance(GRACE - 1)
    assert not bench.snapshot(schedule).unserved
    assert _orphans(bench) == []
    _serve_routes(bench, "node-a", "http")
    bench.advance(2)
    assert bench.snapshot(schedule).unserved
    assert len(_orphans(bench)) == 1


@case
def schedules_of_pipelines_are_found_by_their_ids(bench: Bench) -> None:
    ids = [pipeline_schedule_id("node-b", "2"), pipeline_schedule_id("node-a", "1"), "pipelines", "job_1", "pipeline"]
    schedules = [bench.create(f"uid-{number}", schedule_id=one) for number, one in enumerate(ids)]
    expected = sorted(ids[:2])
    assert [one.schedule_id for one in bench.store.pipeline_schedules("acme", 10)] == expected
    assert [one.schedule_id for one in bench.store.pipeline_schedules("acme", 1)] == expected[:1]
    assert bench.store.pipeline_schedules("other", 10) == []
    assert bench.store.change(schedules[0].uid, lambda snapshot, now: edits.delete(snapshot, now=now))
    assert [one.schedule_id for one in bench.store.pipeline_schedules("acme", 10)] == [ids[1]]
