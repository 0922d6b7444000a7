"""An occurrence may need several concurrency keys: it gets all of them at once, or waits and holds none.

The limits of what is in flight of a user and of a tenant are such keys, beside the one of the schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, admit, refused
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Concurrency
from noonmark.core.quotas import Limits, Resource, inflight_keys
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Accepted, settle
from noonmark.core.triggers import IntervalTrigger
from noonmark.testing.conformance.bench import LEASE, case, hold
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.core.occurrence import Occurrence
    from noonmark.testing.conformance.bench import Bench

ADA, BOB, CY = (Owner(tenant="acme", user=user) for user in ("ada", "bob", "cy"))
DB = Concurrency(key="db")


def _limits(per_user: int, per_tenant: int) -> Limits:
    return Limits(per_user={Resource.IN_FLIGHT: {"*": per_user}}, per_tenant={Resource.IN_FLIGHT: {"*": per_tenant}})


ONE_EACH = _limits(1, 10)


def _decide(bench: Bench, claim: Claim, limits: Limits) -> Occurrence:
    """Start it, or let it wait, as a node with these limits does."""
    keys = inflight_keys(limits, claim.schedule.owner)
    answer = bench.admit(admit(claim, now=bench.now, lease=LEASE, keys=keys))
    return bench.decide(refused(claim, answer, keys)) if isinstance(answer, Busy) else bench.row(claim.occurrence)


def _work(bench: Bench, limits: Limits) -> list[Occurrence]:
    """Claim and decide all that can be claimed."""
    return [_decide(bench, claim, limits) for claim in bench.claim()]


def _places(bench: Bench) -> tuple[int, int, int]:
    """The places that are taken: of ada, of bob, and of their tenant."""
    keys = [*inflight_keys(ONE_EACH, ADA), *inflight_keys(ONE_EACH, BOB)]
    ada, tenant, bob, _ = (bench.store.count_places("acme", key.name) for key in keys)
    return ada, bob, tenant


def _create(bench: Bench, uid: str, owner: Owner, after: int, **changes: object) -> Occurrence:
    """A schedule, and an occurrence of it that is due so much after the beginning."""
    return bench.add(bench.create_quiet(uid, owner=owner, **changes), uid, after)


@case
def an_occurrence_whose_user_has_no_room_waits(bench: Bench) -> None:
    for uid, owner, after in (("a", ADA, 0), ("b", ADA, 1), ("c", BOB, 2)):
        _create(bench, uid, owner, after)
    bench.advance(2)
    first, second, third = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    assert (first.phase, third.phase) == (Phase.DISPATCHING, Phase.DISPATCHING)
    assert (second.phase, second.waiting_for) == (Phase.PENDING, Reason.INFLIGHT_LIMIT)
    assert second.wanted_limit == 1
    assert _places(bench) == (1, 1, 2)
    bench.advance(LEASE // 2)
    assert bench.claim() == []


@case
def a_place_that_becomes_free_is_handed_on_in_order(bench: Bench) -> None:
    for uid, after in (("a", 0), ("b", 2), ("c", 1)):
        _create(bench, uid, ADA, after)
    bench.advance(2)
    running, _, _ = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    assert bench.settle(running)
    assert _places(bench) == (1, 0, 1)  # handed over in the same transaction
    claim = bench.claim_one()
    assert (claim.occurrence.uid, claim.occurrence.wanted_limit) == ("c", None)
    assert bench.settle(_decide(bench, claim, ONE_EACH))
    assert bench.settle(_decide(bench, bench.claim_one(), ONE_EACH))
    assert _places(bench) == (0, 0, 0)


@case
def what_waited_for_room_does_not_misfire(bench: Bench) -> None:
    _create(bench, "a", ADA, 0)
    every = IntervalTrigger(60, start_at=from_micros(NOW + SECOND))
    bench.create("b", trigger=every, misfire_policy=misfire.Skip(grace=SECOND))
    [running] = _work(bench, ONE_EACH)
    bench.store.renew([hold(running)], now=bench.now, lease=10 * LEASE)
    bench.advance(SECOND)
    assert _decide(bench, bench.claim_one(), ONE_EACH).waiting_for is Reason.INFLIGHT_LIMIT
    bench.advance(30 * SECOND)
    assert bench.settle(running)
    bench.advance(20 * SECOND)
    assert _decide(bench, bench.claim_one(), ONE_EACH).phase is Phase.DISPATCHING


@case
def several_keys_are_taken_together_or_not_at_all(bench: Bench) -> None:
    for uid, owner, after in (("a", BOB, 0), ("b", ADA, 1)):
        _create(bench, uid, owner, after, concurrency=DB)
    bench.advance(1)
    first, second = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    assert second.waiting_for is Reason.CONCURRENCY_LIMIT
    assert _places(bench) == (0, 1, 1)
    assert bench.settle(first)
    assert (_places(bench), bench.store.count_places("acme", "db")) == ((1, 0, 1), 1)
    assert bench.settle(_decide(bench, bench.claim_one(), ONE_EACH))
    assert (_places(bench), bench.store.count_places("acme", "db")) == ((0, 0, 0), 0)


@case
def what_needs_another_key_too_waits_for_that_one_next(bench: Bench) -> None:
    limits = _limits(1, 2)
    for uid, owner, after in (("a", ADA, 0), ("b", BOB, 1), ("c", BOB, 2), ("d", CY, 3)):
        _create(bench, uid, owner, after)
    bench.advance(3)
    a, b, c, d = sorted(_work(bench, limits), key=lambda one: one.uid)
    assert (a.phase, b.phase) == (Phase.DISPATCHING, Phase.DISPATCHING)
    assert (c.waiting_for, d.waiting_for) == (Reason.INFLIGHT_LIMIT, Reason.TENANT_INFLIGHT_LIMIT)
    assert bench.settle(a)  # c is the first, but its user has no room
    d = _decide(bench, bench.claim_one(), limits)
    assert (d.uid, d.phase) == ("d", Phase.DISPATCHING)
    _create(bench, "e", ADA, 3)
    e = _decide(bench, bench.claim_one(), limits)
    assert e.waiting_for is Reason.TENANT_INFLIGHT_LIMIT
    assert bench.settle(b)  # c and e want the place of the tenant: c was due before
    c = _decide(bench, bench.claim_one(), limits)
    assert (c.uid, c.phase) == ("c", Phase.DISPATCHING)
    assert bench.settle(d)
    assert _decide(bench, bench.claim_one(), limits).uid == "e"
    assert _places(bench) == (1, 1, 2)


@case
def what_waits_for_its_user_moves_to_the_line_of_its_tenant(bench: Bench) -> None:
    limits = _limits(1, 2)
    for uid, owner, after in (("a", ADA, 0), ("b", BOB, 1), ("c", CY, 2), ("d", ADA, 3)):
        _create(bench, uid, owner, after)
    bench.advance(3)
    a, b, c, d = sorted(_work(bench, limits), key=lambda one: one.uid)
    assert (c.waiting_for, d.waiting_for) == (Reason.TENANT_INFLIGHT_LIMIT, Reason.INFLIGHT_LIMIT)
    assert bench.settle(a)  # its user has room for d, but the place of the tenant is for c
    assert _decide(bench, bench.claim_one(), limits).uid == "c"
    d = bench.row(d)
    assert (d.phase, d.waiting_for, d.wanted_limit) == (Phase.PENDING, Reason.TENANT_INFLIGHT_LIMIT, 2)
    assert _places(bench) == (0, 1, 2)
    assert bench.settle(b)
    assert _decide(bench, bench.claim_one(), limits).uid == "d"


@case
def a_place_is_held_until_the_occurrence_ends(bench: Bench) -> None:
    for uid, after in (("a", 0), ("b", 1)):
        _create(bench, uid, ADA, after)
    bench.advance(1)
    running, waiting = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    bench.advance(2 * LEASE)  # its node is lost
    [taken_over] = bench.claim("node-b")
    assert (taken_over.occurrence.id, _places(bench)) == (running.id, (1, 0, 1))
    again = _decide(bench, taken_over, ONE_EACH)
    assert (again.phase, again.losses) == (Phase.DISPATCHING, 1)
    accepted = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + LEASE)
    assert bench.store.settle([settle(again, taken_over.schedule, accepted, node="node-b")]) == [True]
    assert (bench.claim(), _places(bench)) == ([], (1, 0, 1))
    assert bench.settle(again)
    assert bench.claim_one().occurrence.id == waiting.id


@case
def a_retry_and_a_cancelled_row_give_their_places_back(bench: Bench) -> None:
    for uid, after in (("a", 0), ("b", 1), ("c", 2)):
        _create(bench, uid, ADA, after)
    bench.advance(2)
    running, second, _ = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    assert bench.retry(running, bench.now + 10)
    assert bench.store.cancel(second.id)  # it was handed the place, and has not started
    third = _decide(bench, bench.claim_one(), ONE_EACH)
    assert (third.uid, _places(bench)) == ("c", (1, 0, 1))
    bench.advance(10)
    assert _decide(bench, bench.claim_one(), ONE_EACH).waiting_for is Reason.INFLIGHT_LIMIT
    assert bench.settle(third)
    assert _decide(bench, bench.claim_one(), ONE_EACH).attempt == 2


@case
def a_limit_that_is_gone_frees_its_places_with_the_next_start(bench: Bench) -> None:
    for uid, after in (("a", 0), ("b", 1), ("c", 2)):
        _create(bench, uid, ADA, after)
    bench.advance(2)
    running, _, _ = sorted(_work(bench, ONE_EACH), key=lambda one: one.uid)
    assert bench.settle(running)
    claim = bench.claim_one()  # it was handed a place, and needs none any more
    bench.start(claim)
    assert _places(bench) == (1, 0, 1)
    assert bench.claim_one().occurrence.uid == "c"
