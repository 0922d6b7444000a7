"""What becomes of a schedule's projections when it is changed, paused, resumed or deleted."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.api_key import Scope
from noonmark.core.errors import Conflict
from noonmark.core.ids import fraction
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import accounted
from noonmark.core.policies.limits import Horizon
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, Skip
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Pause
from noonmark.core.targets.work import FunctionTarget
from noonmark.core.triggers import EventTrigger, OnceTrigger
from tests.core.scheduled import (
    LOOKAHEAD,
    UID,
    after_noon,
    at,
    closed,
    declared,
    every,
    ids,
    moment,
    nominals,
    planned,
    projected,
    read,
    scheduled,
)


def edit(snapshot, declaration, now):
    return edits.edit(snapshot, declaration, now=at(now), lookahead=LOOKAHEAD)


def pause(snapshot, now):
    return edits.pause(snapshot, now=at(now))


def resume(snapshot, now):
    return edits.resume(snapshot, now=at(now), lookahead=LOOKAHEAD)


def delete(snapshot, now):
    return edits.delete(snapshot, now=at(now))


def jittered(nominal, jitter):
    return nominal + int(fraction(UID, at(nominal)) * jitter * SECOND) / SECOND


# Edit


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Tidy up"},
        {"description": "Every day."},
        {"labels": {"team": "ops"}},
        {"schedule_id": "tidy"},
        {"enabled": False},
        {"accepts_payload": True},
    ],
)
def test_an_edit_of_what_people_read_keeps_revision_and_projections(fields):
    snapshot = read(scheduled(), 100, 100)
    declaration = replace(snapshot.schedule.declaration, **fields)
    edited = edit(snapshot, declaration, 50)
    assert edited.schedule == replace(snapshot.schedule, declaration=declaration, updated=at(50))
    assert (edited.planned, edited.closed, edited.superseded, edited.removed) == ((), (), (), ())
    assert (after_noon(edited.watermark), after_noon(edited.plan_at)) == (100, 98)


def test_an_edit_may_come_from_somebody_else_than_the_schedule():
    snapshot = read(scheduled(), 100, 100)
    declaration = snapshot.schedule.declaration
    taken = edits.edit(snapshot, declaration, now=at(50), lookahead=LOOKAHEAD, source="embedded")
    assert taken.schedule == replace(snapshot.schedule, updated=at(50), source="embedded")
    assert edit(snapshot, declaration, 50).schedule.source == snapshot.schedule.source


def test_who_changes_the_target_passes_on_no_more_than_it_may_do():
    snapshot, scopes = read(scheduled(), 100, 100), frozenset({Scope.READ, Scope.PROPOSE})
    declared = snapshot.schedule.declaration

    def lineage(**changes):
        plan = edits.edit(snapshot, replace(declared, **changes), now=at(50), lookahead=LOOKAHEAD, scopes=scopes)
        return plan.schedule.lineage

    assert lineage(target=FunctionTarget(function="other")).scopes == (Scope.PROPOSE, Scope.READ)
    assert lineage(name="Tidy up") is None


@pytest.mark.parametrize(("phase", "exhausted"), [(SchedulePhase.PAUSED, False), (SchedulePhase.COMPLETED, True)])
def test_an_edit_of_what_people_read_wakes_nothing(phase, exhausted):
    snapshot = read(scheduled(phase=phase), 100)
    edited = edit(snapshot, replace(snapshot.schedule.declaration, name="Tidy up"), 950)
    assert (edited.planned, edited.closed, after_noon(edited.watermark)) == ((), (), 100)
    assert (edited.schedule.phase, edited.schedule.revision, edited.exhausted) == (phase, 1, exhausted)


@pytest.mark.parametrize(
    "fields",
    [
        {"target": FunctionTarget(function="other")},
        {"retry_policy": RetryPolicy(max_attempts=2)},
        {"misfire_policy": CatchUpOne()},
        {"max_runs": 5},
    ],
)
def test_any_other_edit_raises_the_revision_and_binds_the_projections_to_it(fields):
    snapshot = read(scheduled(), 100, 100)
    edited = edit(snapshot, replace(snapshot.schedule.declaration, **fields), 50)
    assert (edited.schedule.revision, edited.schedule.updated, edited.schedule.phase) == (
        2,
        at(50),
        SchedulePhase.ACTIVE,
    )
    assert [(row.id, row.revision, row.route) for row in edited.planned] == [
        (*ids(100), 2, edited.schedule.declaration.target.route)
    ]
    assert (edited.superseded, edited.removed, after_noon(edited.watermark)) == ((), (), 100)


def test_times_that_the_new_rule_still_names_are_rebound_and_the_others_superseded():
    snapshot = read(scheduled(horizon=Horizon(occurrences=3)), 300, 100, 200, 300)
    edited = edit(snapshot, declared(every(150, start=0), horizon=Horizon(occurrences=3)), 50)
    assert edited.superseded == ids(100, 200)
    assert planned(edited) == [(300, 300, None), (150, 150, None), (450, 450, None)]
    assert {row.revision for row in edited.planned} == {2}
    assert (after_noon(edited.watermark), edited.closed, edited.removed) == (450, (), ())


def test_a_rebound_one_is_due_by_the_new_jitter():
    edited = edit(read(scheduled(), 100, 100), declared(every(100, jitter=60)), 50)
    assert planned(edited) == [(100, jittered(100, 60), None)]
    assert edited.planned[0].first_due == edited.planned[0].due


def test_a_shorter_horizon_withdraws_what_lies_beyond_it():
    snapshot = read(scheduled(horizon=Horizon(occurrences=3)), 300, 100, 200, 300)
    edited = edit(snapshot, declared(every(100)), 50)
    assert (nominals(edited), edited.removed, after_noon(edited.watermark)) == ([100], ids(200, 300), 100)


def test_times_up_to_now_are_closed_by_the_old_rule_first():
    edited = edit(read(scheduled(), 100, 100), declared(every(70, start=0)), 580)
    assert closed(edited) == [("misfired/late", 5, 100, 500)]
    assert edited.closed[0].revision == 1
    assert (nominals(edited), edited.superseded) == ([630], ())


def test_a_time_in_grace_still_runs_under_the_new_revision_and_in_no_gap_of_the_new_rule():
    edited = edit(read(scheduled(), 0), declared(every(70, start=0)), 530)
    assert closed(edited) == [("misfired/late", 4, 100, 400)]
    assert planned(edited) == [(500, 500, 530), (560, 560, None)]
    assert {row.revision for row in edited.planned} == {2}


def test_a_time_in_grace_stays_an_ordinary_one_when_the_times_stay_the_same():
    edited = edit(read(scheduled(), 100, 100), declared(every(100), max_runs=5), 130)
    assert planned(edited) == [(100, 100, None), (200, 200, None)]


def test_a_claimed_one_is_rebound_so_its_holder_loses_it():
    edited = edit(read(scheduled(), 100, projected(100, is_claimed=True)), declared(every(100), max_runs=5), 50)
    assert (planned(edited), edited.planned[0].revision) == ([(100, 100, None)], 2)


def test_one_that_waits_goes_on_waiting_under_the_new_revision():
    snapshot = read(scheduled(), 200, projected(100, waiting_for=Reason.QUEUED), 200)
    edited = edit(snapshot, declared(every(100), max_runs=5), 190)
    assert [(after_noon(row.nominal), row.waiting_for, row.revision) for row in edited.planned] == [
        (100, Reason.QUEUED, 2),
        (200, None, 2),
    ]


def test_what_was_caught_up_stays_caught_up_with_its_own_times():
    snapshot = read(scheduled(), 500, projected(100, 520, caught_up=470, first_due=100))
    edited = edit(snapshot, declared(every(70, start=0)), 510)
    assert planned(edited)[0] == (100, 520, 470)
    assert edited.planned[0].first_due == at(100)


def test_a_time_that_only_jitter_holds_back_is_the_old_rules():
    due = jittered(200, 90)
    assert due > 203
    edited = edit(read(scheduled(every(100, jitter=90)), 100, admitted=100), declared(every(1_000)), 201)
    assert planned(edited) == [(200, due, 201), (1_000, 1_000, None)]


def test_a_rule_without_times_supersedes_everything_ahead():
    edited = edit(read(scheduled(), 100, 100), declared(EventTrigger("uploaded")), 50)
    assert (edited.superseded, edited.planned, edited.plan_at, edited.exhausted) == (ids(100), (), None, False)


def test_a_rule_with_times_takes_over_from_one_without():
    edited = edit(read(scheduled(EventTrigger("uploaded")), 0), declared(every(100)), 550)
    assert (nominals(edited), edited.closed) == ([600], ())


@pytest.mark.parametrize("due", [499, 500])
def test_a_single_moment_just_past_is_not_hidden_by_a_fire_of_the_old_rule(due):
    edited = edit(read(scheduled(), 500, 500), declared(OnceTrigger(moment(due))), 500)
    assert sorted(nominals(edited)) == sorted({due, 500})
    assert (edited.watermark, edited.exhausted) == (at(500), True)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (449, 509),  # beyond the grace
        (450, 480),  # of several times since then, the newest
        (475, 475),
        (500, 500),
        (510, 510),
    ],
)
@pytest.mark.parametrize("before", [every(1_000), EventTrigger("uploaded")])
def test_a_start_of_another_interval_that_has_just_passed_fires_at_once(start, first, before):
    policy = CatchUpOne(grace=50 * SECOND)
    edited = edit(
        read(scheduled(before, misfire_policy=policy), 0), declared(every(30, start=start), misfire_policy=policy), 500
    )
    assert nominals(edited)[0] == first


def test_a_start_that_the_old_interval_has_named_does_not_fire_again():
    edited = edit(read(scheduled(every(100, start=480)), 580, 580), declared(every(90, start=480)), 500)
    assert nominals(edited) == [570]


@pytest.mark.parametrize(
    ("rows", "fires", "gaps"),
    [
        ([], [480, 570], []),  # if it has run, the store knows its id
        ([projected(480, is_claimed=True)], [480, 570], []),
        ([480], [570], [("misfired/late", 1, 480, 480)]),
    ],
)
def test_a_start_before_the_old_interval_was_created_is_new_unless_it_was_planned(rows, fires, gaps):
    before = scheduled(every(100, start=480), created=490, misfire_policy=Skip(grace=5 * SECOND))
    edited = edit(read(before, 580, *rows, 580), declared(every(90, start=480)), 500)
    assert (nominals(edited), closed(edited)) == (fires, gaps)


@pytest.mark.parametrize(("watermark", "first"), [(480, 570), (479, 480)])
def test_a_start_that_max_runs_kept_the_old_interval_from_naming_is_new(watermark, first):
    snapshot = replace(read(scheduled(every(10), max_runs=1), watermark, admitted=0), runs=1, exhausted=True)
    edited = edit(snapshot, declared(every(90, start=480)), 500)
    assert nominals(edited)[0] == first


@pytest.mark.parametrize(
    ("watermark", "rows", "occurrences", "left"),
    [
        (900, [200, 800, 900], 1, [200]),
        (900, [200, 800, 900], 2, [200, 800]),
        (900, [200, 800, 900], 5, [200, 800, 900, 1_000, 1_100]),
        (800, [200], 1, [200]),  # the gap is the newest
        (800, [200], 2, [200, 900]),
        (900, [800, 900], 1, [800]),
    ],
)
def test_an_edit_plans_no_fire_of_a_gap_that_a_clock_was_ahead_to_close(watermark, rows, occurrences, left):
    """The gap reaches from 300 to where the projections go on; the newest ones are withdrawn as the horizon says."""
    snapshot = read(scheduled(horizon=Horizon(occurrences=4)), watermark, *rows, admitted=700)
    edited = edit(snapshot, declared(every(100), horizon=Horizon(occurrences=occurrences)), 150)
    assert (nominals(edited), edited.superseded) == (left, ())
    assert edited.removed == ids(*(one for one in rows if one not in left))
    assert after_noon(edited.watermark) == max(left[-1], 800 if 800 not in rows else 700)


def test_an_edit_of_a_new_interval_fires_once_for_its_start():
    snapshot = read(scheduled(every(100, start=480)), 580, 580, admitted=480)
    edited = edit(snapshot, declared(every(100, start=480), timeout=SECOND), 500)
    assert nominals(edited) == [580]


def test_an_edit_of_the_trigger_reopens_a_completed_schedule():
    snapshot = read(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.COMPLETED), 100, admitted=100)
    edited = edit(snapshot, declared(every(1_000)), 500)
    assert (edited.schedule.phase, edited.schedule.revision) == (SchedulePhase.ACTIVE, 2)
    assert (nominals(edited), edited.closed) == ([1_000], ())


def test_any_other_edit_leaves_it_completed():
    snapshot = read(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.COMPLETED), 100, admitted=100)
    edited = edit(snapshot, declared(OnceTrigger(moment(100)), max_runs=5), 500)
    assert (edited.schedule.phase, edited.schedule.revision) == (SchedulePhase.COMPLETED, 2)
    assert (edited.planned, edited.exhausted) == ((), True)


@pytest.mark.parametrize(
    ("max_runs", "phase", "fires"),
    [
        (2, SchedulePhase.COMPLETED, []),
        (3, SchedulePhase.COMPLETED, []),
        (4, SchedulePhase.ACTIVE, [600]),
        (None, SchedulePhase.ACTIVE, [600]),
    ],
)
def test_more_max_runs_reopen_a_completed_schedule_from_now_on(max_runs, phase, fires):
    snapshot = read(scheduled(phase=SchedulePhase.COMPLETED, max_runs=3), 150, admitted=100)
    edited = edit(replace(snapshot, runs=3, exhausted=True), declared(every(100), max_runs=max_runs), 510)
    assert (edited.schedule.phase, nominals(edited), edited.closed) == (phase, fires, ())
    assert edited.exhausted is (not fires)


def test_another_trigger_reopens_what_has_run_as_often_as_it_may_to_no_avail():
    snapshot = read(scheduled(phase=SchedulePhase.COMPLETED, max_runs=3), 150, admitted=100)
    edited = edit(replace(snapshot, runs=3, exhausted=True), declared(OnceTrigger(moment(500)), max_runs=3), 510)
    assert (edited.schedule.phase, edited.planned, edited.exhausted) == (SchedulePhase.ACTIVE, (), True)


@pytest.mark.parametrize(("max_runs", "fires"), [(3, []), (4, [600]), (None, [600])])
def test_an_active_one_that_is_used_up_goes_on_when_it_may_run_more(max_runs, fires):
    snapshot = replace(read(scheduled(max_runs=3), 150, admitted=100), runs=3, exhausted=True)
    edited = edit(snapshot, declared(every(100), max_runs=max_runs, timeout=5), 510)
    assert (nominals(edited), edited.closed, edited.exhausted) == (fires, (), not fires)


def test_fewer_max_runs_than_there_were_withdraw_what_lies_ahead():
    snapshot = replace(read(scheduled(), 300, 100, 200, 300), runs=3)
    edited = edit(snapshot, declared(every(100), max_runs=2), 150)
    assert (nominals(edited), edited.superseded, edited.exhausted) == ([100], (), True)
    assert edited.removed == ids(200, 300)
    assert after_noon(edited.watermark) == 150


def test_what_the_new_trigger_does_not_name_is_superseded_and_the_rest_withdrawn():
    snapshot = replace(read(scheduled(), 300, 200, 300), runs=3)
    edited = edit(snapshot, declared(every(200), max_runs=2), 150)
    assert (nominals(edited), edited.superseded, edited.removed) == ([], ids(300), ids(200))


@pytest.mark.parametrize(("max_runs", "gaps", "exhausted"), [(3, [], True), (4, [], False), (None, [], False)])
def test_a_pause_skips_nothing_of_what_has_run_as_often_as_it_may(max_runs, gaps, exhausted):
    snapshot = read(scheduled(phase=SchedulePhase.PAUSED, max_runs=3), 150)
    snapshot = replace(snapshot, runs=3, exhausted=True)
    edited = edit(snapshot, declared(every(100), max_runs=max_runs, timeout=5), 510)
    assert (closed(edited), edited.planned, edited.exhausted) == (gaps, (), exhausted)
    resumed = resume(snapshot, 510)
    assert (resumed.closed, resumed.planned, resumed.exhausted) == ((), (), True)


@pytest.mark.parametrize(("runs", "exhausted"), [(2, False), (3, True)])
def test_a_pause_remembers_that_nothing_follows(runs, exhausted):
    paused = pause(replace(read(scheduled(max_runs=3), 200, 100, 200), runs=runs), 50)
    assert (paused.exhausted, paused.removed) == (exhausted, ids(100, 200))


@pytest.mark.parametrize(
    ("watermark", "rows", "expected"),
    [
        (9_000, [], 9_000),  # a clock that was ahead has closed all of it
        (9_000, [9_000], 8_900),
        (9_000, [200, 9_000], 150),
        (100, [], 150),
        (200, [200], 150),
    ],
)
def test_a_watermark_falls_back_no_further_than_to_what_is_withdrawn(watermark, rows, expected):
    snapshot = read(scheduled(), watermark, *rows)
    assert after_noon(pause(snapshot, 150).watermark) == expected
    assert after_noon(accounted(snapshot, now=at(150))) == expected


@pytest.mark.parametrize("trigger", [EventTrigger("uploaded"), every(100, start=200)])
def test_it_falls_back_to_now_when_nothing_was_named_before(trigger):
    assert after_noon(accounted(read(scheduled(trigger), 200, 200), now=at(150))) == 150


@pytest.mark.parametrize(("due", "runs"), [(500, [500]), (440, [440]), (439, []), (501, [501])])
def test_a_single_moment_just_past_is_accepted_and_runs(due, runs):
    snapshot = read(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.COMPLETED), 100, admitted=100)
    edited = edit(snapshot, declared(OnceTrigger(moment(due))), 500)
    assert nominals(edited) == runs
    assert edited.exhausted


def test_a_single_moment_that_the_old_rule_named_as_well_is_one_occurrence():
    edited = edit(read(scheduled(), 500, 500), declared(OnceTrigger(moment(500))), 510)
    assert planned(edited) == [(500, 500, 510)]
    assert after_noon(edited.watermark) == 510


def test_a_single_moment_that_the_old_rule_has_missed_is_one_occurrence():
    snapshot = read(scheduled(misfire_policy=Skip(grace=SECOND)), 500, 500)
    edited = edit(snapshot, declared(OnceTrigger(moment(500))), 510)
    assert (closed(edited), edited.planned) == ([("misfired/late", 1, 500, 500)], ())


@pytest.mark.parametrize(("exhausted", "caught_up"), [(False, None), (True, 510)])
def test_what_is_left_from_before_max_runs_was_used_up_is_no_gap_with_what_follows(exhausted, caught_up):
    snapshot = replace(read(scheduled(max_runs=1), 500, 500), runs=1, exhausted=exhausted)
    edited = edit(snapshot, declared(every(100), max_runs=2), 510)
    assert planned(edited) == [(500, 500, caught_up), (600, 600, None)]


@pytest.mark.parametrize(("trigger", "watermark"), [(every(100), 900), (every(70), 350)])
def test_an_edit_while_paused_names_its_own_times_although_the_old_ones_were_cancelled_ahead(trigger, watermark):
    snapshot = read(scheduled(phase=SchedulePhase.PAUSED), 900)
    edited = edits.edit(snapshot, declared(trigger, timeout=SECOND), now=at(350), lookahead=LOOKAHEAD)
    assert (after_noon(edited.watermark), edited.planned, edited.closed) == (watermark, (), ())


def test_an_edit_while_paused_closes_what_the_old_rule_named_and_plans_nothing():
    edited = edit(read(scheduled(phase=SchedulePhase.PAUSED), 50), declared(every(70, start=0)), 310)
    assert closed(edited) == [("skipped/paused", 3, 100, 300)]
    assert (edited.schedule.phase, edited.schedule.revision) == (SchedulePhase.PAUSED, 2)
    assert (edited.planned, edited.plan_at, after_noon(edited.watermark)) == ((), None, 310)


# Pause


def test_a_pause_withdraws_what_lies_ahead_without_a_trace():
    paused = pause(read(scheduled(horizon=Horizon(occurrences=2)), 200, 100, 200), 50)
    assert paused.schedule == replace(
        paused.snapshot.schedule, phase=SchedulePhase.PAUSED, updated=at(50), pause=Pause(at=at(50))
    )
    assert (paused.removed, paused.closed, paused.planned) == (ids(100, 200), (), ())
    assert (after_noon(paused.watermark), paused.plan_at) == (50, None)


def test_what_was_due_and_had_not_started_is_one_row_with_a_count():
    rows = [100, projected(200, is_claimed=True), projected(300, waiting_for=Reason.QUEUED), 400]
    paused = pause(read(scheduled(every(100), misfire_policy=CatchUpAll()), 400, *rows), 350)
    assert closed(paused) == [("skipped/paused", 3, 100, 300)]
    assert (paused.closed[0].id, paused.removed) == (*ids(100), ids(200, 300, 400))


def test_what_was_missed_before_the_pause_is_missed_and_not_paused():
    paused = pause(read(scheduled(), 100, 100), 530)
    assert closed(paused) == [("misfired/late", 4, 100, 400), ("skipped/paused", 1, 500, 500)]
    assert (paused.removed, paused.planned, after_noon(paused.watermark)) == ((), (), 530)


def test_a_schedule_without_times_can_be_paused():
    paused = pause(read(scheduled(EventTrigger("uploaded")), 0), 530)
    assert (paused.closed, paused.removed, paused.schedule.phase) == ((), (), SchedulePhase.PAUSED)


@pytest.mark.parametrize("phase", [SchedulePhase.COMPLETED, SchedulePhase.DELETED])
def test_only_an_active_schedule_can_be_paused(phase):
    with pytest.raises(Conflict):
        pause(read(scheduled(phase=phase), 0), 50)


# Resume


def test_what_the_pause_skipped_is_one_row_with_a_count():
    resumed = resume(read(scheduled(phase=SchedulePhase.PAUSED), 50), 310)
    assert closed(resumed) == [("skipped/paused", 3, 100, 300)]
    assert resumed.closed[0].id == ids(100)[0]
    assert resumed.schedule == replace(resumed.snapshot.schedule, phase=SchedulePhase.ACTIVE, updated=at(310))
    assert (nominals(resumed), after_noon(resumed.plan_at)) == ([400], 398)


def test_the_skipped_row_has_the_due_time_of_its_first_fire():
    resumed = resume(read(scheduled(every(100, jitter=60), phase=SchedulePhase.PAUSED), 50), 310)
    assert resumed.closed[0].due == at(jittered(100, 60))


@pytest.mark.parametrize(("now", "count"), [(99, 0), (100, 1), (199, 1), (200, 2)])
def test_a_fire_at_the_very_moment_of_resuming_was_skipped(now, count):
    resumed = resume(read(scheduled(phase=SchedulePhase.PAUSED), 0), now)
    assert sum(row.missed_count for row in resumed.closed) == count
    assert nominals(resumed)[0] == (count + 1) * 100


def test_a_single_moment_that_the_pause_skipped_leaves_nothing_to_come():
    resumed = resume(read(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.PAUSED), 50), 310)
    assert (closed(resumed), resumed.exhausted) == ([("skipped/paused", 1, 100, 100)], True)


def test_a_pause_before_the_first_time_skips_nothing():
    resumed = resume(read(scheduled(every(100, start=900), phase=SchedulePhase.PAUSED), 50), 310)
    assert (resumed.closed, nominals(resumed)) == ((), [900])


def test_a_schedule_without_times_can_be_resumed():
    resumed = resume(read(scheduled(EventTrigger("uploaded"), phase=SchedulePhase.PAUSED), 50), 310)
    assert (resumed.closed, resumed.planned, resumed.schedule.phase) == ((), (), SchedulePhase.ACTIVE)


def test_only_what_is_paused_or_completed_can_become_active():
    with pytest.raises(Conflict):
        resume(read(scheduled(), 0), 50)


# Delete


def test_a_delete_cancels_projections_and_counts_what_was_due():
    rows = [100, projected(200, is_claimed=True), 300, projected(400, is_claimed=True)]
    deleted = delete(read(scheduled(every(100), misfire_policy=CatchUpAll()), 400, *rows), 250)
    assert closed(deleted) == [("cancelled/deleted", 2, 100, 200)]
    assert (deleted.removed, deleted.cancelled, deleted.planned) == (ids(200), ids(300, 400), ())
    assert deleted.schedule == replace(
        deleted.snapshot.schedule, phase=SchedulePhase.DELETED, updated=at(250), deleted=at(250)
    )
    assert (after_noon(deleted.watermark), deleted.plan_at) == (250, None)


def test_the_deletion_of_a_paused_schedule_tells_what_the_pause_skipped():
    deleted = delete(read(scheduled(phase=SchedulePhase.PAUSED), 50), 310)
    assert closed(deleted) == [("skipped/paused", 3, 100, 300)]


def test_the_deletion_of_a_completed_schedule_has_nothing_to_tell():
    deleted = delete(read(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.COMPLETED), 100), 310)
    assert (deleted.closed, deleted.cancelled, deleted.schedule.phase) == ((), (), SchedulePhase.DELETED)


def test_what_is_deleted_stays_deleted():
    with pytest.raises(Conflict):
        delete(read(scheduled(phase=SchedulePhase.DELETED), 0), 50)


# The very moment of a change


@pytest.mark.parametrize(
    ("change", "gaps"),
    [(pause, [("skipped/paused", 1, 100, 100)]), (delete, [("cancelled/deleted", 1, 100, 100)])],
)
def test_a_fire_at_the_very_moment_belongs_to_what_was_in_force(change, gaps):
    made = change(read(scheduled(), 100, 100), 100)
    assert (closed(made), made.removed, made.cancelled) == (gaps, (), ())


def test_a_fire_at_the_very_moment_of_an_edit_is_the_old_rules():
    edited = edit(read(scheduled(), 100, 100), declared(every(70, start=0)), 100)
    assert (planned(edited), edited.superseded) == ([(100, 100, 100), (140, 140, None)], ())
