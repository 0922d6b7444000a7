"""Cancelling: what has not started ends, what runs is asked to stop, and what makes no room in time is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.plans import Plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Horizon
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, expire, settle
from noonmark.core.triggers import OnceTrigger
from noonmark.ports.records import LeaseLost
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

GRACE = overlap.CANCEL_GRACE


async def _replace(bench: Bench, made: Schedule, key: str, grace: int = GRACE) -> Occurrence:
    """A newer one comes to wait, and asks whoever runs to make room."""
    await bench.add_event(made, key, bench.now - NOW)
    claim = await bench.claim_one()
    return await bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=True, cancel_grace=grace))


@case
async def a_pending_row_is_cancelled(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = await bench.add(made, "a", MINUTE)
    assert await bench.store.cancel(one.id)
    row = await bench.row(one)
    assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert row.fence > one.fence
    kept = await bench.kept(made)
    assert (kept.counters.total, kept.counters.last_phase, kept.next_due) == (1, Phase.CANCELLED, None)
    bench.advance(MINUTE)
    assert await bench.claim() == []
    assert not await bench.store.cancel(one.id)


@case
async def whoever_claimed_what_is_cancelled_has_lost_it(bench: Bench) -> None:
    await bench.add(await bench.create_quiet(), "a")
    claim = await bench.claim_one()
    assert await bench.store.cancel(claim.occurrence.id)
    assert await bench.admit(start(claim)) == LeaseLost(occurrence_id=claim.occurrence.id)
    assert (await bench.store.renew([hold(claim)], now=bench.now, lease=LEASE)).lost == {claim.occurrence.id}


@case
async def a_retry_that_is_cancelled_hands_its_slot_on(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    await bench.add(made, "b")
    waiting = await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.QUEUED))
    assert await bench.retry(running, NOW + MINUTE)
    assert await bench.store.cancel(running.id)
    assert (await bench.claim_one()).occurrence.id == waiting.id


@case
async def what_waits_in_line_is_cancelled_and_leaves_the_line(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    await bench.add(made, "b")
    waiting = await bench.decide(Wait(claim=await bench.claim_one(), waiting_for=Reason.QUEUED))
    assert await bench.store.cancel(waiting.id)
    assert await bench.settle(running)
    assert await bench.claim() == []
    await bench.run(made, "c")


@case
async def what_runs_or_ended_or_is_unknown_is_not_cancelled(bench: Bench) -> None:
    running = await bench.run(await bench.create_quiet(), "a")
    assert not await bench.store.cancel(running.id)
    assert not await bench.store.cancel("nothing")
    assert await bench.settle(running)
    assert not await bench.store.cancel(running.id)
    assert (await bench.row(running)).phase is Phase.COMPLETED


@case
async def a_schedule_is_completed_when_its_last_one_is_cancelled(bench: Bench) -> None:
    made = await bench.create(trigger=OnceTrigger(from_micros(NOW + MINUTE)))
    [planned] = await bench.store.occurrences(made.uid)
    assert await bench.store.cancel(planned.id)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.COMPLETED


@case
async def what_was_cancelled_ahead_is_neither_planned_again_nor_counted_twice(bench: Bench) -> None:
    made = await bench.create(horizon=Horizon(occurrences=3))
    third = NOW + 3 * MINUTE
    [cancelled, _, _] = await bench.store.occurrences(made.uid)
    assert await bench.store.cancel(cancelled.id)
    snapshot = await bench.snapshot(made)
    assert (snapshot.admitted, snapshot.watermark, snapshot.beyond) == (third, third, ())
    assert await bench.commit(edits.pause(snapshot, now=bench.now))
    snapshot = await bench.snapshot(made)
    assert (snapshot.watermark, snapshot.beyond) == (NOW, ((third, third),))
    bench.advance(5 * MINUTE)
    assert await bench.commit(edits.resume(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert (await bench.snapshot(made)).beyond == ()
    swallowed = await bench.row(occurrence_id(made.uid, TRIGGER, NOW + MINUTE))
    assert (swallowed.reason, swallowed.missed_count) == (Reason.PAUSED, 4)
    assert (await bench.kept(made)).counters.total == 5


@case
async def a_gap_beyond_the_watermark_is_told_from_first_to_last(bench: Bench) -> None:
    made = await bench.create()
    bench.advance(10 * MINUTE)  # the clock is ahead for a while
    assert await bench.commit(plan(await bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD))
    gap = next(one for one in await bench.store.occurrences(made.uid) if one.phase is Phase.MISFIRED)
    bench.advance(-10 * MINUTE)
    snapshot = await bench.snapshot(made)
    assert await bench.commit(Plan(snapshot=snapshot, watermark=NOW))
    assert (await bench.snapshot(made)).beyond == ((NOW + MINUTE, gap.missed_last),)
    assert await bench.commit(Plan(snapshot=await bench.snapshot(made), watermark=NOW + 2 * MINUTE))
    assert (await bench.snapshot(made)).beyond == ((NOW + MINUTE, gap.missed_last),)


@case
async def what_makes_no_room_in_time_is_overdue(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    waiting = await _replace(bench, made, "b")
    row = await bench.row(running)
    assert (row.phase, row.stop, row.deadline) == (Phase.DISPATCHING, Reason.REPLACED, NOW + GRACE)
    assert await bench.store.next_time([ROUTE]) == NOW + GRACE
    bench.advance(GRACE)
    [overdue] = await bench.store.overdue(now=bench.now, limit=10)
    assert overdue == row
    assert await bench.store.settle([expire(overdue, made, now=bench.now)]) == [True]
    ended = await bench.row(running)
    assert (ended.phase, ended.reason, ended.stop, ended.deadline) == (Phase.CANCELLED, Reason.REPLACED, None, None)
    assert not await bench.settle(running)
    [run] = await bench.store.runs(made.uid)
    assert (run.node, run.started, run.ended, run.outcome) == ("node-a", NOW, bench.now, Outcome.CANCELLED)
    assert (await bench.claim_one()).occurrence.id == waiting.id


@case
async def an_earlier_deadline_stays(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    await _replace(bench, made, "b")
    bench.advance(1)
    await _replace(bench, made, "c")
    assert (await bench.row(running)).deadline == NOW + GRACE
    await _replace(bench, made, "d", grace=5)
    assert (await bench.row(running)).deadline == NOW + 6
    accepted = Accepted(started=NOW, accepted=bench.now)
    assert await bench.store.settle([settle(running, made, accepted, node="node-a")]) == [True]
    row = await bench.row(running)
    assert (row.phase, row.stop, row.deadline) == (Phase.AWAITING_COMPLETION, Reason.REPLACED, NOW + 6)


@case
async def what_awaits_completion_makes_room_in_time_or_is_cut_off(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    accepted = Accepted(started=NOW, accepted=NOW)
    assert await bench.store.settle([settle(running, made, accepted, node="node-a")]) == [True]
    waiting = await _replace(bench, made, "b")
    bench.advance(GRACE)
    [overdue] = await bench.store.overdue(now=bench.now, limit=10)
    assert await bench.store.settle([expire(overdue, made, now=bench.now)]) == [True]
    ended = await bench.row(running)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.REPLACED)
    assert len(await bench.store.runs(made.uid)) == 1
    assert (await bench.claim_one()).occurrence.id == waiting.id


@case
async def the_request_to_make_room_outlives_a_lost_lease_but_no_retry(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    waiting = await _replace(bench, made, "b", grace=2 * LEASE)
    bench.advance(LEASE)
    taken = await bench.claim_one("node-b")
    assert (taken.occurrence.id, taken.occurrence.stop) == (running.id, Reason.REPLACED)
    assert taken.occurrence.deadline == NOW + 2 * LEASE
    again = await bench.start(taken)
    assert await bench.retry(again, bench.now)
    row = await bench.row(again)
    assert (row.stop, row.deadline) == (None, None)
    bench.advance(LEASE)
    assert await bench.store.overdue(now=bench.now, limit=10) == []
    assert (await bench.row(waiting)).phase is Phase.PENDING
