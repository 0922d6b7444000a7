"""Settlements take effect while the fence holds; ends are counted, complete schedules, and hand on what they free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, Place, Start, Wait, after_upstreams, refused
from noonmark.core.instants import from_micros
from noonmark.core.interruption import BY_START
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Concurrency, Dependency, Horizon
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, begin, settle
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import OnceTrigger
from noonmark.ports.records import Backlog
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


@case
def an_end_is_written_with_its_run(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    settlement = bench.settlement(occurrence, facts={"answer": 42})
    assert bench.store.settle([settlement]) == [True]
    row = bench.row(occurrence)
    assert (row.phase, row.reason, row.detail) == (Phase.COMPLETED, Reason.SUCCEEDED, '{"answer": 42}')
    assert (row.attempt, row.holds_slot, row.fence, row.ended) == (1, False, occurrence.fence, NOW)
    assert bench.store.runs(schedule.uid) == [settlement.run]
    bench.advance(LEASE)
    assert bench.claim() == []


@case
def an_occurrence_has_the_time_of_its_end(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    bench.advance(3)
    assert bench.row(occurrence).ended is None
    assert bench.retry(occurrence, bench.now)
    again = bench.start(bench.claim_one())
    assert again.ended is bench.row(occurrence).ended is None
    bench.advance(4)
    assert bench.settle(again)
    waits = bench.add(schedule, "b", MINUTE)
    bench.advance(2)
    assert bench.store.cancel(waits.id)
    bench.advance(5)
    assert [row.ended for row in bench.store.occurrences(schedule.uid)] == [NOW + 9, NOW + 7]


@case
def a_gap_that_a_plan_records_has_ended_then(bench: Bench) -> None:
    schedule = bench.create(misfire_policy=misfire.Skip())
    bench.advance(3 * MINUTE)
    assert bench.commit(plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    rows = bench.store.occurrences(schedule.uid)
    assert {(row.phase in FINAL, row.ended) for row in rows} == {(True, bench.now), (False, None)}


@case
def a_start_that_is_reported_later_sets_the_start_and_the_deadline(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    waits = settle(occurrence, schedule, Accepted(started=NOW, accepted=NOW, deadline=NOW + 10), node="node-1")
    assert bench.store.settle([waits]) == [True]
    for seconds in (5, 3):  # a second start counts from there
        bench.advance(seconds)
        taken = Accepted(started=bench.now, accepted=bench.now, deadline=bench.now + 100, set_by=BY_START)
        begins = begin(bench.row(occurrence), schedule, taken, node="node-1")
        assert bench.store.settle([begins]) == [True]
        row = bench.row(occurrence)
        assert (row.phase, row.started, row.deadline) == (Phase.AWAITING_COMPLETION, bench.now, bench.now + 100)
        assert bench.store.runs(schedule.uid) == [begins.run]
    assert bench.store.overdue(now=NOW + 50, limit=9) == []
    assert [row.id for row in bench.store.overdue(now=NOW + 108, limit=9)] == [occurrence.id]
    assert bench.settle(bench.row(occurrence))
    assert bench.store.settle([begins]) == [False]


@case
def a_start_that_is_reported_before_the_acceptance_counts(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    taken = Accepted(started=NOW, accepted=NOW, deadline=NOW + 100, set_by=BY_START)
    assert bench.store.settle([begin(occurrence, schedule, taken, node="node-1")]) == [True]
    waits = settle(occurrence, schedule, Accepted(started=NOW, accepted=NOW, deadline=NOW + 10), node="node-1")
    assert bench.store.settle([waits]) == [False]
    assert bench.row(occurrence).deadline == NOW + 100


@case
def a_stale_fence_settles_nothing(bench: Bench) -> None:
    schedule = bench.create_quiet()
    stale = bench.run(schedule, "a")
    bench.advance(LEASE)
    claim = bench.claim_one("node-b")
    assert not bench.settle(stale)
    assert bench.row(stale) == claim.occurrence
    current = bench.start(claim)
    assert not bench.settle(stale)
    assert [run.outcome for run in bench.store.runs(schedule.uid)] == [None, Outcome.LEASE_LOST]
    assert bench.stored(schedule).counters.total == 0
    assert bench.settle(current)
    assert not bench.settle(stale)


@case
def only_one_result_is_accepted(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    settlement = bench.settlement(occurrence)
    assert bench.store.settle([settlement, settlement]) == [True, False]
    assert len(bench.store.runs(schedule.uid)) == 1
    assert bench.stored(schedule).counters.total == 1
    bench.add(schedule, "b")
    claim = bench.claim_one()
    assert not bench.settle(claim.occurrence)
    assert bench.row(claim.occurrence).phase is Phase.CLAIMED


@case
def a_lease_that_ran_out_unnoticed_can_be_settled(bench: Bench) -> None:
    occurrence = bench.run(bench.create_quiet(), "a")
    bench.advance(10 * LEASE)
    assert bench.settle(occurrence)


@case
def a_retry_is_pending_at_its_time_and_keeps_its_slot(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    assert bench.retry(occurrence, NOW + 10)
    row = bench.row(occurrence)
    assert (row.phase, row.reason, row.due, row.first_due) == (Phase.PENDING, Reason.RETRY_SCHEDULED, NOW + 10, NOW)
    assert (row.attempt, row.holds_slot, row.nominal) == (1, True, NOW)
    stored = bench.stored(schedule)
    assert (stored.counters.total, stored.next_due) == (0, NOW + 10)
    bench.advance(9)
    assert bench.claim() == []
    bench.advance(1)
    again = bench.start(bench.claim_one("node-b"))
    assert again.attempt == 2
    assert again.fence > occurrence.fence
    assert bench.settle(again)
    runs = bench.store.runs(schedule.uid)
    assert [run.attempt for run in runs] == [2, 1]


@case
def a_delivery_that_is_handed_back_is_not_an_attempt(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=1)
    bench.add_event(schedule, "a")
    occurrence = bench.start(bench.claim_one())
    assert bench.settle(occurrence, phase=Phase.PENDING, reason=Reason.LEASE_LOST, retry_at=bench.now, attempt=0)
    row = bench.row(occurrence)
    assert (row.attempt, row.reason) == (0, Reason.LEASE_LOST)
    assert bench.start(bench.claim_one("node-b")).attempt == 1
    assert bench.stored(schedule).counters.admitted == 1


@case
def counters_count_each_outcome(bench: Bench) -> None:
    schedule = bench.create_quiet()
    ends = [
        (Phase.COMPLETED, Reason.SUCCEEDED),
        (Phase.FAILED, Reason.FAILED),
        (Phase.TIMED_OUT, Reason.TIMED_OUT),
        (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE),
        (Phase.CANCELLED, Reason.CANCELLED),
    ]
    for phase, reason in ends:
        bench.advance(1)
        occurrence = bench.run(schedule, phase)
        assert bench.settle(occurrence, phase=phase, reason=reason)
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.successful, counters.failed, counters.missed, counters.skipped) == (5, 1, 3, 0, 0)
    assert (counters.failures_in_row, counters.last_phase, counters.last_started) == (3, Phase.CANCELLED, NOW + 5)
    assert counters.admitted == 0


@case
def a_success_ends_the_failures_in_a_row(bench: Bench) -> None:
    schedule = bench.create_quiet()
    assert bench.fail(bench.run(schedule, "a"), pause_after=2)
    assert bench.settle(bench.run(schedule, "b"))
    assert bench.fail(bench.run(schedule, "c"), pause_after=2)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.counters.failures_in_row) == (SchedulePhase.ACTIVE, 1)


@case
def pause_on_failure_counts_failures_in_a_row(bench: Bench) -> None:
    schedule = bench.create(horizon=Horizon(occurrences=3))
    assert bench.fail(bench.run(schedule, "a"), pause_after=2)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    second = bench.run(schedule, "b")
    bench.advance(MINUTE)
    bench.store.renew([hold(second)], now=bench.now, lease=LEASE)
    claim = bench.claim_one()
    assert bench.fail(second, pause_after=2)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.schedule.updated) == (SchedulePhase.PAUSED, bench.now)
    snapshot = bench.snapshot(schedule)
    assert (snapshot.projections, snapshot.watermark) == ((), bench.now)
    skipped = bench.row(claim.occurrence)
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.PAUSED)
    assert bench.store.plannable(NOW + 10 * MINUTE, 10) == []
    assert bench.commit(edits.resume(snapshot, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.stored(schedule).counters.failures_in_row == 0
    assert bench.fail(bench.run(schedule, "c"), pause_after=2)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE


@case
def a_schedule_is_completed_with_its_last_end(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(NOW)), pause_on_failure=1)
    claim = bench.claim_one()
    occurrence = bench.start(claim)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    assert bench.retry(occurrence, bench.now)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    assert bench.fail(bench.start(bench.claim_one()), pause_after=1)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED
    assert bench.settle(bench.run(schedule, "asked for"))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def a_schedule_that_listens_is_never_completed(bench: Bench) -> None:
    schedule = bench.create_quiet()
    assert bench.settle(bench.run(schedule, "a"))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE


@case
def what_is_being_delivered_outlives_its_schedule_but_is_not_retried(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    waiting = bench.add(schedule, "b")
    claim = bench.claim_one()
    pending = bench.add(schedule, "c", MINUTE)
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.row(running).phase is Phase.DISPATCHING
    for occurrence in (waiting, pending):
        row = bench.row(occurrence)
        assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.DELETED)
    assert bench.store.renew([hold(claim)], now=bench.now, lease=LEASE).lost == {waiting.id}
    assert bench.retry(running, bench.now)
    row = bench.row(running)
    assert (row.phase, row.reason, row.holds_slot) == (Phase.CANCELLED, Reason.DELETED, False)
    [run] = bench.store.runs(schedule.uid)
    assert run.outcome is Outcome.COMPLETED


@case
def an_end_frees_the_slot_also_if_its_settlement_does_not_know_of_it(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    assert bench.settle(replace(running, holds_slot=False))
    assert bench.row(running).holds_slot is False
    bench.run(schedule, "b")


@case
def a_completed_schedule_was_last_changed_with_its_last_end(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(NOW)))
    occurrence = bench.start(bench.claim_one())
    bench.advance(5)
    assert bench.settle(occurrence)
    completed = bench.stored(schedule).schedule
    assert (completed.phase, completed.updated) == (SchedulePhase.COMPLETED, bench.now)


@case
def a_stop_request_is_cleared_by_the_end(bench: Bench) -> None:
    running = bench.run(bench.create_quiet(), "a")
    assert bench.store.request_stop(running.id)
    assert bench.settle(running)
    row = bench.row(running)
    assert (row.phase, row.stop, row.node, row.started) == (Phase.COMPLETED, None, None, None)


FIRST = NOW + MINUTE


def _replan(bench: Bench) -> None:
    for snapshot in bench.store.plannable(bench.now, 10):
        assert bench.commit(plan(snapshot, now=bench.now, lookahead=LOOKAHEAD))


def _edit(bench: Bench, schedule: Schedule, **changes: object) -> None:
    declared = factories.declaration(**changes)
    assert bench.commit(
        edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD),
    )


@case
def a_start_that_uses_up_max_runs_makes_its_schedule_plannable_at_once(bench: Bench) -> None:
    schedule = bench.create(max_runs=2, horizon=Horizon(occurrences=3))
    bench.advance(MINUTE)
    _replan(bench)
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.store.plannable(bench.now, 10) == []
    bench.advance(MINUTE)
    _replan(bench)
    bench.start(bench.claim_one())
    [snapshot] = bench.store.plannable(bench.now, 10)
    assert (snapshot.runs, snapshot.exhausted) == (2, False)
    _replan(bench)
    assert bench.store.plannable(NOW + 60 * MINUTE, 10) == []
    snapshot = bench.snapshot(schedule)
    assert (snapshot.projections, snapshot.exhausted, snapshot.watermark) == ((), True, bench.now)


@case
def a_plan_that_does_not_know_of_the_last_start_is_lost(bench: Bench) -> None:
    schedule = bench.create(max_runs=1)
    bench.advance(MINUTE)
    claim = bench.claim_one()
    before = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    running = bench.start(claim)
    assert not bench.commit(before)
    assert len(bench.store.plannable(bench.now, 10)) == 1
    assert bench.settle(running)


@case
def it_is_completed_when_its_last_run_has_ended(bench: Bench) -> None:
    schedule = bench.create(max_runs=1)
    bench.advance(MINUTE)
    running = bench.start(bench.claim_one())
    _replan(bench)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    assert bench.settle(running)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.next_due, stored.counters.total) == (SchedulePhase.COMPLETED, None, 1)


@case
def it_is_completed_by_the_plan_when_its_last_run_ended_before(bench: Bench) -> None:
    schedule = bench.create(max_runs=1)
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    _replan(bench)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def what_was_due_by_then_is_skipped(bench: Bench) -> None:
    schedule = bench.create(max_runs=1, horizon=Horizon(occurrences=3))
    bench.advance(2 * MINUTE)
    first, second = bench.claim()
    running = bench.decide(Start(claim=first, takes_slot=False, max_runs=1))
    _replan(bench)
    busy = bench.admit(start(second))
    assert busy == Busy(place=Place.MAX_RUNS)
    skipped = bench.decide(refused(second, busy))
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.MAX_RUNS_REACHED)
    assert bench.settle(running)
    assert [one.nominal for one in bench.store.occurrences(schedule.uid)] == [FIRST + MINUTE, FIRST]
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def one_that_listens_is_completed_too(bench: Bench) -> None:
    schedule = bench.create_quiet(max_runs=1)
    bench.add_event(schedule, "a")
    running = bench.start(bench.claim_one())
    _replan(bench)
    assert bench.settle(running)
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED


@case
def more_max_runs_reopen_it(bench: Bench) -> None:
    schedule = bench.create(max_runs=1)
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    _replan(bench)
    bench.advance(10 * MINUTE)
    _edit(bench, schedule, max_runs=2)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.next_due) == (SchedulePhase.ACTIVE, bench.now + MINUTE)
    assert stored.counters.total == 1
    bench.advance(MINUTE)
    bench.start(bench.claim_one())
    _replan(bench)
    assert bench.snapshot(schedule).exhausted


@case
def more_max_runs_go_on_from_now(bench: Bench) -> None:
    schedule = bench.create(max_runs=1)
    bench.advance(MINUTE)
    running = bench.start(bench.claim_one())
    _replan(bench)
    bench.advance(10 * MINUTE)
    _edit(bench, schedule)
    assert bench.snapshot(schedule).exhausted is False
    assert bench.stored(schedule).next_due == bench.now + MINUTE
    assert bench.settle(running)
    assert len(bench.store.occurrences(schedule.uid)) == 2
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE


MANY = 100


def _counted(bench: Bench, limit: int = MANY) -> tuple[int, int, int]:
    """Schedules, what is due, what waits."""
    backlog = bench.store.backlog(bench.now, limit)
    return backlog.schedules, backlog.due, backlog.waiting


@case
def what_is_due_is_counted_on_every_route(bench: Bench) -> None:
    assert bench.store.backlog(bench.now, MANY) == Backlog()
    schedule = bench.create_quiet("uid-1")
    for key, after in (("a", 0), ("b", 5), ("c", 6)):
        bench.add(schedule, key, after)
    other = bench.create_quiet("uid-2", target=FunctionTarget(function="nobody-has-it"))
    bench.add(other, "a")
    assert _counted(bench) == (2, 2, 0)
    bench.advance(5)
    assert _counted(bench) == (2, 3, 0)
    assert _counted(bench, 1) == (1, 1, 0)
    assert _counted(bench) == (2, 3, 0)


@case
def what_is_claimed_is_not_counted_unless_its_lease_has_ended(bench: Bench) -> None:
    schedule = bench.create_quiet()
    bench.run(schedule, "a")
    bench.add(schedule, "b")
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
    schedule = bench.create_quiet()
    bench.add_event(schedule, "a")
    assert _counted(bench) == (1, 1, 0)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    assert _counted(bench) == (0, 0, 0)


@case
def what_waits_for_its_turn_is_counted_until_it_has_it(bench: Bench) -> None:
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    for key in ("b", "c"):
        bench.add(schedule, key)
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
    schedule = bench.create_quiet()
    running = bench.run(schedule, "a")
    bench.add(schedule, "b")
    bench.decide(Wait(claim=bench.claim_one(), waiting_for=Reason.QUEUED))
    bench.add(schedule, "c")
    assert _counted(bench) == (1, 1, 1)
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert _counted(bench) == (0, 0, 0)
    bench.settle(running)
    assert _counted(bench) == (0, 0, 0)
