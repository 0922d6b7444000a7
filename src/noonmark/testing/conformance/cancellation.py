"""Cancellation: pending occurrences end, running ones are asked to stop, and are ended if they do not stop in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import Plan, plan
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


def _replace(bench: Bench, schedule: Schedule, key: str, grace: int = GRACE) -> Occurrence:
    """A newer one comes to wait, and asks the running one to stop."""
    bench.add_event(schedule, key, bench.now - NOW)
    claim = bench.claim_one()
    return bench.decide(Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=True, cancel_grace=grace))


@case
def a_pending_row_is_cancelled(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a", MINUTE)
    assert bench.store.cancel(occurrence.id)
    row = bench.row(occurrence)
    assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert row.fence > occurrence.fence
    stored = bench.stored(schedule)
    assert (stored.counters.total, stored.counters.last_phase, stored.next_due) == (1, Phase.CANCELLED, None)
    bench.advance(MINUTE)
    assert bench.claim() == []
    assert not bench.store.cancel(occurrence.id)


@case
def a_cancelled_occurrence_is_lost_to_its_node(bench: Bench) -> None:
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    assert bench.store.cancel(claim.occurrence.id)
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=claim.occurrence.id)
    assert bench.store.renew([hold(claim)], now=bench.now, lease=LEASE).lost == {claim.occurrence.id}


@case
def a_cancelled_retry_hands_its_slot_on(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b")
    waiting = bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    assert bench.retry(running, NOW + MINUTE)
    assert bench.store.cancel(running.id)
    assert bench.claim_one().occurrence.id == waiting.id


@case
def a_queued_occurrence_is_cancelled_and_leaves_the_queue(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b")
    waiting = bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    assert bench.store.cancel(waiting.id)
    assert bench.settle(running)
    assert bench.claim() == []
    bench.run(schedule, "c")


@case
def a_running_ended_or_unknown_occurrence_is_not_cancelled(bench: Bench) -> None:
    running = bench.run(bench.create_quiet(), "a")
    assert not bench.store.cancel(running.id)
    assert not bench.store.cancel("nothing")
    assert bench.settle(running)
    assert not bench.store.cancel(running.id)
    assert bench.row(running).phase is Phase.COMPLETED


@case
def a_schedule_is_completed_when_its_last_one_is_cancelled(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(NOW + MINUTE)))
    [planned] = bench.store.occurrences(schedule.uid)
    assert bench.store.cancel(planned.id)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def an_occurrence_cancelled_ahead_is_neither_planned_again_nor_counted_twice(bench: Bench) -> None:
    schedule = bench.create(horizon=Horizon(occurrences=3))
    third = NOW + 3 * MINUTE
    [cancelled, _, _] = bench.store.occurrences(schedule.uid)
    assert bench.store.cancel(cancelled.id)
    snapshot = bench.snapshot(schedule)
    assert (snapshot.admitted, snapshot.watermark, snapshot.beyond) == (third, third, ())
    assert bench.commit(edits.pause(snapshot, now=bench.now))
    snapshot = bench.snapshot(schedule)
    assert (snapshot.watermark, snapshot.beyond) == (NOW, ((third, third),))
    bench.advance(5 * MINUTE)
    assert bench.commit(edits.resume(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.snapshot(schedule).beyond == ()
    skipped = bench.row(occurrence_id(schedule.uid, TRIGGER, NOW + MINUTE))
    assert (skipped.reason, skipped.missed_count) == (Reason.PAUSED, 4)
    assert bench.stored(schedule).counters.total == 5


@case
def a_gap_beyond_the_watermark_has_its_first_and_last_time(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(10 * MINUTE)  # the clock is ahead for a while
    assert bench.commit(plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    gap = next(one for one in bench.store.occurrences(schedule.uid) if one.phase is Phase.MISFIRED)
    bench.advance(-10 * MINUTE)
    snapshot = bench.snapshot(schedule)
    assert bench.commit(Plan(snapshot=snapshot, watermark=NOW))
    assert bench.snapshot(schedule).beyond == ((NOW + MINUTE, gap.missed_last),)
    assert bench.commit(Plan(snapshot=bench.snapshot(schedule), watermark=NOW + 2 * MINUTE))
    assert bench.snapshot(schedule).beyond == ((NOW + MINUTE, gap.missed_last),)


@case
def a_run_that_does_not_stop_in_time_is_overdue(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    waiting = _replace(bench, schedule, "b")
    row = bench.row(running)
    assert (row.phase, row.stop, row.deadline) == (Phase.DISPATCHING, Reason.REPLACED, NOW + GRACE)
    assert bench.store.next_time([ROUTE]) == NOW + GRACE
    bench.advance(GRACE)
    [overdue] = bench.store.overdue(now=bench.now, limit=10)
    assert overdue == row
    assert bench.store.settle([expire(overdue, schedule, now=bench.now)]) == [True]
    ended = bench.row(running)
    assert (ended.phase, ended.reason, ended.stop, ended.deadline) == (Phase.CANCELLED, Reason.REPLACED, None, None)
    assert not bench.settle(running)
    [run] = bench.store.runs(schedule.uid)
    assert (run.node, run.started, run.ended, run.outcome) == ("node-a", NOW, bench.now, Outcome.CANCELLED)
    assert bench.claim_one().occurrence.id == waiting.id


@case
def an_earlier_deadline_stays(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    _replace(bench, schedule, "b")
    bench.advance(1)
    _replace(bench, schedule, "c")
    assert bench.row(running).deadline == NOW + GRACE
    _replace(bench, schedule, "d", grace=5)
    assert bench.row(running).deadline == NOW + 6
    accepted = Accepted(started=NOW, accepted=bench.now)
    assert bench.store.settle([settle(running, schedule, accepted, node="node-a")]) == [True]
    row = bench.row(running)
    assert (row.phase, row.stop, row.deadline) == (Phase.AWAITING_COMPLETION, Reason.REPLACED, NOW + 6)


@case
def an_awaited_completion_stops_in_time_or_is_ended(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    accepted = Accepted(started=NOW, accepted=NOW)
    assert bench.store.settle([settle(running, schedule, accepted, node="node-a")]) == [True]
    waiting = _replace(bench, schedule, "b")
    bench.advance(GRACE)
    [overdue] = bench.store.overdue(now=bench.now, limit=10)
    assert bench.store.settle([expire(overdue, schedule, now=bench.now)]) == [True]
    ended = bench.row(running)
    assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.REPLACED)
    assert len(bench.store.runs(schedule.uid)) == 1
    assert bench.claim_one().occurrence.id == waiting.id


@case
def a_stop_request_outlives_a_lost_lease_but_not_a_retry(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    waiting = _replace(bench, schedule, "b", grace=2 * LEASE)
    bench.advance(LEASE)
    taken = bench.claim_one("node-b")
    assert (taken.occurrence.id, taken.occurrence.stop) == (running.id, Reason.REPLACED)
    assert taken.occurrence.deadline == NOW + 2 * LEASE
    again = bench.start(taken)
    assert bench.retry(again, bench.now)
    row = bench.row(again)
    assert (row.stop, row.deadline) == (None, None)
    bench.advance(LEASE)
    assert bench.store.overdue(now=bench.now, limit=10) == []
    assert bench.row(waiting).phase is Phase.PENDING


@case
def what_was_asked_to_stop_does_not_begin_again_when_it_is_handed_back(bench: Bench) -> None:
    """Its node stops, and may not have seen the request."""
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    assert bench.store.request_stop(running.id)
    assert bench.settle(running, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now, attempt=0)
    row = bench.row(running)
    assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.CANCELLED)
    assert bench.claim("node-b") == []
    assert bench.run(schedule, "b").holds_slot, "its slot is free"
