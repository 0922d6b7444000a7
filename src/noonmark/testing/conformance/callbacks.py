"""What a target accepted awaits its completion: without a lease, in its places, until its end is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, Place
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, expire, settle
from noonmark.testing.conformance.bench import LEASE, ROUTE, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


async def _accept(bench: Bench, made: Schedule, one: Occurrence, within: int = MINUTE) -> Occurrence:
    """The target takes the work over, and has so long to say how it ended."""
    accepted = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + within)
    settlement = settle(one, made, accepted, node="node-a")
    assert await bench.store.settle([settlement]) == [True]
    return await bench.row(one)


async def _accepted(bench: Bench, made: Schedule, key: str = "a", within: int = MINUTE) -> Occurrence:
    await bench.add(made, key, bench.now - NOW)
    return await _accept(bench, made, await bench.start(await bench.claim_one()), within)


@case
async def what_was_accepted_awaits_completion_with_an_open_run(bench: Bench) -> None:
    made = await bench.create_quiet()
    row = await _accepted(bench, made)
    assert (row.phase, row.reason) == (Phase.AWAITING_COMPLETION, Reason.ACCEPTED)
    assert (row.deadline, row.node, row.started, row.holds_slot) == (NOW + MINUTE, "node-a", NOW, True)
    assert "deadline" in row.detail
    [run] = await bench.store.runs(made.uid)
    assert (run.started, run.ended, run.outcome) == (NOW, None, None)
    assert (await bench.kept(made)).counters.total == 0


@case
async def what_was_accepted_has_no_lease(bench: Bench) -> None:
    row = await _accepted(bench, await bench.create_quiet(), within=10 * LEASE)
    assert await bench.store.next_time([ROUTE]) == NOW + 10 * LEASE
    bench.advance(LEASE)
    assert await bench.claim("node-b") == []
    assert (await bench.store.renew([hold(row)], now=bench.now, lease=LEASE)).lost == {row.id}
    await bench.store.release([hold(row)])
    assert not await bench.store.request_stop(row.id)
    assert await bench.row(row) == row


@case
async def what_was_accepted_keeps_its_places(bench: Bench) -> None:
    made = await bench.create_quiet(concurrency=Concurrency(key="db"))
    row = await _accepted(bench, made)
    await bench.add(made, "b")
    other = await bench.create_quiet("uid-2", concurrency=Concurrency(key="db"))
    await bench.add(other, "c", 1)
    bench.advance(1)
    same, elsewhere = await bench.claim()
    assert await bench.admit(start(same)) == Busy(place=Place.SLOT)
    assert await bench.admit(start(elsewhere)) == Busy(place=Place.CONCURRENCY)
    assert await bench.settle(row)
    await bench.start(same)


@case
async def its_end_completes_the_run_in_place(bench: Bench) -> None:
    made = await bench.create_quiet()
    row = await _accepted(bench, made)
    bench.advance(MINUTE)
    delivered = Delivered(outcome=Outcome.COMPLETED, started=row.started or 0, ended=bench.now, result={"n": 1})
    end = settle(row, made, delivered, node=row.node or "")
    assert await bench.store.settle([end, end]) == [True, False]
    ended = await bench.row(row)
    assert (ended.phase, ended.reason, ended.holds_slot) == (Phase.COMPLETED, Reason.SUCCEEDED, False)
    assert (ended.node, ended.started, ended.deadline) == (None, None, None)
    [run] = await bench.store.runs(made.uid)
    assert (run.started, run.ended, run.outcome, run.result) == (NOW, NOW + MINUTE, Outcome.COMPLETED, {"n": 1})
    assert (await bench.kept(made)).counters.successful == 1
    assert await bench.store.overdue(now=bench.now, limit=10) == []


@case
async def what_is_accepted_is_accepted_once(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add(made, "a")
    started = await bench.start(await bench.claim_one())
    row = await _accept(bench, made, started)
    later = Accepted(started=NOW, accepted=NOW, deadline=NOW + 9 * MINUTE)
    assert await bench.store.settle([settle(started, made, later, node="node-a")]) == [False]
    assert await bench.row(row) == row
    assert await bench.settle(started)  # whoever has the fence may tell the end


@case
async def overdue_is_what_has_not_ended_by_its_deadline(bench: Bench) -> None:
    rows = [
        await _accepted(bench, await bench.create_quiet(uid), uid, within)
        for uid, within in (("uid-1", 3 * MINUTE), ("uid-2", MINUTE), ("uid-3", 2 * MINUTE))
    ]
    bench.advance(MINUTE - 1)
    assert await bench.store.overdue(now=bench.now, limit=10) == []
    bench.advance(1)
    assert await bench.store.overdue(now=bench.now, limit=10) == [rows[1]]
    bench.advance(2 * MINUTE)
    assert await bench.store.overdue(now=bench.now, limit=10) == [rows[1], rows[2], rows[0]]
    assert await bench.store.overdue(now=bench.now, limit=2) == [rows[1], rows[2]]
    assert await bench.store.next_time([]) == NOW + MINUTE


@case
async def no_completion_in_time_ends_it_or_is_tried_again(bench: Bench) -> None:
    made = await bench.create_quiet(retry_policy=RetryPolicy(max_attempts=2))
    await _accepted(bench, made)
    bench.advance(MINUTE)
    [overdue] = await bench.store.overdue(now=bench.now, limit=10)
    expired = expire(overdue, made, now=bench.now)
    assert await bench.store.settle([expired]) == [True]
    row = await bench.row(overdue)
    assert (row.phase, row.reason, row.deadline, row.holds_slot) == (
        Phase.PENDING,
        Reason.RETRY_SCHEDULED,
        None,
        True,
    )
    assert not await bench.settle(overdue)
    bench.advance(row.due - bench.now)
    again = await _accept(bench, made, await bench.start(await bench.claim_one()))
    bench.advance(MINUTE)
    assert await bench.store.settle([expire(again, made, now=bench.now)]) == [True]
    ended = await bench.row(again)
    assert (ended.phase, ended.reason) == (Phase.TIMED_OUT, Reason.ATTEMPTS_EXHAUSTED)
    assert [run.outcome for run in await bench.store.runs(made.uid)] == [Outcome.TIMED_OUT, Outcome.TIMED_OUT]


@case
async def what_was_accepted_outlives_a_pause_and_a_delete(bench: Bench) -> None:
    made = await bench.create_quiet()
    row = await _accepted(bench, made)
    assert await bench.commit(edits.pause(await bench.snapshot(made), now=bench.now))
    assert await bench.row(row) == row
    assert await bench.commit(edits.delete(await bench.snapshot(made), now=bench.now))
    assert await bench.row(row) == row
    assert await bench.settle(row)
    snapshot = await bench.snapshot(made)
    assert snapshot.schedule.phase is SchedulePhase.DELETED


@case
async def what_has_ended_has_no_deadline_any_more(bench: Bench) -> None:
    row = await _accepted(bench, await bench.create_quiet())
    assert await bench.settle(row)
    assert (await bench.row(row)).deadline is None
    assert await bench.store.next_time([ROUTE]) is None
