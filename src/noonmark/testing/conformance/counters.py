"""How much is to be done can be counted by whoever watches, whether or not any node works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait, after_upstreams
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.reasons import Reason
from noonmark.core.targets import FunctionTarget
from noonmark.ports.records import Backlog
from noonmark.testing.conformance.bench import LEASE, case
from noonmark.testing.factories import MINUTE

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

MANY = 100


def _counted(bench: Bench, limit: int = MANY) -> tuple[int, int, int]:
    """Schedules, what is due, what waits."""
    found = bench.store.backlog(bench.now, limit)
    return found.schedules, found.due, found.waiting


@case
def what_is_due_is_counted_on_every_route(bench: Bench) -> None:
    assert bench.store.backlog(bench.now, MANY) == Backlog()
    made = bench.create_quiet("uid-1")
    for key, after in (("a", 0), ("b", 5), ("c", 6)):
        bench.add(made, key, after)
    other = bench.create_quiet("uid-2", target=FunctionTarget(function="nobody-has-it"))
    bench.add(other, "a")
    assert _counted(bench) == (2, 2, 0)
    bench.advance(5)
    assert _counted(bench) == (2, 3, 0)
    assert _counted(bench, 1) == (1, 1, 0)
    assert _counted(bench) == (2, 3, 0)


@case
def what_is_claimed_is_not_counted_unless_its_lease_has_ended(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.run(made, "a")
    bench.add(made, "b")
    bench.claim_one("node-b")
    assert _counted(bench) == (0, 0, 0)
    bench.advance(LEASE - 1)
    assert _counted(bench) == (0, 0, 0)
    bench.advance(1)
    assert _counted(bench) == (1, 2, 0)
    bench.claim()
    assert _counted(bench) == (0, 0, 0)


@case
def what_a_pause_holds_is_not_due(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add_event(made, "a")
    assert _counted(bench) == (1, 1, 0)
    assert bench.commit(edits.pause(bench.snapshot(made), now=bench.now))
    assert _counted(bench) == (0, 0, 0)


@case
def what_waits_for_its_turn_is_counted_until_it_has_it(bench: Bench) -> None:
    made = bench.create_quiet()
    running = bench.run(made, "a")
    for key in ("b", "c"):
        bench.add(made, key)
        bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    assert _counted(bench) == (0, 0, 2)
    assert _counted(bench, 1) == (0, 0, 1)
    assert bench.settle(running)
    assert _counted(bench) == (1, 1, 1)
    running = bench.start(bench.claim_one())
    assert _counted(bench) == (0, 0, 1)
    assert bench.settle(running)
    assert bench.settle(bench.start(bench.claim_one()))
    assert _counted(bench) == (0, 0, 0)


@case
def what_waits_for_a_place_is_counted_until_it_has_it(bench: Bench) -> None:
    db = Concurrency(key="db")
    running = bench.run(bench.create_quiet("uid-1", concurrency=db), "a")
    bench.add(bench.create_quiet("uid-2", concurrency=db), "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    assert _counted(bench) == (0, 0, 1)
    assert bench.settle(running)
    assert _counted(bench) == (1, 1, 0)
    bench.start(bench.claim_one())
    assert _counted(bench) == (0, 0, 0)


@case
def what_waits_for_others_is_counted_until_there_is_news(bench: Bench) -> None:
    bench.create("up")
    bench.create("down", depends_on=(Dependency(schedule_id="schedule-of-up"),))
    bench.advance(MINUTE)
    claims = {claim.occurrence.uid: claim for claim in bench.claim()}
    [standings] = bench.store.upstreams([claims["down"]])
    decided = after_upstreams(claims["down"], standings, now=bench.now)
    assert isinstance(decided, Wait), decided
    bench.decide(decided)
    assert _counted(bench) == (0, 0, 1)
    assert bench.settle(bench.start(claims["up"]))
    assert _counted(bench) == (1, 1, 0)


@case
def what_is_deleted_is_not_counted(bench: Bench) -> None:
    made = bench.create_quiet()
    running = bench.run(made, "a")
    bench.add(made, "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    bench.add(made, "c")
    assert _counted(bench) == (1, 1, 1)
    assert bench.commit(edits.delete(bench.snapshot(made), now=bench.now))
    assert _counted(bench) == (0, 0, 0)
    bench.settle(running)
    assert _counted(bench) == (0, 0, 0)
