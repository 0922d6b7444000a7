"""A schedule without a trigger is planned when its upstreams have ended, once for each time they did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.causation import chain_after, chain_behind
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.core.triggers import OnceTrigger
from noonmark.testing.conformance.bench import LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


def _follower(bench: Bench, **changes: object) -> Schedule:
    """A schedule without a trigger, planned once."""
    made = bench.create("down", trigger=None, depends_on=(Dependency(schedule_id="schedule-of-up"),), **changes)
    _plan(bench)
    return made


def _plan(bench: Bench) -> int:
    """Plan whatever has to be planned now; says how much was."""
    plans = [plan(one, now=bench.now, lookahead=LOOKAHEAD) for one in bench.store.plannable(bench.now, 10)]
    return sum(bench.store.commit_plans(plans))


def _fires(bench: Bench, of: Schedule) -> list[tuple[int, Phase]]:
    return [(one.nominal - NOW, one.phase) for one in reversed(bench.store.occurrences(of.uid))]


@case
def a_follower_is_planned_when_its_upstream_has_ended(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    assert bench.store.plannable(bench.now, 10) == []
    bench.advance(5)
    assert bench.settle(bench.run(up, "a"))
    assert bench.store.next_time([ROUTE]) == bench.now
    assert _plan(bench) == 1
    assert _fires(bench, down) == [(5, Phase.PENDING)]
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.store.next_time([ROUTE]) is None
    bench.advance(5)
    assert bench.fail(bench.run(up, "b"))
    assert _plan(bench) == 1
    assert _fires(bench, down) == [(5, Phase.COMPLETED), (10, Phase.SKIPPED)]
    [skipped, _] = bench.store.occurrences(down.uid)
    assert (skipped.reason, skipped.detail) == (
        Reason.DEPENDENCY_FAILED,
        '{"phase": "failed", "upstream": "schedule-of-up"}',
    )


@case
def a_follow_up_stands_where_its_upstream_stands(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    cause = {"event_id": "evt1.1_x", "event_type": "x", "source": "noonmark", "payload": {"chain": ["first"]}}
    bench.add_event(up, "evt1.1_x", payload=cause)
    running = bench.start(bench.claim_one())
    bench.advance(5)
    assert bench.settle(running)
    assert _plan(bench) == 1
    expected = chain_after(running)
    assert expected is not None
    assert (expected.depth, expected.schedules) == (1, ("first", "schedule-of-up"))
    [one] = bench.store.occurrences(down.uid)
    assert chain_behind(one) == expected
    edited = replace(down.declaration, timeout=MINUTE)
    assert bench.commit(edits.edit(bench.snapshot(down), edited, now=bench.now, lookahead=LOOKAHEAD))
    claim = bench.claim_one()
    assert (claim.occurrence.revision, chain_behind(claim.occurrence)) == (2, expected)
    assert bench.settle(bench.start(claim))
    assert bench.settle(bench.run(up, "by hand"))
    assert _plan(bench) == 1
    [newest, _] = bench.store.occurrences(down.uid)
    assert newest.overrides is None, "no event is behind it, so there is nothing to carry on"


@case
def ends_of_one_moment_are_told_apart(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    for key, after in (("a", 1), ("b", 2)):
        assert bench.settle(bench.run(up, key))
        assert _plan(bench) == 1
        assert bench.settle(bench.start(bench.claim_one()))
        assert _fires(bench, down)[-1] == (after, Phase.COMPLETED)


@case
def a_plan_that_does_not_know_of_an_end_is_not_written(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    stale = plan(bench.snapshot(down), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.settle(bench.run(up, "a"))
    assert not bench.commit(stale)
    assert _plan(bench) == 1
    assert len(_fires(bench, down)) == 1


@case
def a_follower_of_what_is_over_is_over_and_begins_again_with_it(bench: Bench) -> None:
    up = bench.create("up", trigger=OnceTrigger(from_micros(NOW)))
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.kept(up).schedule.phase is SchedulePhase.COMPLETED
    bench.advance(MINUTE)
    down = _follower(bench)
    assert len(_fires(bench, down)) == 1
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.kept(down).schedule.phase is SchedulePhase.COMPLETED
    bench.advance(MINUTE)
    assert bench.settle(bench.run(up, "once more", 2 * MINUTE))
    assert bench.kept(down).schedule.phase is SchedulePhase.ACTIVE
    assert _plan(bench) == 1
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.kept(down).schedule.phase is SchedulePhase.COMPLETED
    assert _fires(bench, down) == [(MINUTE + 1, Phase.COMPLETED), (2 * MINUTE, Phase.COMPLETED)]


@case
def a_follower_that_has_run_as_often_as_it_may_stays_completed(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench, max_runs=1)
    assert bench.settle(bench.run(up, "a"))
    assert _plan(bench) == 1
    running = bench.start(bench.claim_one())
    assert _plan(bench) == 1
    assert bench.settle(running)
    assert bench.kept(down).schedule.phase is SchedulePhase.COMPLETED
    assert bench.settle(bench.run(up, "b"))
    assert bench.kept(down).schedule.phase is SchedulePhase.COMPLETED


@case
def an_end_that_is_not_planned_yet_keeps_a_follower_from_completing(bench: Bench) -> None:
    up = bench.create("up", trigger=OnceTrigger(from_micros(NOW)))
    assert bench.settle(bench.start(bench.claim_one()))
    down = _follower(bench)
    running = bench.start(bench.claim_one())
    assert bench.settle(bench.run(up, "once more"))
    assert bench.settle(running)
    assert bench.kept(down).schedule.phase is SchedulePhase.ACTIVE
    assert _plan(bench) == 1
    assert len(_fires(bench, down)) == 2


@case
def the_last_end_of_a_deleted_upstream_is_none_of_its_successors(bench: Bench) -> None:
    old = bench.create_quiet("up")
    down = _follower(bench)
    running = bench.run(old, "a")
    assert bench.commit(edits.delete(bench.snapshot(old), now=bench.now))
    bench.create_quiet("up-2", schedule_id=old.schedule_id)
    before = bench.snapshot(down)
    assert bench.settle(running)
    assert bench.snapshot(down) == before
