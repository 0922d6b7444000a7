"""Shares: a claim that gives every owner some of what is due, however much the others have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.schedule import Owner
from noonmark.ports.records import Shares
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, ROUTE, case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

HOUR: Micros = 3_600 * SECOND
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
def the_turns_begin_after_an_owner_and_go_around(bench: Bench) -> None:
    for one in _created(bench):
        _due(bench, one, 5)
    bench.advance(SECOND)
    a, b, c, d = PEOPLE
    assert _owners(bench.claim(limit=3, shares=Shares(each=1))) == [a, b, c]
    assert _owners(bench.claim(limit=3, shares=Shares(each=1, after=c))) == [d, a, b]
    assert _owners(bench.claim(limit=6, shares=Shares(each=2, after=b))) == [c, d, a, b, c, d]
    assert _owners(bench.claim(limit=1, shares=Shares(each=2, after=d))) == [a]


@case
def owners_may_be_left_out(bench: Bench) -> None:
    for one in _created(bench):
        _due(bench, one, 2)
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
def of_each_owner_the_earliest_are_taken_wherever_the_turns_begin(bench: Bench) -> None:
    first, second, *_ = _created(bench)
    for hours in (3, 1, 2):
        _due(bench, first, 1, hours * HOUR)
        _due(bench, second, 1, hours * HOUR + SECOND)
    bench.advance(4 * HOUR)
    for hours in (1, 2, 3):
        claims = bench.claim(shares=Shares(each=1, after=PEOPLE[hours % 3]))
        assert {claim.occurrence.due - NOW for claim in claims} == {hours * HOUR, hours * HOUR + SECOND}


@case
def leases_that_ended_are_shared_too(bench: Bench) -> None:
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
