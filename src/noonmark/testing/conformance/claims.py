"""Claims: leases, their order and their ends; with shares, every owner gets some of what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.ids import manual
from noonmark.core.instants import HOUR, SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.ports.records import Renewal, Shares
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, ROUTE, case, hold, start
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


def _origins(claims: list[Claim]) -> list[str]:
    return [claim.occurrence.origin.removeprefix("manual:") for claim in claims]


@case
def a_claim_leases_the_row_and_raises_its_fence(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a")
    claim = bench.claim_one()
    assert (claim.schedule, claim.claimed, claim.found_in) == (schedule, NOW, Phase.PENDING)
    assert (claim.occurrence.phase, claim.occurrence.fence) == (Phase.CLAIMED, occurrence.fence + 1)
    assert bench.row(occurrence) == claim.occurrence
    assert bench.claim("node-b") == []


@case
def a_pending_row_can_be_claimed_from_its_due_time_or_ahead_of_it(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a", 10)
    assert bench.claim(until=NOW + 9) == []
    [claim] = bench.claim(until=NOW + 10)
    assert claim.claimed == NOW
    bench.advance(20)
    bench.add(schedule, "b", 10)
    assert _origins(bench.claim()) == ["b"]


@case
def a_node_whose_clock_is_ahead_takes_no_lease_that_others_hold(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.claim_one()
    ahead = NOW + 10 * LEASE
    claim = bench.store.claim("node-b", [ROUTE], now=ahead, until=ahead, limit=1, lease=LEASE)
    assert claim == []
    bench.advance(LEASE)
    assert len(bench.store.claim("node-b", [ROUTE], now=ahead, until=ahead, limit=1, lease=LEASE)) == 1


@case
def only_the_routes_of_the_node_are_claimed(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    bench.add(schedule, "b", route="http")
    bench.add(schedule, "c", route="command")
    assert bench.claim(routes=[]) == []
    assert bench.claim(routes=["function:unknown"]) == []
    assert sorted(_origins(bench.claim(routes=["http", "command", "http"]))) == ["b", "c"]
    assert _origins(bench.claim(routes=[ROUTE, "http"])) == ["a"]


@case
def the_earliest_are_claimed_first_on_any_route(bench: Bench) -> None:
    schedule = bench.create_quiet()
    for key, after, route in (("c", 3, ROUTE), ("a", 1, "http"), ("d", 4, "http"), ("b", 2, ROUTE)):
        bench.add(schedule, key, after, route=route)
    bench.advance(10)
    assert _origins(bench.claim(routes=[ROUTE, "http"], limit=3)) == ["a", "b", "c"]
    assert _origins(bench.claim(routes=[ROUTE, "http"], limit=3)) == ["d"]


@case
def of_equal_times_the_older_nominal_time_is_claimed_first_then_the_lower_id(bench: Bench) -> None:
    schedule = bench.create_quiet()
    same = [factories.occurrence(schedule, manual(f"{number}"), nominal=NOW) for number in range(8)]
    older = factories.occurrence(schedule, manual("older"), nominal=NOW - 1, due=NOW)
    assert all(bench.store.add([*same, older]))
    claimed = [claim.occurrence.id for claim in bench.claim(limit=5)]
    claimed += [claim.occurrence.id for claim in bench.claim(limit=5)]
    assert claimed == [older.id, *sorted(one.id for one in same)]


@case
def nothing_is_claimed_with_a_limit_of_zero(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    assert bench.claim(limit=0) == []
    bench.claim_one()


@case
def a_lease_is_free_at_exactly_its_end(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    first = bench.claim_one("node-a")
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.advance(1)
    second = bench.claim_one("node-b")
    assert second.found_in is Phase.CLAIMED
    assert second.occurrence.fence == first.occurrence.fence + 1
    assert second.occurrence.losses == 0


@case
def the_lookahead_is_not_for_leases(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    bench.claim_one("node-a")
    bench.advance(LEASE - 1)
    assert bench.claim("node-b", until=bench.now + 2 * SECOND) == []


@case
def leases_that_ended_and_rows_that_are_due_are_claimed_in_one_order(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "leased")
    bench.claim_one()
    bench.add(schedule, "before", LEASE - 1)
    bench.add(schedule, "after", LEASE + 1)
    bench.advance(LEASE + 1)
    assert _origins(bench.claim("node-b")) == ["before", "leased", "after"]


@case
def a_lease_lost_in_delivery_is_counted_and_is_not_an_attempt(bench: Bench) -> None:
    schedule = bench.create_quiet()
    started = bench.run(schedule, "a")
    assert started.attempt == 1
    bench.advance(LEASE)
    taken = bench.claim_one("node-b")
    assert taken.found_in is Phase.DISPATCHING
    assert (taken.occurrence.phase, taken.occurrence.losses, taken.occurrence.attempt) == (Phase.CLAIMED, 1, 0)
    assert (taken.occurrence.node, taken.occurrence.started) == ("node-b", None)
    assert taken.occurrence.fence == started.fence + 1
    assert taken.occurrence.holds_slot
    bench.advance(LEASE)
    again = bench.claim_one("node-c")
    assert (again.found_in, again.occurrence.losses) == (Phase.CLAIMED, 1)
    assert bench.start(again).attempt == 1


@case
def a_delivery_whose_lease_was_lost_is_kept_as_a_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.advance(5)
    started = bench.run(schedule, "a")
    assert (started.node, started.started) == ("node-a", NOW + 5)
    bench.advance(LEASE + 1)
    bench.claim_one("node-b")
    [run] = bench.store.runs(schedule.uid)
    assert (run.occurrence_id, run.node, run.attempt) == (started.id, "node-a", 1)
    assert (run.started, run.ended, run.outcome) == (NOW + 5, bench.now, Outcome.LEASE_LOST)
    assert run.error == "node node-a was lost before it had ended"
    bench.advance(LEASE)
    again = bench.start(bench.claim_one("node-c"))
    assert bench.settle(again)
    assert [run.outcome for run in bench.store.runs(schedule.uid)] == [Outcome.COMPLETED, Outcome.LEASE_LOST]


@case
def a_renewed_lease_ends_later(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    bench.advance(LEASE - 1)
    renewal = bench.store.renew([hold(claim)], now=bench.now, lease=LEASE)
    assert renewal == Renewal(lost=frozenset(), stop={})
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.advance(1)
    bench.claim_one("node-b")


@case
def a_lease_lasts_from_when_it_is_given_however_long_ago_it_was_asked_for(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    requested_at = bench.now
    bench.advance(LEASE)
    [claim] = bench.store.claim("node-a", [ROUTE], now=requested_at, until=requested_at, limit=1, lease=LEASE)
    assert bench.claim("node-b") == []
    bench.advance(LEASE - 1)
    bench.store.renew([hold(claim)], now=requested_at, lease=LEASE)
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.store.admit([start(claim)], now=requested_at, lease=LEASE)
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.advance(1)
    assert bench.claim_one("node-b").found_in is Phase.DISPATCHING


@case
def a_slow_path_start_has_its_lease_from_when_it_is_given(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=1)
    bench.add(schedule, "a")
    claim = bench.claim_one()
    requested_at = bench.now
    bench.advance(LEASE - 1)
    bench.store.admit([start(claim)], now=requested_at, lease=LEASE)
    bench.advance(LEASE - 1)
    assert bench.claim("node-b") == []
    bench.advance(1)
    assert bench.claim_one("node-b").found_in is Phase.DISPATCHING


@case
def a_lease_that_ran_out_unnoticed_can_be_renewed(bench: Bench) -> None:
    occurrence = bench.run(bench.create_quiet(), "a")
    bench.advance(LEASE + 5)
    assert not bench.store.renew([hold(occurrence)], now=bench.now, lease=LEASE).lost
    assert bench.claim("node-b") == []
    assert bench.settle(occurrence)


@case
def a_lease_that_another_node_took_or_that_is_gone_is_lost(bench: Bench) -> None:
    schedule = bench.create_quiet()
    taken = bench.run(schedule, "a")
    bench.advance(LEASE)
    bench.claim_one("node-b")
    ended = bench.create_quiet("uid-2")
    settled = bench.run(ended, "b")
    assert bench.settle(settled)
    bench.add(ended, "c")
    released = bench.claim_one()
    bench.store.release([hold(released)])
    holds = [hold(taken), hold(settled), hold(released)]
    renewal = bench.store.renew(holds, now=bench.now, lease=LEASE)
    assert renewal.lost == {taken.id, settled.id, released.occurrence.id}


@case
def a_node_learns_of_a_stop_when_it_renews(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.store.request_stop(occurrence.id)
    renewal = bench.store.renew([hold(occurrence)], now=bench.now, lease=LEASE)
    assert renewal == Renewal(lost=frozenset(), stop={occurrence.id: Reason.CANCELLED})
    bench.advance(LEASE)
    again = bench.start(bench.claim_one("node-b"))
    renewal = bench.store.renew([hold(occurrence), hold(again)], now=bench.now, lease=LEASE)
    assert renewal.stop == {occurrence.id: Reason.CANCELLED}


@case
def a_stop_is_for_one_delivery_and_not_for_the_retry(bench: Bench) -> None:
    occurrence = bench.run(bench.create_quiet(), "a")
    assert bench.store.request_stop(occurrence.id)
    assert bench.retry(occurrence, bench.now)
    again = bench.start(bench.claim_one())
    assert not bench.store.renew([hold(again)], now=bench.now, lease=LEASE).stop


@case
def an_occurrence_that_is_not_delivered_gets_no_stop_request(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a")
    assert not bench.store.request_stop("nothing")
    assert not bench.store.request_stop(occurrence.id)
    claim = bench.claim_one()
    assert not bench.store.request_stop(occurrence.id)
    assert bench.settle(bench.start(claim))
    assert not bench.store.request_stop(occurrence.id)


@case
def a_released_row_can_be_claimed_again_at_its_time(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a", 10)
    [claim] = bench.claim(until=NOW + 10)
    bench.store.release([hold(claim)])
    row = bench.row(occurrence)
    assert (row.phase, row.due) == (Phase.PENDING, NOW + 10)
    assert bench.claim("node-b") == []
    bench.advance(10)
    again = bench.claim_one("node-b")
    assert again.found_in is Phase.PENDING
    assert again.occurrence.fence > claim.occurrence.fence


@case
def a_release_remembers_that_a_delivery_was_lost(bench: Bench) -> None:
    bench.run(bench.create_quiet(), "a")
    bench.advance(LEASE)
    bench.store.release([hold(bench.claim_one("node-b"))])
    again = bench.claim_one("node-c")
    assert (again.occurrence.losses, again.occurrence.holds_slot) == (1, True)


@case
def a_release_leaves_what_is_not_held_or_has_started(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    stale = bench.claim_one("node-a")
    bench.advance(LEASE)
    held = bench.claim_one("node-b")
    bench.store.release([hold(stale)])
    assert bench.row(held.occurrence) == held.occurrence
    started = bench.start(held)
    bench.store.release([hold(started)])
    assert bench.row(started).phase is Phase.DISPATCHING
    assert bench.settle(started)


@case
def a_lost_lease_cannot_be_renewed(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    first = bench.claim_one("node-a")
    bench.advance(LEASE)
    second = bench.claim_one("node-b")
    bench.advance(LEASE - 1)
    renewal = bench.store.renew([hold(first)], now=bench.now, lease=LEASE)
    assert (renewal.lost, dict(renewal.stop)) == (frozenset({first.occurrence.id}), {})
    bench.advance(1)
    third = bench.claim_one("node-c")
    assert third.occurrence.fence == second.occurrence.fence + 1


PEOPLE = sorted((Owner(tenant="acme", user=user) for user in ("ada", "bob", "cy", "dan")), key=lambda one: one.number)
"""In the order of their turns."""


def _created(bench: Bench) -> list[Schedule]:
    return [bench.create_quiet(f"of-{one.user}", owner=one) for one in PEOPLE]


def _due(bench: Bench, of: Schedule, count: int, after: Micros = 0, route: str = ROUTE) -> None:
    """So many occurrences, a microsecond apart."""
    key = f"{of.owner.user}-{after}-{route}"
    rows = [
        factories.occurrence(of, manual(f"{key}-{number}"), nominal=NOW + after + number, route=route)
        for number in range(count)
    ]
    assert all(bench.store.add(rows))


def _owners(claims: list[Claim]) -> list[Owner]:
    return [claim.schedule.owner for claim in claims]


@case
def every_owner_gets_a_share_however_much_the_first_has(bench: Bench) -> None:
    first, second, third, _ = _created(bench)
    _due(bench, first, 500)
    _due(bench, third, 3, 600)
    _due(bench, second, 1, 700)
    bench.advance(SECOND)
    claims = bench.claim(shares=Shares(each=2))
    assert _owners(claims) == [PEOPLE[0], PEOPLE[1], PEOPLE[2], PEOPLE[0], PEOPLE[2]]
    assert [claim.occurrence.due - NOW for claim in claims] == [0, 700, 600, 1, 601]
    assert {bench.row(claim.occurrence).phase for claim in claims} == {Phase.CLAIMED}
    assert [claim.occurrence.due - NOW for claim in bench.claim(limit=2)] == [2, 3]


@case
def a_share_is_only_of_what_can_be_claimed(bench: Bench) -> None:
    first, second, third, fourth = _created(bench)
    _due(bench, first, 2)
    _due(bench, second, 2, 10)
    _due(bench, third, 1, route="http")
    _due(bench, fourth, 1, HOUR)
    assert _owners(bench.claim(until=NOW + 9, shares=Shares(each=5))) == [PEOPLE[0], PEOPLE[0]]
    assert _owners(bench.claim(until=NOW + 10, shares=Shares(each=5))) == [PEOPLE[1]]
    assert bench.claim(until=NOW + 10, shares=Shares(each=5)) == []
    assert bench.claim(routes=["http"], limit=0, shares=Shares(each=5)) == []
    assert _owners(bench.claim(routes=["http"], shares=Shares(each=5))) == [PEOPLE[2]]


@case
def owners_are_served_round_robin_from_a_given_owner(bench: Bench) -> None:
    for schedule in _created(bench):
        _due(bench, schedule, 5)
    bench.advance(SECOND)
    a, b, c, d = PEOPLE
    assert _owners(bench.claim(limit=3, shares=Shares(each=1))) == [a, b, c]
    assert _owners(bench.claim(limit=3, shares=Shares(each=1, after=c))) == [d, a, b]
    assert _owners(bench.claim(limit=6, shares=Shares(each=2, after=b))) == [c, d, a, b, c, d]
    assert _owners(bench.claim(limit=1, shares=Shares(each=2, after=d))) == [a]


@case
def owners_may_be_left_out(bench: Bench) -> None:
    for schedule in _created(bench):
        _due(bench, schedule, 2)
    bench.advance(SECOND)
    a, b, c, d = PEOPLE
    assert _owners(bench.claim(shares=Shares(each=1, besides=frozenset({a, c})))) == [b, d]
    assert bench.claim(shares=Shares(each=1, besides=frozenset(PEOPLE))) == []
    assert _owners(bench.claim(shares=Shares(each=9, besides=frozenset({b, d})))) == [a, c, a, c]


@case
def an_owner_has_one_share_of_all_routes(bench: Bench) -> None:
    first, second, *_ = _created(bench)
    _due(bench, first, 2, 20)
    _due(bench, first, 2, 10, "http")
    _due(bench, second, 1, 30, "http")
    bench.advance(SECOND)
    claims = bench.claim(routes=[ROUTE, "http"], shares=Shares(each=3))
    assert [claim.occurrence.due - NOW for claim in claims] == [10, 30, 11, 20]


@case
def the_earliest_of_each_owner_are_claimed_in_any_round(bench: Bench) -> None:
    first, second, *_ = _created(bench)
    for hours in (3, 1, 2):
        _due(bench, first, 1, hours * HOUR)
        _due(bench, second, 1, hours * HOUR + SECOND)
    bench.advance(4 * HOUR)
    for hours in (1, 2, 3):
        claims = bench.claim(shares=Shares(each=1, after=PEOPLE[hours % 3]))
        assert {claim.occurrence.due - NOW for claim in claims} == {hours * HOUR, hours * HOUR + SECOND}


@case
def expired_leases_are_shared_too(bench: Bench) -> None:
    first, second, *_ = _created(bench)
    _due(bench, first, 50)
    _due(bench, second, 1, 60)
    bench.advance(100)
    assert len(bench.claim()) == 51
    bench.advance(LEASE - 1)
    assert bench.claim("node-b", shares=Shares(each=2)) == []
    bench.advance(1)
    _due(bench, first, 1, 70)
    claims = bench.claim("node-b", shares=Shares(each=2))
    assert _owners(claims) == [PEOPLE[0], PEOPLE[1], PEOPLE[0]]
    assert sorted(claim.occurrence.due - NOW for claim in claims) == [0, 60, 70]
    assert {claim.occurrence.node for claim in claims} == {"node-b"}
    assert len(bench.claim("node-b")) == 49
