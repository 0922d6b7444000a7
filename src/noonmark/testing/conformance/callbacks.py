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


def _accept(bench: Bench, made: Schedule, one: Occurrence, within: int = MINUTE) -> Occurrence:
    """The target takes the work over, and has so long to say how it ended."""
    accepted = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + within)
    settlement = settle(one, made, accepted, node="node-a")
    assert bench.store.settle([settlement]) == [True]
    return bench.row(one)


def _accepted(bench: Bench, made: Schedule, key: str = "a", within: int = MINUTE) -> Occurrence:
    bench.add(made, key, bench.now - NOW)
    return _accept(bench, made, bench.start(bench.claim_one()), within)


@case
def what_was_accepted_awaits_completion_with_an_open_run(bench: Bench) -> None:
    made = bench.create_quiet()
    row = _accepted(bench, made)
    assert (row.phase, row.reason) == (Phase.AWAITING_COMPLETION, Reason.ACCEPTED)
    assert (row.deadline, row.node, row.started, row.holds_slot) == (NOW + MINUTE, "node-a", NOW, True)
    assert "deadline" in row.detail
    [run] = bench.store.runs(made.uid)
    assert (run.started, run.ended, run.outcome) == (NOW, None, None)
    assert bench.kept(made).counters.total == 0


@case
def what_was_accepted_has_no_lease(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet(), within=10 * LEASE)
    assert bench.store.next_time([ROUTE]) == NOW + 10 * LEASE
    bench.advance(LEASE)
    assert bench.claim("node-b") == []
    assert bench.store.renew([hold(row)], now=bench.now, lease=LEASE).lost == {row.id}
    bench.store.release([hold(row)])
    assert not bench.store.request_stop(row.id)
    assert bench.row(row) == row


@case
def what_was_accepted_keeps_its_places(bench: Bench) -> None:
    made = bench.create_quiet(concurrency=Concurrency(key="db"))
    row = _accepted(bench, made)
    bench.add(made, "b")
    other = bench.create_quiet("uid-2", concurrency=Concurrency(key="db"))
    bench.add(other, "c", 1)
    bench.advance(1)
    same, elsewhere = bench.claim()
    assert bench.admit(start(same)) == Busy(place=Place.SLOT)
    assert bench.admit(start(elsewhere)) == Busy(place=Place.CONCURRENCY)
    assert bench.settle(row)
    bench.start(same)


@case
def its_end_completes_the_run_in_place(bench: Bench) -> None:
    made = bench.create_quiet()
    row = _accepted(bench, made)
    bench.advance(MINUTE)
    delivered = Delivered(outcome=Outcome.COMPLETED, started=row.started or 0, ended=bench.now, result={"n": 1})
    end = settle(row, made, delivered, node=row.node or "")
    assert bench.store.settle([end, end]) == [True, False]
    ended = bench.row(row)
    assert (ended.phase, ended.reason, ended.holds_slot) == (Phase.COMPLETED, Reason.SUCCEEDED, False)
    assert (ended.node, ended.started, ended.deadline) == (None, None, None)
    [run] = bench.store.runs(made.uid)
    assert (run.started, run.ended, run.outcome, run.result) == (NOW, NOW + MINUTE, Outcome.COMPLETED, {"n": 1})
    assert bench.kept(made).counters.successful == 1
    assert bench.store.overdue(now=bench.now, limit=10) == []


@case
def what_is_accepted_is_accepted_once(bench: Bench) -> None:
    made = bench.create_quiet()
    bench.add(made, "a")
    started = bench.start(bench.claim_one())
    row = _accept(bench, made, started)
    later = Accepted(started=NOW, accepted=NOW, deadline=NOW + 9 * MINUTE)
    assert bench.store.settle([settle(started, made, later, node="node-a")]) == [False]
    assert bench.row(row) == row
    assert bench.settle(started)  # whoever has the fence may tell the end


@case
def overdue_is_what_has_not_ended_by_its_deadline(bench: Bench) -> None:
    rows = [
        _accepted(bench, bench.create_quiet(uid), uid, within)
        for uid, within in (("uid-1", 3 * MINUTE), ("uid-2", MINUTE), ("uid-3", 2 * MINUTE))
    ]
    bench.advance(MINUTE - 1)
    assert bench.store.overdue(now=bench.now, limit=10) == []
    bench.advance(1)
    assert bench.store.overdue(now=bench.now, limit=10) == [rows[1]]
    bench.advance(2 * MINUTE)
    assert bench.store.overdue(now=bench.now, limit=10) == [rows[1], rows[2], rows[0]]
    assert bench.store.overdue(now=bench.now, limit=2) == [rows[1], rows[2]]
    assert bench.store.next_time([]) == NOW + MINUTE


@case
def no_completion_in_time_ends_it_or_is_tried_again(bench: Bench) -> None:
    made = bench.create_quiet(retry_policy=RetryPolicy(max_attempts=2))
    _accepted(bench, made)
    bench.advance(MINUTE)
    [overdue] = bench.store.overdue(now=bench.now, limit=10)
    expired = expire(overdue, made, now=bench.now)
    assert bench.store.settle([expired]) == [True]
    row = bench.row(overdue)
    assert (row.phase, row.reason, row.deadline, row.holds_slot) == (
        Phase.PENDING,
        Reason.RETRY_SCHEDULED,
        None,
        True,
    )
    assert not bench.settle(overdue)
    bench.advance(row.due - bench.now)
    again = _accept(bench, made, bench.start(bench.claim_one()))
    bench.advance(MINUTE)
    assert bench.store.settle([expire(again, made, now=bench.now)]) == [True]
    ended = bench.row(again)
    assert (ended.phase, ended.reason) == (Phase.TIMED_OUT, Reason.ATTEMPTS_EXHAUSTED)
    assert [run.outcome for run in bench.store.runs(made.uid)] == [Outcome.TIMED_OUT, Outcome.TIMED_OUT]


@case
def what_was_accepted_outlives_a_pause_and_a_delete(bench: Bench) -> None:
    made = bench.create_quiet()
    row = _accepted(bench, made)
    assert bench.commit(edits.pause(bench.snapshot(made), now=bench.now))
    assert bench.row(row) == row
    assert bench.commit(edits.delete(bench.snapshot(made), now=bench.now))
    assert bench.row(row) == row
    assert bench.settle(row)
    snapshot = bench.snapshot(made)
    assert snapshot.schedule.phase is SchedulePhase.DELETED


@case
def what_has_ended_has_no_deadline_any_more(bench: Bench) -> None:
    row = _accepted(bench, bench.create_quiet())
    assert bench.settle(row)
    assert bench.row(row).deadline is None
    assert bench.store.next_time([ROUTE]) is None
