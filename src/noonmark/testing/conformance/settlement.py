"""Settlements take effect while the fence holds; ends are counted, and what they free is handed on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Horizon
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.triggers import OnceTrigger
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench


@case
async def an_end_is_written_with_its_run(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = await bench.run(made, "a")
    settlement = bench.settlement(one, facts={"answer": 42})
    assert await bench.store.settle([settlement]) == [True]
    row = await bench.row(one)
    assert (row.phase, row.reason, row.detail) == (Phase.COMPLETED, Reason.SUCCEEDED, '{"answer": 42}')
    assert (row.attempt, row.holds_slot, row.fence, row.ended) == (1, False, one.fence, NOW)
    assert await bench.store.runs(made.uid) == [settlement.run]
    bench.advance(LEASE)
    assert await bench.claim() == []


@case
async def an_occurrence_tells_when_it_ended(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = await bench.run(made, "a")
    bench.advance(3)
    assert (await bench.row(one)).ended is None
    assert await bench.retry(one, bench.now)
    again = await bench.start(await bench.claim_one())
    assert again.ended is (await bench.row(one)).ended is None
    bench.advance(4)
    assert await bench.settle(again)
    waits = await bench.add(made, "b", MINUTE)
    bench.advance(2)
    assert await bench.store.cancel(waits.id)
    bench.advance(5)
    assert [row.ended for row in await bench.store.occurrences(made.uid)] == [NOW + 9, NOW + 7]


@case
async def a_gap_that_a_plan_records_has_ended_then(bench: Bench) -> None:
    made = await bench.create(misfire_policy=misfire.Skip())
    bench.advance(3 * MINUTE)
    assert await bench.commit(plan(await bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD))
    rows = await bench.store.occurrences(made.uid)
    assert {(row.phase in FINAL, row.ended) for row in rows} == {(True, bench.now), (False, None)}


@case
async def a_stale_fence_settles_nothing(bench: Bench) -> None:
    made = await bench.create_quiet()
    stale = await bench.run(made, "a")
    bench.advance(LEASE)
    claim = await bench.claim_one("node-b")
    assert not await bench.settle(stale)
    assert await bench.row(stale) == claim.occurrence
    current = await bench.start(claim)
    assert not await bench.settle(stale)
    assert [run.outcome for run in await bench.store.runs(made.uid)] == [None, Outcome.LEASE_LOST]
    assert (await bench.kept(made)).counters.total == 0
    assert await bench.settle(current)
    assert not await bench.settle(stale)


@case
async def only_one_result_is_accepted(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = await bench.run(made, "a")
    settlement = bench.settlement(one)
    assert await bench.store.settle([settlement, settlement]) == [True, False]
    assert len(await bench.store.runs(made.uid)) == 1
    assert (await bench.kept(made)).counters.total == 1
    await bench.add(made, "b")
    claim = await bench.claim_one()
    assert not await bench.settle(claim.occurrence)
    assert (await bench.row(claim.occurrence)).phase is Phase.CLAIMED


@case
async def a_lease_that_ran_out_unnoticed_can_be_settled(bench: Bench) -> None:
    one = await bench.run(await bench.create_quiet(), "a")
    bench.advance(10 * LEASE)
    assert await bench.settle(one)


@case
async def a_retry_is_pending_at_its_time_and_keeps_its_slot(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = await bench.run(made, "a")
    assert await bench.retry(one, NOW + 10)
    row = await bench.row(one)
    assert (row.phase, row.reason, row.due, row.first_due) == (Phase.PENDING, Reason.RETRY_SCHEDULED, NOW + 10, NOW)
    assert (row.attempt, row.holds_slot, row.nominal) == (1, True, NOW)
    kept = await bench.kept(made)
    assert (kept.counters.total, kept.next_due) == (0, NOW + 10)
    bench.advance(9)
    assert await bench.claim() == []
    bench.advance(1)
    again = await bench.start(await bench.claim_one("node-b"))
    assert again.attempt == 2
    assert again.fence > one.fence
    assert await bench.settle(again)
    runs = await bench.store.runs(made.uid)
    assert [run.attempt for run in runs] == [2, 1]


@case
async def what_is_handed_back_was_no_attempt(bench: Bench) -> None:
    made = await bench.create_quiet(max_runs=1)
    await bench.add_event(made, "a")
    one = await bench.start(await bench.claim_one())
    assert await bench.settle(one, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now, attempt=0)
    row = await bench.row(one)
    assert (row.attempt, row.reason) == (0, Reason.LEASE_LOST)
    assert (await bench.start(await bench.claim_one("node-b"))).attempt == 1
    assert (await bench.kept(made)).counters.admitted == 1


@case
async def tallies_count_what_became_of_each(bench: Bench) -> None:
    made = await bench.create_quiet()
    ends = [
        (Phase.COMPLETED, Reason.SUCCEEDED),
        (Phase.FAILED, Reason.FAILED),
        (Phase.TIMED_OUT, Reason.TIMED_OUT),
        (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE),
        (Phase.CANCELLED, Reason.CANCELLED),
    ]
    for phase, reason in ends:
        bench.advance(1)
        one = await bench.run(made, phase)
        assert await bench.settle(one, phase=phase, reason=reason)
    counters = (await bench.kept(made)).counters
    assert (counters.total, counters.successful, counters.failed, counters.missed, counters.skipped) == (5, 1, 3, 0, 0)
    assert (counters.failures_in_row, counters.last_phase, counters.last_started) == (3, Phase.CANCELLED, NOW + 5)
    assert counters.admitted == 0


@case
async def a_success_ends_the_failures_in_a_row(bench: Bench) -> None:
    made = await bench.create_quiet()
    assert await bench.fail(await bench.run(made, "a"), pause_after=2)
    assert await bench.settle(await bench.run(made, "b"))
    assert await bench.fail(await bench.run(made, "c"), pause_after=2)
    kept = await bench.kept(made)
    assert (kept.schedule.phase, kept.counters.failures_in_row) == (SchedulePhase.ACTIVE, 1)


@case
async def so_many_failures_in_a_row_pause_the_schedule(bench: Bench) -> None:
    made = await bench.create(horizon=Horizon(occurrences=3))
    assert await bench.fail(await bench.run(made, "a"), pause_after=2)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.ACTIVE
    second = await bench.run(made, "b")
    bench.advance(MINUTE)
    await bench.store.renew([hold(second)], now=bench.now, lease=LEASE)
    claim = await bench.claim_one()
    assert await bench.fail(second, pause_after=2)
    kept = await bench.kept(made)
    assert (kept.schedule.phase, kept.schedule.updated) == (SchedulePhase.PAUSED, bench.now)
    snapshot = await bench.snapshot(made)
    assert (snapshot.projections, snapshot.watermark) == ((), bench.now)
    skipped = await bench.row(claim.occurrence)
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.PAUSED)
    assert await bench.store.plannable(NOW + 10 * MINUTE, 10) == []
    assert await bench.commit(edits.resume(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert (await bench.kept(made)).counters.failures_in_row == 0
    assert await bench.fail(await bench.run(made, "c"), pause_after=2)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.ACTIVE


@case
async def a_schedule_is_completed_with_its_last_end(bench: Bench) -> None:
    made = await bench.create(trigger=OnceTrigger(from_micros(NOW)), pause_on_failure=1)
    claim = await bench.claim_one()
    one = await bench.start(claim)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.ACTIVE
    assert await bench.retry(one, bench.now)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.ACTIVE
    assert await bench.fail(await bench.start(await bench.claim_one()), pause_after=1)
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.COMPLETED
    assert await bench.settle(await bench.run(made, "asked for"))
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.COMPLETED


@case
async def a_schedule_that_listens_is_never_completed(bench: Bench) -> None:
    made = await bench.create_quiet()
    assert await bench.settle(await bench.run(made, "a"))
    assert (await bench.kept(made)).schedule.phase is SchedulePhase.ACTIVE


@case
async def what_is_being_delivered_outlives_its_schedule_but_is_not_retried(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    waiting = await bench.add(made, "b")
    claim = await bench.claim_one()
    pending = await bench.add(made, "c", MINUTE)
    assert await bench.commit(edits.delete(await bench.snapshot(made), now=bench.now))
    assert (await bench.row(running)).phase is Phase.DISPATCHING
    for one in (waiting, pending):
        row = await bench.row(one)
        assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.DELETED)
    assert (await bench.store.renew([hold(claim)], now=bench.now, lease=LEASE)).lost == {waiting.id}
    assert await bench.retry(running, bench.now)
    row = await bench.row(running)
    assert (row.phase, row.reason, row.holds_slot) == (Phase.CANCELLED, Reason.DELETED, False)
    [run] = await bench.store.runs(made.uid)
    assert run.outcome is Outcome.COMPLETED


@case
async def an_end_gives_the_slot_back_whatever_its_settlement_knows_of_it(bench: Bench) -> None:
    made = await bench.create_quiet()
    running = await bench.run(made, "a")
    assert await bench.settle(replace(running, holds_slot=False))
    assert (await bench.row(running)).holds_slot is False
    await bench.run(made, "b")


@case
async def a_completed_schedule_was_last_changed_with_its_last_end(bench: Bench) -> None:
    made = await bench.create(trigger=OnceTrigger(from_micros(NOW)))
    one = await bench.start(await bench.claim_one())
    bench.advance(5)
    assert await bench.settle(one)
    completed = (await bench.kept(made)).schedule
    assert (completed.phase, completed.updated) == (SchedulePhase.COMPLETED, bench.now)


@case
async def who_was_asked_to_stop_is_not_told_once_it_has_ended(bench: Bench) -> None:
    running = await bench.run(await bench.create_quiet(), "a")
    assert await bench.store.request_stop(running.id)
    assert await bench.settle(running)
    row = await bench.row(running)
    assert (row.phase, row.stop, row.node, row.started) == (Phase.COMPLETED, None, None, None)
