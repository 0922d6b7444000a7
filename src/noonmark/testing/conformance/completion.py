"""A schedule that has run as often as it may is completed when its last run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Busy, Place, Start, refused
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies.limits import Horizon
from noonmark.core.reasons import Reason
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

FIRST = NOW + MINUTE


def _replan(bench: Bench) -> None:
    for snapshot in bench.store.plannable(bench.now, 10):
        assert bench.commit(plan(snapshot, now=bench.now, lookahead=LOOKAHEAD))


def _edit(bench: Bench, made: Schedule, **changes: object) -> None:
    declared = factories.declaration(**changes)
    assert bench.commit(
        edits.edit(bench.snapshot(made), declared, now=bench.now, lookahead=LOOKAHEAD),
    )


@case
def a_start_that_uses_up_max_runs_makes_its_schedule_plannable_at_once(bench: Bench) -> None:
    made = bench.create(max_runs=2, horizon=Horizon(occurrences=3))
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
    snapshot = bench.snapshot(made)
    assert (snapshot.projections, snapshot.exhausted, snapshot.watermark) == ((), True, bench.now)


@case
def a_plan_that_does_not_know_of_the_last_start_is_lost(bench: Bench) -> None:
    made = bench.create(max_runs=1)
    bench.advance(MINUTE)
    claim = bench.claim_one()
    before = plan(bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD)
    running = bench.start(claim)
    assert not bench.commit(before)
    assert len(bench.store.plannable(bench.now, 10)) == 1
    assert bench.settle(running)


@case
def it_is_completed_when_its_last_run_has_ended(bench: Bench) -> None:
    made = bench.create(max_runs=1)
    bench.advance(MINUTE)
    running = bench.start(bench.claim_one())
    _replan(bench)
    assert bench.kept(made).schedule.phase is SchedulePhase.ACTIVE
    assert bench.settle(running)
    kept = bench.kept(made)
    assert (kept.schedule.phase, kept.next_due, kept.counters.total) == (SchedulePhase.COMPLETED, None, 1)


@case
def it_is_completed_by_the_plan_when_its_last_run_ended_before(bench: Bench) -> None:
    made = bench.create(max_runs=1)
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    _replan(bench)
    assert bench.kept(made).schedule.phase is SchedulePhase.COMPLETED


@case
def what_was_due_by_then_is_skipped(bench: Bench) -> None:
    made = bench.create(max_runs=1, horizon=Horizon(occurrences=3))
    bench.advance(2 * MINUTE)
    first, second = bench.claim()
    running = bench.decide(Start(claim=first, takes_slot=False, max_runs=1))
    _replan(bench)
    busy = bench.admit(start(second))
    assert busy == Busy(place=Place.MAX_RUNS)
    skipped = bench.decide(refused(second, busy))
    assert (skipped.phase, skipped.reason) == (Phase.SKIPPED, Reason.MAX_RUNS_REACHED)
    assert bench.settle(running)
    assert [one.nominal for one in bench.store.occurrences(made.uid)] == [FIRST + MINUTE, FIRST]
    assert bench.kept(made).schedule.phase is SchedulePhase.COMPLETED


@case
def one_that_listens_is_completed_too(bench: Bench) -> None:
    made = bench.create_quiet(max_runs=1)
    bench.add_event(made, "a")
    running = bench.start(bench.claim_one())
    _replan(bench)
    assert bench.settle(running)
    assert bench.kept(made).schedule.phase is SchedulePhase.COMPLETED


@case
def more_max_runs_reopen_it(bench: Bench) -> None:
    made = bench.create(max_runs=1)
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    _replan(bench)
    bench.advance(10 * MINUTE)
    _edit(bench, made, max_runs=2)
    kept = bench.kept(made)
    assert (kept.schedule.phase, kept.next_due) == (SchedulePhase.ACTIVE, bench.now + MINUTE)
    assert kept.counters.total == 1
    bench.advance(MINUTE)
    bench.start(bench.claim_one())
    _replan(bench)
    assert bench.snapshot(made).exhausted


@case
def more_max_runs_go_on_from_now(bench: Bench) -> None:
    made = bench.create(max_runs=1)
    bench.advance(MINUTE)
    running = bench.start(bench.claim_one())
    _replan(bench)
    bench.advance(10 * MINUTE)
    _edit(bench, made)
    assert bench.snapshot(made).exhausted is False
    assert bench.kept(made).next_due == bench.now + MINUTE
    assert bench.settle(running)
    assert len(bench.store.occurrences(made.uid)) == 2
    assert bench.kept(made).schedule.phase is SchedulePhase.ACTIVE
