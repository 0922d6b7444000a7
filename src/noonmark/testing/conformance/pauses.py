"""A pause holds what the schedule asked for by itself, and lets go of it when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Concurrency, Dependency, Horizon
from noonmark.core.reasons import Reason
from noonmark.ports.records import LeaseLost
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


async def _pause(bench: Bench, made: Schedule) -> None:
    assert await bench.commit(edits.pause(await bench.snapshot(made), now=bench.now))


async def _resume(bench: Bench, made: Schedule) -> None:
    assert await bench.commit(edits.resume(await bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD))


@case
async def a_pause_holds_a_retry_and_resuming_frees_it(bench: Bench) -> None:
    made = await bench.create()
    bench.advance(MINUTE)
    one = await bench.start(await bench.claim_one())
    assert await bench.retry(one, bench.now + 10)
    await _pause(bench, made)
    bench.advance(20)
    assert await bench.claim() == []
    assert await bench.store.next_time([ROUTE]) is None
    assert (await bench.kept(made)).next_due is None
    await _resume(bench, made)
    claim = await bench.claim_one()
    assert (claim.occurrence.id, claim.occurrence.attempt) == (one.id, 1)


@case
async def a_retry_that_is_asked_for_during_a_pause_is_held(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add_event(made, "a")
    one = await bench.start(await bench.claim_one())
    await _pause(bench, made)
    assert await bench.retry(one, bench.now)
    assert await bench.claim() == []
    await _resume(bench, made)
    await bench.claim_one()


@case
async def whoever_has_claimed_what_a_pause_holds_has_lost_it(bench: Bench) -> None:
    made = await bench.create_quiet()
    event = await bench.add_event(made, "a")
    claim = await bench.claim_one()
    await _pause(bench, made)
    assert await bench.admit(start(claim)) == LeaseLost(occurrence_id=event.id)
    row = await bench.row(event)
    assert row.phase is Phase.PENDING
    assert row.fence > claim.occurrence.fence
    bench.advance(LEASE)
    assert await bench.claim() == []
    await _resume(bench, made)
    await bench.start(await bench.claim_one())


@case
async def what_was_asked_for_goes_on_during_a_pause(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add(made, "a")
    claim = await bench.claim_one()
    await _pause(bench, made)
    running = await bench.start(claim)
    assert await bench.retry(running, bench.now)
    again = await bench.start(await bench.claim_one())
    assert await bench.settle(again)
    await bench.run(made, "b")


@case
async def what_is_being_delivered_is_taken_over_during_a_pause(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add_event(made, "a")
    await bench.start(await bench.claim_one())
    await _pause(bench, made)
    bench.advance(LEASE)
    assert await bench.settle(await bench.start(await bench.claim_one("node-b")))


@case
async def a_slot_that_becomes_free_passes_by_what_is_held(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    held = await bench.add_event(made, "b", 1)
    asked = await bench.add(made, "c", 2)
    bench.advance(2)
    for claim in await bench.claim():
        await bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED))
    await _pause(bench, made)
    assert await bench.settle(running)
    claim = await bench.claim_one()
    assert claim.occurrence.id == asked.id
    assert await bench.settle(await bench.start(claim))
    assert await bench.claim() == []
    await _resume(bench, made)
    claim = await bench.claim_one()
    assert (claim.occurrence.id, claim.occurrence.waiting_for) == (held.id, Reason.QUEUED)
    await bench.start(claim)


@case
async def a_place_that_becomes_free_passes_by_what_is_held(bench: Bench) -> None:
    one = Concurrency(key="db")
    running = await bench.run(await bench.create_quiet("uid-1", concurrency=one), "a")
    made = await bench.create_quiet("uid-2", concurrency=one)
    held = await bench.add_event(made, "b")
    await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    await _pause(bench, made)
    assert await bench.settle(running)
    assert await bench.claim() == []
    passing = await bench.run(await bench.create_quiet("uid-3", concurrency=one), "c")
    await _resume(bench, made)
    assert await bench.claim() == []
    assert await bench.settle(passing)
    claim = await bench.claim_one()
    assert claim.occurrence.id == held.id
    await bench.start(claim)


@case
async def resuming_hands_a_place_that_is_free_to_what_was_held(bench: Bench) -> None:
    one = Concurrency(key="db")
    running = await bench.run(await bench.create_quiet("uid-1", concurrency=one), "a")
    made = await bench.create_quiet("uid-2", concurrency=one)
    await bench.add_event(made, "b")
    await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    await _pause(bench, made)
    assert await bench.settle(running)
    await _resume(bench, made)
    await bench.start(await bench.claim_one())


@case
async def a_pause_counts_what_was_due_and_withdraws_what_was_not(bench: Bench) -> None:
    made = await bench.create()
    bench.advance(MINUTE)
    [claim] = await bench.claim()
    await _pause(bench, made)
    [skipped] = await bench.store.occurrences(made.uid)
    assert (skipped.nominal, skipped.phase, skipped.reason) == (NOW + MINUTE, Phase.SKIPPED, Reason.PAUSED)
    assert (await bench.store.renew([hold(claim)], now=bench.now, lease=LEASE)).lost == {skipped.id}
    bench.advance(3 * MINUTE)
    await _resume(bench, made)
    counters = (await bench.kept(made)).counters
    assert (counters.total, counters.skipped) == (4, 4)
    assert (await bench.kept(made)).next_due == NOW + 5 * MINUTE


@case
async def what_is_given_back_during_a_pause_keeps_no_place_from_others(bench: Bench) -> None:
    one = Concurrency(key="db")
    made = await bench.create_quiet("uid-1", concurrency=one)
    await bench.add_event(made, "a")
    await bench.start(await bench.claim_one())
    waiting = await bench.add(await bench.create_quiet("uid-2", concurrency=one), "b")
    await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.CONCURRENCY_LIMIT))
    await _pause(bench, made)
    bench.advance(LEASE)
    lost = await bench.claim_one("node-b")
    assert lost.schedule.uid == made.uid
    await bench.store.release([hold(lost)])
    claim = await bench.claim_one("node-b")
    assert claim.occurrence.id == waiting.id
    await bench.start(claim)


@case
async def of_a_gap_within_what_a_pause_withdrew_the_gap_counts_for_others(bench: Bench) -> None:
    up = await bench.create("up", misfire_policy=misfire.CatchUpOne(grace=SECOND))
    on_up = (Dependency(schedule_id=up.schedule_id),)
    await bench.create("down", depends_on=on_up, horizon=Horizon(occurrences=3))
    bench.advance(MINUTE)
    await bench.claim()
    bench.advance(4 * MINUTE)
    await _pause(bench, up)
    rows = {row.nominal: (row.phase, row.missed_last) for row in await bench.store.occurrences(up.uid)}
    first, second = NOW + MINUTE, NOW + 2 * MINUTE
    assert rows == {first: (Phase.SKIPPED, NOW + 5 * MINUTE), second: (Phase.MISFIRED, NOW + 4 * MINUTE)}
    [down] = [claim for claim in await bench.claim() if claim.occurrence.nominal == NOW + 3 * MINUTE]
    [standings] = await bench.store.upstreams([down])
    assert standings.each[0].newest == (NOW + 3 * MINUTE, Phase.MISFIRED)
