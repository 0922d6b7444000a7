"""Routes: which nodes serve them, what nobody serves, and claims of one row alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait, unserved
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets import FunctionTarget
from noonmark.ports.records import Heartbeat
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.testing.conformance.bench import Bench

GRACE = 60 * SECOND
"""The misfire grace, and so the patience, of the schedules here."""


def _beat(bench: Bench, node: str, *routes: str) -> None:
    bench.store.beat(Heartbeat(node=node, routes=routes), now=bench.now)


def _orphans(bench: Bench, limit: int = 10) -> list[Claim]:
    return bench.store.orphans("node-a", now=bench.now, limit=limit, lease=LEASE)


@case
def what_nobody_serves_is_an_orphan_when_patience_has_run_out(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.add(made, "a")
    _beat(bench, "node-a", "http")
    bench.advance(GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    [claim] = _orphans(bench)
    assert (claim.occurrence.id, claim.schedule, claim.claimed) == (one.id, made, bench.now)
    assert (claim.occurrence.phase, claim.occurrence.fence) == (Phase.CLAIMED, one.fence + 1)
    assert (claim.occurrence.node, claim.found_in) == ("node-a", Phase.PENDING)
    assert bench.row(one) == claim.occurrence
    assert _orphans(bench) == []
    ended = bench.decide(unserved(claim))
    assert (ended.phase, ended.reason) == (Phase.MISFIRED, Reason.TARGET_MISSING)


@case
def a_route_is_served_as_long_as_somebody_says_so(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.advance(GRACE)
    _beat(bench, "node-b", "http", ROUTE)
    bench.advance(1)
    _beat(bench, "node-a", "http")
    assert _orphans(bench) == []
    bench.advance(GRACE - 2)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def a_node_that_serves_less_from_now_on_served_it_until_then(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.advance(GRACE + 1)
    _beat(bench, "node-a", ROUTE)
    bench.advance(SECOND)
    _beat(bench, "node-a", "http")
    assert _orphans(bench) == []
    bench.advance(GRACE)
    assert len(_orphans(bench)) == 1


@case
def a_node_that_is_behind_the_times_takes_back_nothing_that_another_has_said(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.advance(2 * GRACE)
    _beat(bench, "node-a", "http")
    bench.store.beat(Heartbeat(node="node-b", routes=("http",)), now=bench.now - GRACE)
    assert bench.snapshot(made).unserved


@case
def patience_is_the_grace_of_the_schedule_but_not_less_than_a_few_beats(bench: Bench) -> None:
    for uid, grace in (("uid-1", SECOND), ("uid-2", 2 * GRACE)):
        bench.add(bench.create_quiet(uid, misfire_policy=misfire.Skip(grace=grace)), uid)
    bench.advance(MIN_PATIENCE)
    assert _orphans(bench) == []
    bench.advance(1)
    assert [claim.schedule.uid for claim in _orphans(bench)] == ["uid-1"]
    bench.advance(2 * GRACE - MIN_PATIENCE)
    assert "uid-2" in [claim.schedule.uid for claim in _orphans(bench)]


@case
def orphans_come_in_the_order_of_a_claim_and_no_more_than_asked_for(bench: Bench) -> None:
    made = bench.create_quiet()
    for key, after, route in (("c", 3, ROUTE), ("a", 1, "http"), ("b", 2, ROUTE), ("late", GRACE, ROUTE)):
        bench.add(made, key, after, route=route)
    bench.advance(GRACE + 10)
    assert [claim.occurrence.origin for claim in _orphans(bench, limit=2)] == ["manual:a", "manual:b"]
    assert [claim.occurrence.origin for claim in _orphans(bench, limit=2)] == ["manual:c"]
    assert _orphans(bench, limit=2) == []


@case
def a_delivery_that_nobody_can_take_over_is_an_orphan(bench: Bench) -> None:
    made = bench.create_quiet()
    one = bench.run(made, "a")
    bench.advance(LEASE + GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    [claim] = _orphans(bench)
    assert (claim.found_in, claim.occurrence.id, claim.occurrence.losses) == (Phase.DISPATCHING, one.id, 1)
    ended = bench.decide(unserved(claim))
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.TARGET_MISSING)
    [run] = bench.store.runs(made.uid)
    assert run.outcome is Outcome.LEASE_LOST


@case
def what_waits_or_is_held_by_a_pause_is_no_orphan(bench: Bench) -> None:
    made, paused = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    bench.add(made, "a")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.DEPENDENCY_PENDING))
    bench.add_event(paused, "b")
    assert bench.commit(edits.pause(bench.snapshot(paused), now=bench.now))
    bench.advance(10 * GRACE)
    assert _orphans(bench) == []


@case
def a_snapshot_tells_whether_nodes_are_alive_but_none_serves_the_route(bench: Bench) -> None:
    made = bench.create()
    assert not bench.snapshot(made).unserved
    _beat(bench, "node-a", "http")
    assert bench.snapshot(made).unserved
    _beat(bench, "node-b", ROUTE)
    assert not bench.snapshot(made).unserved
    bench.advance(GRACE - 1)
    _beat(bench, "node-a", "http")
    assert not bench.snapshot(made).unserved
    bench.advance(1)
    assert bench.snapshot(made).unserved
    [plannable] = bench.store.plannable(bench.now, 10)
    assert plannable.unserved
    bench.advance(GRACE - 1)
    assert not bench.snapshot(made).unserved


@case
def a_claim_may_be_of_one_row_alone(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add(made, "a")
    wanted = bench.add(made, "b", 10)

    def claimed(*, until: int, routes: tuple[str, ...] = (ROUTE,)) -> list[str]:
        claims = bench.store.claim("node-a", routes, now=bench.now, until=until, limit=10, lease=LEASE, only=wanted.id)
        return [claim.occurrence.id for claim in claims]

    assert claimed(until=NOW + 9) == []
    assert claimed(until=NOW + 10, routes=("http",)) == []
    assert claimed(until=NOW + 10) == [wanted.id]
    assert claimed(until=NOW + 10) == []
    bench.advance(LEASE)
    assert claimed(until=bench.now) == [wanted.id]
    nothing = bench.store.claim(
        "node-a", [ROUTE], now=bench.now, until=bench.now, limit=10, lease=LEASE, only="nothing"
    )
    assert nothing == []


@case
def what_a_pause_holds_is_not_claimed_alone(bench: Bench) -> None:
    made = bench.create_quiet()
    held = bench.add_event(made, "a")
    assert bench.commit(edits.pause(bench.snapshot(made), now=bench.now))
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
    made = bench.create_quiet(misfire_policy=misfire.Skip(grace=SECOND))
    bench.add(made, "a")
    bench.advance(1)
    _beat(bench, "node-a", ROUTE)
    bench.advance(MIN_PATIENCE - 1)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def an_edit_of_the_grace_is_one_of_patience_too(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add(made, "a")
    patient = replace(made.declaration, misfire_policy=misfire.Skip(grace=2 * GRACE))
    assert bench.commit(edits.edit(bench.snapshot(made), patient, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(2 * GRACE)
    assert _orphans(bench) == []
    bench.advance(1)
    assert len(_orphans(bench)) == 1


@case
def a_route_of_a_node_that_has_left_was_served_until_its_last_beat(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add(made, "a")
    _beat(bench, "node-a", "http")
    _beat(bench, "node-b", ROUTE)
    bench.store.leave("node-b")
    bench.advance(GRACE - 1)
    assert not bench.snapshot(made).unserved
    assert _orphans(bench) == []
    _beat(bench, "node-a", "http")
    bench.advance(2)
    assert bench.snapshot(made).unserved
    assert len(_orphans(bench)) == 1
