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


async def _counted(bench: Bench, limit: int = MANY) -> tuple[int, int, int]:
    """Schedules, what is due, what waits."""
    found = await bench.store.backlog(bench.now, limit)
    return found.schedules, found.due, found.waiting


@case
async def what_is_due_is_counted_on_every_route(bench: Bench) -> None:
    assert await bench.store.backlog(bench.now, MANY) == Backlog()
    made = await bench.create_quiet("uid-1")
    for key, after in (("a", 0), ("b", 5), ("c", 6)):
        await bench.add(made, key, after)
    other = await bench.create_quiet("uid-2", target=FunctionTarget(function="nobody-has-it"))
    await bench.add(other, "a")
    assert await _counted(bench) == (2, 2, 0)
    bench.advance(5)
    assert await _counted(bench) == (2, 3, 0)
    assert await _counted(bench, 1) == (1, 1, 0)
    assert await _counted(bench) == (2, 3, 0)


@case
async def what_is_claimed_is_not_counted_unless_its_lease_has_ended(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.run(made, "a")
    await bench.add(made, "b")
    await bench.claim_one("node-b")
    assert await _counted(bench) == (0, 0, 0)
    bench.advance(LEASE - 1)
    assert await _counted(bench) == (0, 0, 0)
    bench.advance(1)
    assert await _counted(bench) == (1, 2, 0)
    await bench.claim()
    assert await _counted(bench) == (0, 0, 0)


@case
async def what_a_pause_holds_is_not_due(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add_event(made, "a")
    assert await _counted(bench) == (1, 1, 0)
    assert await bench.commit(edits.pause(await bench.snapshot(made), now=bench.now))
    assert await _counted(bench) == (0, 0, 0)


@case
async def what_waits_for_its_turn_is_counted_until_it_has_it(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    for key in ("b", "c"):
        await bench.add(made, key)
        await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.QUEUED))
    assert await _counted(bench) == (0, 0, 2)
    assert await _counted(bench, 1) == (0, 0, 1)
    assert await bench.settle(running)
    assert await _counted(bench) == (1, 1, 1)
    running = await bench.start(await bench.claim_one())
    assert await _counted(bench) == (0, 0, 1)
    assert await bench.settle(running)
    assert await bench.settle(await bench.start(await bench.claim_one()))
    assert await _counted(bench) == (0, 0, 0)


@case
async def what_waits_for_a_place_is_counted_until_it_has_it(bench: Bench) -> None:
    db = Concurrency(key="db")
    running = await bench.run(await bench.create_quiet("uid-1", concurrency=db), "a")
    await bench.add(await bench.create_quiet("uid-2", concurrency=db), "b")
    await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    assert await _counted(bench) == (0, 0, 1)
    assert await bench.settle(running)
    assert await _counted(bench) == (1, 1, 0)
    await bench.start(await bench.claim_one())
    assert await _counted(bench) == (0, 0, 0)


@case
async def what_waits_for_others_is_counted_until_there_is_news(bench: Bench) -> None:
    await bench.create("up")
    await bench.create("down", depends_on=(Dependency(schedule_id="schedule-of-up"),))
    bench.advance(MINUTE)
    claims = {claim.occurrence.uid: claim for claim in await bench.claim()}
    [standings] = await bench.store.upstreams([claims["down"]])
    decided = after_upstreams(claims["down"], standings, now=bench.now)
    assert isinstance(decided, Wait), decided
    await bench.decide(decided)
    assert await _counted(bench) == (0, 0, 1)
    assert await bench.settle(await bench.start(claims["up"]))
    assert await _counted(bench) == (1, 1, 0)


@case
async def what_is_deleted_is_not_counted(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    await bench.add(made, "b")
    await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.QUEUED))
    await bench.add(made, "c")
    assert await _counted(bench) == (1, 1, 1)
    assert await bench.commit(edits.delete(await bench.snapshot(made), now=bench.now))
    assert await _counted(bench) == (0, 0, 0)
    await bench.settle(running)
    assert await _counted(bench) == (0, 0, 0)
