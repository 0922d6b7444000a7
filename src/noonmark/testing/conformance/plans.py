"""Plans are written if nothing has changed since their snapshot; `change` locks the schedule instead."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import Wait
from noonmark.core.errors import Conflict
from noonmark.core.instants import HOUR, SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import Plan, first_plan, occurrence, plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Dependency, Horizon
from noonmark.core.reasons import Reason
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from noonmark.ports.records import LeaseLost
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case, hold, start
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


FIRST = NOW + MINUTE


def _edited(bench: Bench, schedule: Schedule, **changes: object) -> Plan:
    declared = factories.declaration(**changes)
    return edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)


def _hourly() -> IntervalTrigger:
    return IntervalTrigger(3600, start_at=from_micros(NOW + HOUR))


@case
def a_snapshot_has_the_watermark_and_projections_in_order(bench: Bench) -> None:
    schedule = bench.create(horizon=Horizon(occurrences=3))
    bench.add(schedule, "asked for")
    snapshot = bench.snapshot(schedule)
    assert snapshot.schedule == schedule
    assert snapshot.watermark == NOW + 3 * MINUTE
    assert [one.nominal for one in snapshot.projections] == [NOW + MINUTE, NOW + 2 * MINUTE, NOW + 3 * MINUTE]
    assert [one.due for one in snapshot.projections] == [NOW + MINUTE, NOW + 2 * MINUTE, NOW + 3 * MINUTE]
    assert snapshot.admitted is None


@case
def a_snapshot_has_claimed_and_waiting_projections(bench: Bench) -> None:
    schedule = bench.create(horizon=Horizon(occurrences=3))
    bench.advance(3 * MINUTE)
    claims = bench.claim(limit=2)
    bench.decide(Wait(claim=claims[0], waiting_for=Reason.DEPENDENCY_PENDING))
    waiting, claimed, pending = bench.snapshot(schedule).projections
    assert (waiting.is_claimed, waiting.waiting_for) == (False, Reason.DEPENDENCY_PENDING)
    assert (claimed.is_claimed, claimed.waiting_for) == (True, None)
    assert (pending.is_claimed, pending.waiting_for) == (False, None)


@case
def a_started_occurrence_is_not_a_projection_but_is_admitted(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    started = bench.start(bench.claim_one())
    snapshot = bench.snapshot(schedule)
    assert (snapshot.projections, snapshot.admitted) == ((), FIRST)
    assert bench.retry(started, bench.now)
    assert bench.snapshot(schedule).projections == ()
    bench.claim_one()
    assert bench.snapshot(schedule).projections == ()


@case
def a_closed_gap_is_admitted_up_to_its_last_fire(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(10 * MINUTE)
    assert bench.commit(plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    snapshot = bench.snapshot(schedule)
    gap = next(one for one in bench.store.occurrences(schedule.uid) if one.phase is Phase.MISFIRED)
    assert snapshot.admitted == gap.missed_last
    assert gap.missed_count > 1
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.missed, counters.last_phase) == (
        gap.missed_count,
        gap.missed_count,
        Phase.MISFIRED,
    )


@case
def the_earliest_are_planned_first_and_no_more_than_asked_for(bench: Bench) -> None:
    for uid, seconds in (("uid-c", 30), ("uid-a", 10), ("uid-b", 10), ("uid-d", 20)):
        start_at = from_micros(NOW + seconds * SECOND)
        bench.create(uid, trigger=IntervalTrigger(60, start_at=start_at))
    plan_at = NOW + 8 * SECOND
    assert bench.store.plannable(plan_at - 1, 10) == []
    assert [one.schedule.uid for one in bench.store.plannable(plan_at, 10)] == ["uid-a", "uid-b"]
    later = bench.store.plannable(NOW + MINUTE, 3)
    assert [one.schedule.uid for one in later] == ["uid-a", "uid-b", "uid-d"]
    assert bench.store.plannable(NOW + MINUTE, 3) == later  # to read is to change nothing
    assert len(bench.store.plannable(NOW + MINUTE, 10)) == 4


@case
def a_planned_schedule_is_plannable_at_its_next_time(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(58 * SECOND)
    [snapshot] = bench.store.plannable(bench.now, 10)
    planned = plan(snapshot, now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(planned)
    assert bench.store.plannable(bench.now, 10) == []
    assert bench.store.plannable(planned.plan_at or 0, 10) == [bench.snapshot(schedule)]
    assert bench.snapshot(schedule).watermark == planned.watermark


@case
def only_active_schedules_are_plannable(bench: Bench) -> None:
    paused, deleted = bench.create("uid-1"), bench.create("uid-2")
    assert bench.commit(edits.pause(bench.snapshot(paused), now=bench.now))
    assert bench.commit(edits.delete(bench.snapshot(deleted), now=bench.now))
    assert bench.store.plannable(NOW + 10 * MINUTE, 10) == []


def _writes_nothing(bench: Bench, schedule: Schedule, lost: Plan) -> None:
    before = (bench.snapshot(schedule), bench.stored(schedule), bench.store.occurrences(schedule.uid))
    assert bench.store.commit_plans([lost]) == [False]
    assert (bench.snapshot(schedule), bench.stored(schedule), bench.store.occurrences(schedule.uid)) == before


@case
def a_plan_of_an_old_watermark_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    planned = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(planned)
    _writes_nothing(bench, schedule, planned)


@case
def a_plan_of_an_old_revision_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    snapshot = bench.snapshot(schedule)
    assert bench.commit(replace(_edited(bench, schedule, max_runs=5), watermark=snapshot.watermark))
    _writes_nothing(bench, schedule, Plan(snapshot=snapshot, watermark=snapshot.watermark + 1))


@case
def a_plan_of_an_old_phase_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    snapshot = bench.snapshot(schedule)
    assert bench.commit(replace(edits.pause(snapshot, now=bench.now), watermark=snapshot.watermark))
    _writes_nothing(bench, schedule, Plan(snapshot=snapshot, watermark=snapshot.watermark + 1))


@case
def the_second_of_two_edits_of_texts_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    snapshot = bench.snapshot(schedule)
    declarations = (
        replace(schedule.declaration, labels={"team": "a"}),
        replace(schedule.declaration, description="of the night"),
    )
    labelled, described = (
        Plan(snapshot=snapshot, watermark=snapshot.watermark, schedule=replace(schedule, declaration=declaration))
        for declaration in declarations
    )
    assert bench.commit(labelled)
    _writes_nothing(bench, schedule, described)
    assert bench.stored(schedule).schedule.declaration.labels == {"team": "a"}


@case
def a_plan_of_an_unknown_schedule_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    strange = replace(bench.snapshot(schedule), schedule=factories.schedule("nothing"))
    assert not bench.commit(Plan(snapshot=strange, watermark=strange.watermark))


@case
def a_plan_that_counts_what_has_started_since_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    claim = bench.claim_one()
    deleted = edits.delete(bench.snapshot(schedule), now=bench.now)
    paused = edits.pause(bench.snapshot(schedule), now=bench.now)
    bench.start(claim)
    _writes_nothing(bench, schedule, deleted)
    _writes_nothing(bench, schedule, paused)
    removed = bench.snapshot(schedule)
    removed = replace(removed, projections=deleted.snapshot.projections)
    plan_of_removal = Plan(snapshot=removed, watermark=removed.watermark, removed=(claim.occurrence.id,))
    _writes_nothing(bench, schedule, plan_of_removal)


@case
def a_plan_that_counts_what_has_begun_to_wait_since_is_lost(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    claim = bench.claim_one()
    paused = edits.pause(bench.snapshot(schedule), now=bench.now)
    bench.decide(Wait(claim=claim, waiting_for=Reason.DEPENDENCY_PENDING))
    _writes_nothing(bench, schedule, paused)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))


@case
def plans_of_one_call_do_not_depend_on_each_other(bench: Bench) -> None:
    first, second = bench.create("uid-1"), bench.create("uid-2")
    stale = replace(bench.snapshot(first), watermark=0)
    good = plan(bench.snapshot(second), now=NOW + MINUTE, lookahead=LOOKAHEAD)
    assert bench.store.commit_plans([Plan(snapshot=stale, watermark=0), good]) == [False, True]


@case
def an_edit_supersedes_and_another_one_reopens(bench: Bench) -> None:
    schedule = bench.create()
    [claim] = bench.claim(until=FIRST)
    assert bench.commit(_edited(bench, schedule, trigger=_hourly()))
    moved = bench.row(claim.occurrence)
    assert (moved.phase, moved.reason) == (Phase.SUPERSEDED, Reason.EDITED)
    assert moved.fence > claim.occurrence.fence
    assert bench.stored(schedule).counters.total == 0
    assert bench.snapshot(schedule).admitted is None
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=moved.id)

    assert bench.commit(_edited(bench, schedule))
    again = bench.row(moved)
    assert (again.phase, again.revision) == (Phase.PENDING, 3)
    assert again.fence > moved.fence
    assert [one.nominal for one in bench.snapshot(schedule).projections] == [FIRST]
    bench.advance(MINUTE)
    assert bench.claim_one().occurrence.id == moved.id


@case
def an_edit_updates_projections_and_takes_them_from_their_nodes(bench: Bench) -> None:
    schedule = bench.create()
    [claim] = bench.claim(until=FIRST)
    assert bench.commit(_edited(bench, schedule, max_runs=5))
    bound = bench.row(claim.occurrence)
    assert (bound.phase, bound.revision) == (Phase.PENDING, 2)
    assert bound.fence > claim.occurrence.fence
    assert bench.store.renew([hold(claim)], now=bench.now, lease=1).lost == {bound.id}
    bench.advance(MINUTE)
    assert bench.claim_one().schedule.revision == 2


@case
def a_plan_leaves_what_it_would_move_when_that_has_started_since(bench: Bench) -> None:
    schedule = bench.create()
    [claim] = bench.claim(until=FIRST)
    edited = _edited(bench, schedule, trigger=_hourly())
    started = bench.start(claim)
    assert bench.commit(edited)
    assert bench.row(started) == started
    deleted = edits.delete(bench.snapshot(schedule), now=bench.now)
    assert bench.commit(replace(deleted, removed=(started.id,), cancelled=(started.id, *deleted.cancelled)))
    assert bench.row(started) == started
    assert bench.settle(started)


@case
def an_edit_of_the_target_takes_live_rows_to_its_route(bench: Bench) -> None:
    schedule = bench.create()
    manual = bench.add(schedule, "asked for")
    assert bench.commit(_edited(bench, schedule, target=FunctionTarget(function="other")))
    bench.advance(MINUTE)
    assert bench.claim() == []
    claims = bench.claim(routes=["function:other"])
    assert [claim.occurrence.nominal for claim in claims] == [NOW, FIRST]
    assert {claim.schedule.declaration.target.route for claim in claims} == {"function:other"}
    assert bench.row(manual).route == "function:other"


@case
def closed_rows_replace_projections_and_leave_other_rows(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    claim = bench.claim_one()
    missed = replace(occurrence(schedule, FIRST, FIRST), phase=Phase.MISFIRED, reason=Reason.LATE)
    snapshot = bench.snapshot(schedule)
    closing = Plan(snapshot=snapshot, watermark=snapshot.watermark, closed=(missed,))
    assert bench.commit(closing)
    closed = bench.row(missed)
    assert (closed.phase, closed.reason) == (Phase.MISFIRED, Reason.LATE)
    assert closed.fence > claim.occurrence.fence
    skipped = replace(missed, phase=Phase.SKIPPED, reason=Reason.OVERLAP)
    again = replace(
        closing, snapshot=bench.snapshot(schedule), closed=(skipped,), planned=(occurrence(schedule, FIRST, 0),)
    )
    assert bench.commit(again)
    assert bench.row(missed) == closed
    assert bench.stored(schedule).counters.total == 1


@case
def closed_rows_take_the_place_of_superseded_ones(bench: Bench) -> None:
    schedule = bench.create()
    assert bench.commit(_edited(bench, schedule, trigger=_hourly()))
    missed = replace(occurrence(schedule, FIRST, FIRST), phase=Phase.MISFIRED, reason=Reason.LATE)
    snapshot = bench.snapshot(schedule)
    assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark, closed=(missed,)))
    assert bench.row(missed).phase is Phase.MISFIRED
    assert bench.stored(schedule).counters.missed == 1


@case
def a_removed_projection_that_comes_back_has_a_higher_fence(bench: Bench) -> None:
    schedule = bench.create()
    [claim] = bench.claim(until=FIRST)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    assert bench.store.occurrence(claim.occurrence.id) is None
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=claim.occurrence.id)
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    assert bench.row(claim.occurrence).fence > claim.occurrence.fence
    [again] = bench.claim("node-b", until=FIRST)
    assert again.occurrence.fence > claim.occurrence.fence
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=claim.occurrence.id)


@case
def a_plan_replaces_a_projection(bench: Bench) -> None:
    schedule = bench.create()
    snapshot = bench.snapshot(schedule)
    caught_up = occurrence(schedule, FIRST, FIRST + 5, caught_up=NOW)
    assert bench.commit(Plan(snapshot=snapshot, watermark=snapshot.watermark, planned=(caught_up,)))
    row = bench.row(caught_up)
    assert (row.due, row.caught_up) == (FIRST + 5, NOW)
    bench.advance(MINUTE + 4)
    assert bench.claim() == []
    bench.advance(1)
    bench.claim_one()


@case
def a_schedule_with_nothing_to_come_is_completed_when_nothing_is_live(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(FIRST)))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.ACTIVE
    bench.advance(MINUTE)
    claim = bench.claim_one()
    snapshot = bench.snapshot(schedule)
    missed = replace(occurrence(schedule, FIRST, FIRST), phase=Phase.MISFIRED, reason=Reason.LATE)
    closing = Plan(snapshot=snapshot, watermark=FIRST, closed=(missed,), exhausted=True)
    assert bench.commit(closing)
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.schedule.updated) == (SchedulePhase.COMPLETED, bench.now)
    assert stored.next_due is None
    assert bench.admit(start(claim)) == LeaseLost(occurrence_id=missed.id)


@case
def an_edit_of_the_trigger_reopens_a_completed_schedule(bench: Bench) -> None:
    schedule = bench.create(trigger=OnceTrigger(from_micros(NOW)))
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.stored(schedule).schedule.phase is SchedulePhase.COMPLETED
    assert bench.commit(_edited(bench, schedule))
    stored = bench.stored(schedule)
    assert (stored.schedule.phase, stored.next_due) == (SchedulePhase.ACTIVE, FIRST)
    assert len(bench.store.plannable(FIRST, 10)) == 1


@case
def what_ended_and_was_pruned_since_the_snapshot_does_not_come_back(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(MINUTE)
    before = bench.snapshot(schedule)
    renamed = replace(schedule.declaration, timeout=SECOND)
    edit = edits.edit(before, renamed, now=bench.now, lookahead=LOOKAHEAD)
    started = bench.start(bench.claim_one())
    assert bench.settle(started)
    bench.advance(1)
    assert bench.store.prune(before=bench.now, keep=0, limit=10) == 1
    assert bench.commit(edit)
    assert bench.store.occurrence(started.id) is None


@case
def nothing_of_an_old_revision_starts_not_even_what_was_asked_for(bench: Bench) -> None:
    schedule = bench.create_quiet(overlap_policy=overlap.Allow())
    bench.add(schedule, "asked")
    claim = bench.claim_one()
    edit = edits.edit(
        bench.snapshot(schedule), replace(schedule.declaration, timeout=SECOND), now=bench.now, lookahead=LOOKAHEAD
    )
    assert bench.commit(edit)
    decided = replace(start(claim), takes_slot=False)
    assert bench.admit(decided) == LeaseLost(occurrence_id=claim.occurrence.id)
    bench.store.release([hold(claim)])
    assert bench.claim_one().schedule.revision == schedule.revision + 1


@case
def the_newest_admitted_time_does_not_go_back(bench: Bench) -> None:
    schedule = bench.create(horizon=Horizon(occurrences=2))
    bench.advance(2 * MINUTE)
    older, newer = bench.claim()
    for claim in (newer, older):
        assert bench.settle(bench.start(claim))
    assert bench.snapshot(schedule).admitted == newer.occurrence.nominal


A_WHILE = 0.2
"""Seconds in which a store that does not lock would let another thread write."""


@case
def a_change_is_decided_on_the_snapshot_and_the_time_of_the_store(bench: Bench) -> None:
    schedule = bench.create()
    bench.advance(SECOND)
    expected, given = bench.snapshot(schedule), []

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        given.append((snapshot, now))
        return edits.pause(snapshot, now=now)

    assert bench.store.change(schedule.uid, decide)
    assert given == [(expected, bench.now)]
    assert bench.stored(schedule).schedule == edits.pause(expected, now=bench.now).schedule
    bench.advance(MINUTE)
    assert bench.claim() == []


@case
def a_change_of_nothing_writes_nothing(bench: Bench) -> None:
    schedule = bench.create()
    before = (bench.snapshot(schedule), bench.stored(schedule), bench.store.occurrences(schedule.uid))
    assert not bench.store.change(schedule.uid, lambda _, __: None)
    assert before == (bench.snapshot(schedule), bench.stored(schedule), bench.store.occurrences(schedule.uid))


@case
def what_a_decision_raises_is_raised_and_nothing_is_written(bench: Bench) -> None:
    schedule = bench.create()
    before = (bench.snapshot(schedule), bench.stored(schedule))

    def refuse(_: Snapshot, __: Micros) -> Plan:
        raise Conflict("not now")

    try:
        bench.store.change(schedule.uid, refuse)
    except Conflict as error:
        assert error.message == "not now"  # noqa: PT017 - a store is tried without pytest
    else:
        raise AssertionError("the error was lost")
    assert before == (bench.snapshot(schedule), bench.stored(schedule))
    assert bench.store.change(schedule.uid, lambda snapshot, now: edits.pause(snapshot, now=now))


@case
def an_unknown_schedule_is_not_decided_on(bench: Bench) -> None:
    given: list[Snapshot] = []
    assert not bench.store.change("nothing", lambda snapshot, _: given.append(snapshot))
    assert given == []


@case
def a_decision_sees_that_the_schedule_is_deleted(bench: Bench) -> None:
    schedule = bench.create()
    assert bench.store.change(schedule.uid, lambda snapshot, now: edits.delete(snapshot, now=now))
    phases: list[SchedulePhase] = []
    assert not bench.store.change(schedule.uid, lambda snapshot, _: phases.append(snapshot.schedule.phase))
    assert phases == [SchedulePhase.DELETED]
    stored = bench.store.find_uid(schedule.uid)
    assert stored is not None
    assert stored.schedule.phase is SchedulePhase.DELETED
    assert bench.store.find_uid("nothing") is None


@case
def a_change_that_rests_on_an_older_graph_is_not_written(bench: Bench) -> None:
    up, down = bench.create("up"), bench.create("down")
    follows = replace(down.declaration, depends_on=(Dependency(schedule_id=up.schedule_id),))
    graph = bench.store.graph("acme", [up.schedule_id])
    other = factories.schedule("other", created=bench.now, depends_on=follows.depends_on)
    assert bench.store.create([first_plan(other, lookahead=LOOKAHEAD)]) == [True]

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        return replace(edits.edit(snapshot, follows, now=now, lookahead=LOOKAHEAD), graph=graph.version)

    assert not bench.store.change(down.uid, decide)
    assert bench.stored(down).schedule == down
    graph = bench.store.graph("acme", [up.schedule_id])
    assert bench.store.change(down.uid, decide)


@case
def nothing_is_written_between_snapshot_and_decision(bench: Bench) -> None:
    """Planning moves the watermark again and again; a decision is not outrun by it."""
    schedule = bench.create()
    bench.advance(MINUTE)
    planned = plan(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    answers: list[bool] = []
    planning = threading.Thread(target=lambda: answers.extend(bench.store.commit_plans([planned])))

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        planning.start()
        planning.join(A_WHILE)
        return edits.pause(snapshot, now=now)

    assert bench.store.change(schedule.uid, decide)
    planning.join()
    assert answers == [False], "the plan was made of what is no longer so"
