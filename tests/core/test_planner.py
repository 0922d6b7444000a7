"""What a plan closes, and how far it looks ahead: tables with every time written out."""

from dataclasses import replace

import pytest

from noonmark.core import edits, planner
from noonmark.core.ids import TRIGGER, fraction, manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.planner import Plan, Snapshot, first_plan, plan, projection
from noonmark.core.policies.delivery import MissingTargetPolicy
from noonmark.core.policies.limits import Horizon
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.reasons import Reason
from noonmark.core.triggers import CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger
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
    one_id,
    planned,
    projected,
    read,
    scheduled,
)

DAY = 86_400


def plan_at(snapshot, now, lookahead=LOOKAHEAD):
    return plan(snapshot, now=at(now), lookahead=lookahead)


def jittered(nominal, jitter):
    return nominal + int(fraction(UID, at(nominal)) * jitter * SECOND) / SECOND


# The first plan


def test_a_new_schedule_has_its_next_fire_planned_as_a_whole_row():
    plan = first_plan(scheduled(every(100, start=100)), lookahead=LOOKAHEAD)
    row = Occurrence(
        id=one_id(100),
        uid=UID,
        schedule_id="s1",
        revision=1,
        origin=TRIGGER,
        phase=Phase.PENDING,
        route="function:tidy",
        nominal=at(100),
        due=at(100),
        first_due=at(100),
    )
    assert plan.planned == (row,)
    assert (after_noon(plan.watermark), after_noon(plan.plan_at), plan.exhausted) == (100, 98, False)
    assert (plan.closed, plan.removed, plan.superseded, plan.cancelled, plan.schedule) == ((), (), (), (), None)
    assert plan.catch_up is None
    assert plan.snapshot.watermark == at(0) - 1


@pytest.mark.parametrize(
    ("trigger", "fires"),
    [
        (every(100, start=-1_000), [0, 100]),  # a fire at the very moment of creation exists, earlier ones do not
        (every(100, start=-950), [50]),
        (every(100, start=-0.5), [-0.5, 99.5]),  # a start that has just passed fires at once
        (every(100, start=-60), [-60, 40]),  # within its grace
        (every(100, start=-61), [39]),
        (every(10, start=-45), [-5, 5]),  # of several times since the start, the newest stands for it
        (CronTrigger("* * * * *"), [0, 60]),
        (OnceTrigger(moment(500)), [500]),
        (OnceTrigger(moment(-60)), [-60]),  # past, but within its grace
        (OnceTrigger(moment(-61)), []),
        (OnceTrigger(moment(0)), [0]),
        (EventTrigger("uploaded"), []),
    ],
)
def test_times_before_creation_do_not_exist(trigger, fires):
    plan = first_plan(scheduled(trigger), lookahead=LOOKAHEAD)
    assert nominals(plan) == fires
    assert plan.closed == ()


def test_a_schedule_that_is_created_paused_is_not_planned():
    plan = first_plan(scheduled(phase=SchedulePhase.PAUSED), lookahead=LOOKAHEAD)
    assert plan == Plan(snapshot=plan.snapshot, watermark=at(0) - 1)


# Looking ahead


@pytest.mark.parametrize(
    ("trigger", "horizon", "lookahead", "fires", "again"),
    [
        (every(100, start=100), Horizon(), 2, [100], 98),
        (every(1, start=1), Horizon(), 2, [1, 2, 3], 1),  # all within the lookahead, and the next one
        (every(100, start=2), Horizon(), 2, [2, 102], 100),  # at the very edge of the lookahead
        (every(100, start=100), Horizon(occurrences=3), 2, [100, 200, 300], 98),
        (every(1, start=1), Horizon(occurrences=2), 2, [1, 2, 3, 4], 1),
        (every(DAY, start=DAY), Horizon(occurrences=5, days=2), 2, [DAY, 2 * DAY], DAY - 2),
        (every(0.75 * DAY), Horizon(occurrences=5, days=1), 2, [0.75 * DAY], 0.5 * DAY),  # the days reach it first
        (every(40 * DAY), Horizon(), 2, [40 * DAY], 40 * DAY - 2),  # the next fire, however far
        (every(40 * DAY), Horizon(occurrences=9), 2, [40 * DAY], 40 * DAY - 2),
        (every(100, start=100, end=250), Horizon(occurrences=9), 2, [100, 200], None),
        (every(100, start=100), Horizon(), 0, [100], 100),
    ],
)
def test_so_far_ahead_is_planned(trigger, horizon, lookahead, fires, again):
    plan = plan_at(read(scheduled(trigger, horizon=horizon), 0), 0, lookahead * SECOND)
    assert nominals(plan) == fires
    assert after_noon(plan.watermark) == fires[-1]
    assert after_noon(plan.plan_at) == again
    assert plan.exhausted is (again is None)


def test_projections_that_stand_are_not_planned_again():
    plan = plan_at(read(scheduled(horizon=Horizon(occurrences=3)), 200, 100, 200), 99)
    assert nominals(plan) == [300, 400]
    assert after_noon(plan.plan_at) == 198


def test_planning_again_at_once_changes_nothing():
    plan = plan_at(read(scheduled(), 100, 100), 50)
    assert plan == Plan(snapshot=plan.snapshot, watermark=at(100), plan_at=at(98))


def test_the_due_time_is_the_nominal_time_and_its_jitter():
    plan = plan_at(read(scheduled(every(100, jitter=60), horizon=Horizon(occurrences=2)), 0), 0)
    assert planned(plan) == [(100, jittered(100, 60), None), (200, jittered(200, 60), None)]
    assert [row.first_due for row in plan.planned] == [row.due for row in plan.planned]


def test_what_jitter_delays_does_not_stand_for_the_next_fire():
    due = jittered(100, 60)
    assert due > 105
    plan = plan_at(read(scheduled(every(100, jitter=60)), 100, projected(100, due)), 101)
    assert nominals(plan) == [200]


def test_a_plan_is_bounded_and_goes_on_at_once():
    plan = plan_at(read(scheduled(every(0.001)), 0), 0)
    assert len(plan.planned) == planner.MAX_AHEAD == 1_000
    assert (after_noon(plan.watermark), after_noon(plan.plan_at)) == (1, 0)
    on = plan_at(Snapshot(schedule=plan.snapshot.schedule, watermark=plan.watermark), 0)
    assert (nominals(on)[0], nominals(on)[-1]) == (1.001, 2)


@pytest.mark.parametrize(
    ("beyond", "watermark", "fires"),
    [
        ((), 9_000, [9_100]),  # all of it was closed by the clock that was ahead, and is not planned again
        ([(200, 200)], 150, [300]),  # cancelled ahead, then a pause set the watermark back
        ([(200, 400)], 150, [500]),
        ([(200, 400), (300, 300), (400, 500)], 150, [600]),
        ([(300, 400)], 150, [200]),
    ],
)
def test_what_is_accounted_for_is_not_planned_again_when_the_clock_goes_back(beyond, watermark, fires):
    snapshot = replace(read(scheduled(), watermark), beyond=tuple((at(first), at(last)) for first, last in beyond))
    plan = plan_at(snapshot, 150)
    assert (nominals(plan), after_noon(plan.watermark)) == (fires, fires[-1])


@pytest.mark.parametrize(
    ("beyond", "gaps"),
    [
        ([], [("misfired/late", 4, 100, 400)]),
        ([(200, 200)], [("misfired/late", 3, 100, 400)]),
        ([(100, 200)], [("misfired/late", 2, 300, 400)]),
        ([(400, 400)], [("misfired/late", 3, 100, 300)]),
        ([(300, 400), (400, 900)], [("misfired/late", 2, 100, 200)]),
        ([(100, 100), (300, 400)], [("misfired/late", 1, 200, 200)]),
        ([(100, 400)], []),
    ],
)
def test_a_gap_counts_nothing_that_is_accounted_for(beyond, gaps):
    snapshot = replace(read(scheduled(), 0), beyond=tuple((at(first), at(last)) for first, last in beyond))
    assert closed(plan_at(snapshot, 470)) == gaps


def test_fires_left_over_keep_their_jitter():
    snapshot = replace(read(scheduled(every(100, jitter=60)), 0), beyond=((at(100), at(100)),))
    assert planned(plan_at(snapshot, 500))[0] == (400, jittered(400, 60), None)


def test_another_trigger_names_its_own_times_after_any_rows_of_the_old_one():
    snapshot = replace(read(scheduled(), 9_000), beyond=((at(200), at(10_000)),))
    edited = edits.edit(snapshot, declared(every(50)), now=at(150), lookahead=LOOKAHEAD)
    assert (nominals(edited), after_noon(edited.watermark)) == ([200], 200)


# As often as it may


def used_up(watermark, *projections, runs=3, **known):
    return replace(read(scheduled(max_runs=3), watermark, *projections), runs=runs, **known)


def test_one_run_left_is_planned_as_ever():
    plan = plan_at(used_up(100, 100, runs=2), 50)
    assert (plan.removed, plan.exhausted, after_noon(plan.plan_at)) == ((), False, 98)


def test_when_max_runs_is_used_up_what_lies_ahead_is_withdrawn_and_nothing_follows():
    plan = plan_at(used_up(300, 100, 200, 300), 150)
    assert (nominals(plan), plan.removed, plan.closed) == ([], ids(200, 300), ())
    assert (after_noon(plan.watermark), plan.plan_at, plan.exhausted) == (150, None, True)


def test_what_was_due_by_then_is_left_to_admission():
    plan = plan_at(used_up(0), 130)
    assert (nominals(plan), after_noon(plan.watermark), plan.exhausted) == ([100], 100, True)
    assert closed(plan_at(used_up(0), 470)) == [("misfired/late", 4, 100, 400)]


def test_one_that_jitter_holds_back_was_named():
    trigger = every(100, jitter=60)
    due = jittered(100, 60)
    snapshot = replace(read(scheduled(trigger, max_runs=3), 0), runs=3)
    plan = plan_at(snapshot, due - 1)
    assert (planned(plan), after_noon(plan.watermark)) == ([(100, due, None)], 100)


def test_once_it_was_found_used_up_no_time_is_named():
    plan = plan_at(used_up(150, exhausted=True), 1_000)
    assert plan == Plan(snapshot=plan.snapshot, watermark=at(150), exhausted=True)


@pytest.mark.parametrize(("now", "gaps"), [(160, []), (161, [("misfired/late", 1, 100, 100)])])
def test_what_was_named_before_may_be_late_after(now, gaps):
    plan = plan_at(used_up(150, 100, exhausted=True), now)
    assert (closed(plan), nominals(plan), plan.exhausted) == (gaps, [], True)


def test_a_schedule_that_listens_is_over_when_max_runs_is_used_up():
    snapshot = replace(read(scheduled(EventTrigger("uploaded"), max_runs=3), 0), runs=3)
    assert plan_at(snapshot, 100).exhausted
    assert not plan_at(replace(snapshot, runs=2), 100).exhausted


# Nobody serves the target


@pytest.mark.parametrize(
    ("policy", "unserved", "expected"),
    [
        (MissingTargetPolicy.MARK_MISFIRED, False, "misfired/late"),
        (MissingTargetPolicy.SKIP, False, "misfired/late"),
        (MissingTargetPolicy.MARK_MISFIRED, True, "misfired/target_missing"),
        (MissingTargetPolicy.SKIP, True, "skipped/target_missing"),
    ],
)
def test_lateness_is_not_blamed_where_nobody_could_be_in_time(policy, unserved, expected):
    snapshot = replace(read(scheduled(missing_target_policy=policy), 0), unserved=unserved)
    assert closed(plan_at(snapshot, 470)) == [(expected, 4, 100, 400)]


@pytest.mark.parametrize(
    ("grace", "lacks_node", "expected"),
    [
        (300, False, ("newer_fire", "")),
        (300, True, ("newer_fire", '{"route": "function:tidy"}')),
        (60, True, ("late", "")),
    ],
)
def test_what_a_newer_fire_replaces_names_the_target_that_no_live_node_served(grace, lacks_node, expected):
    policy = Skip(grace=grace * SECOND)
    snapshot = replace(read(scheduled(misfire_policy=policy), 0), lacks_node=lacks_node)
    [row] = plan_at(snapshot, 310).closed
    assert (row.reason, row.detail) == expected


def test_a_watermark_ahead_stands_while_its_projection_does():
    plan = plan_at(read(scheduled(), 9_000, 9_000), 150)
    assert (plan.planned, after_noon(plan.watermark)) == ((), 9_000)


@pytest.mark.parametrize(
    ("phase", "exhausted"),
    [(SchedulePhase.PAUSED, False), (SchedulePhase.COMPLETED, True), (SchedulePhase.DELETED, False)],
)
def test_only_an_active_schedule_is_planned(phase, exhausted):
    plan = plan_at(read(scheduled(phase=phase), 0), 1_000)
    assert plan == Plan(snapshot=plan.snapshot, watermark=at(0), exhausted=exhausted)


def test_what_was_exhausted_when_it_was_paused_stays_so():
    assert plan_at(replace(read(scheduled(phase=SchedulePhase.PAUSED), 0), exhausted=True), 1_000).exhausted


# What is overdue


def test_fires_that_nobody_planned_are_one_gap_with_the_id_of_the_first():
    plan = plan_at(read(scheduled(), 0), 1_070)
    assert closed(plan) == [("misfired/late", 10, 100, 1_000)]
    assert plan.closed[0].id == one_id(100)
    assert plan.closed[0].due == at(100)
    assert nominals(plan) == [1_100]
    assert after_noon(plan.watermark) == 1_100
    assert plan.catch_up.missed.count == 10


def test_a_fire_in_grace_runs_and_the_older_ones_are_the_gap():
    plan = plan_at(read(scheduled(), 0), 1_060)
    assert closed(plan) == [("misfired/late", 9, 100, 900)]
    assert planned(plan) == [(1_000, 1_000, None), (1_100, 1_100, None)]


def test_projections_that_nobody_took_up_belong_to_the_gap_after_them():
    plan = plan_at(read(scheduled(), 200, 100, 200), 1_070)
    assert closed(plan) == [("misfired/late", 10, 100, 1_000)]
    assert plan.closed[0].id == one_id(100)
    assert plan.removed == ids(200)
    assert nominals(plan) == [1_100]


def test_one_in_grace_that_is_not_the_newest_belongs_to_the_gap_too():
    plan = plan_at(read(scheduled(every(10)), 10, 10), 45)
    assert closed(plan) == [("misfired/newer_fire", 3, 10, 30)]
    assert (nominals(plan), plan.removed) == ([40, 50], ())


def test_a_projection_in_grace_is_left_to_its_claim():
    plan = plan_at(read(scheduled(), 100, 100), 160)
    assert (plan.closed, plan.removed, nominals(plan)) == ((), (), [200])


def test_one_that_jitter_has_not_made_due_is_no_part_of_the_gap():
    trigger = every(100, jitter=99)
    due = jittered(200, 99)
    plan = plan_at(read(scheduled(trigger, misfire_policy=Skip(grace=SECOND)), 0), due - 1)
    assert closed(plan) == [("misfired/late", 1, 100, 100)]
    assert planned(plan)[0] == (200, due, None)


@pytest.mark.parametrize(
    ("policy", "gaps", "runs"),
    [
        (Skip(), [("misfired/late", 4, 100, 400)], []),
        (CatchUpOne(), [("misfired/newer_fire", 3, 100, 300)], [(400, 400, 470)]),
        (CatchUpAll(limit=2), [("misfired/catch_up_limit", 2, 100, 200)], [(300, 300, 470), (400, 400, 470)]),
        (CatchUpAll(), [], [(100, 100, 470), (200, 200, 470), (300, 300, 470), (400, 400, 470)]),
        (CatchUpWithin(window=170 * SECOND), [("misfired/late", 2, 100, 200)], [(300, 300, 470), (400, 400, 470)]),
        (Spread(limit=2), [("misfired/catch_up_limit", 2, 100, 200)], [(300, 470, 470), (400, 500, 470)]),
    ],
)
@pytest.mark.parametrize("known", [(), (100, 200), (100, 200, 300, 400)])
def test_every_policy_decides_alike_about_what_was_planned_and_what_was_not(policy, gaps, runs, known):
    plan = plan_at(read(scheduled(misfire_policy=policy), max(known, default=0), *known), 470)
    assert closed(plan) == gaps
    assert planned(plan) == [*runs, (500, 500, None)]
    gone = range(gaps[0][2] + 100, gaps[0][3] + 1, 100) if gaps else ()
    assert plan.removed == ids(*(one for one in gone if one in known))
    assert all(row.first_due == row.nominal for row in plan.planned)  # a window counts from there, spread or not


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (Skip(), [(400, 400, None)]),
        (CatchUpOne(), [(400, 400, None)]),
        (CatchUpAll(limit=2), [(200, 200, 430), (300, 300, 430), (400, 400, 430)]),
        (CatchUpWithin(window=230 * SECOND), [(200, 200, 430), (300, 300, 430), (400, 400, 430)]),
        (Spread(limit=2), [(200, 430, 430), (300, 450, 430), (400, 470, 430)]),
    ],
)
@pytest.mark.parametrize("known", [(), (100,), (100, 200, 300)])
def test_the_one_in_grace_is_the_last_of_the_line_that_is_caught_up(policy, runs, known):
    plan = plan_at(read(scheduled(misfire_policy=policy), max(known, default=0), *known), 430)
    assert planned(plan) == [*runs, (500, 500, None)]


@pytest.mark.parametrize(("now", "runs"), [(31, [(10, 31), (20, 31), (30, 31)]), (10, [(10, None)])])
def test_fires_in_grace_form_a_line_where_there_are_several(now, runs):
    plan = plan_at(read(scheduled(every(10), misfire_policy=CatchUpAll()), 0), now)
    assert [(nominal, caught_up) for nominal, _, caught_up in planned(plan) if nominal <= now] == runs


def test_fires_that_are_hardly_late_form_no_line():
    trigger = IntervalTrigger(every_seconds=0.25, start_at=from_micros(at(0)))
    plan = plan_at(read(scheduled(trigger, misfire_policy=CatchUpAll()), 0), 0.9)
    assert all(row.caught_up is None for row in plan.planned)


def test_a_projection_in_grace_joins_the_line():
    plan = plan_at(read(scheduled(misfire_policy=CatchUpAll()), 400, 300, 400), 430)
    assert planned(plan) == [(300, 300, 430), (400, 400, 430), (500, 500, None)]


def test_a_caught_up_one_with_jitter_keeps_its_due_time():
    trigger = every(100, jitter=50)
    plan = plan_at(read(scheduled(trigger, misfire_policy=CatchUpOne()), 100, projected(100, jittered(100, 50))), 290)
    assert planned(plan)[0] == (200, jittered(200, 50), 290)
    assert plan.closed[0].due == at(jittered(100, 50))


def test_a_claimed_one_is_judged_by_its_holder_and_ends_the_gap_before_it():
    snapshot = read(scheduled(), 300, 100, projected(200, is_claimed=True), 300)
    plan = plan_at(snapshot, 470)
    assert closed(plan) == [("misfired/late", 1, 100, 100), ("misfired/late", 2, 300, 400)]
    assert plan.removed == ()


def test_one_that_waits_never_misfires():
    plan = plan_at(read(scheduled(), 100, projected(100, waiting_for=Reason.QUEUED)), 470)
    assert closed(plan) == [("misfired/late", 3, 200, 400)]


def test_late_ones_before_an_admitted_fire_are_apart_from_the_gap_after_it():
    plan = plan_at(read(scheduled(), 400, 100, 200, 400, admitted=300), 570)
    assert closed(plan) == [("misfired/late", 2, 100, 200), ("misfired/late", 2, 400, 500)]
    assert plan.removed == ids(200)


def test_one_before_an_admitted_fire_stays_while_it_is_in_grace():
    plan = plan_at(read(scheduled(every(10)), 20, 10, admitted=20), 25)
    assert (plan.closed, nominals(plan)) == ((), [30])


@pytest.mark.parametrize(
    ("now", "gaps"), [(530, []), (531, [("misfired/late", 1, 100, 100), ("misfired/late", 1, 200, 200)])]
)
def test_what_was_caught_up_and_missed_again_is_decided_again_under_skip(now, gaps):
    rows = [projected(one, caught_up=470) for one in (100, 200)]
    plan = plan_at(read(scheduled(every(1_000, start=100)), 100, *rows), now)
    assert closed(plan) == gaps


def test_one_that_came_back_before_a_caught_up_one_is_no_gap_with_what_follows():
    snapshot = read(scheduled(misfire_policy=Skip()), 400, 100, projected(200, caught_up=350), 400)
    assert closed(plan_at(snapshot, 390)) == [("misfired/late", 1, 100, 100)]
    assert closed(plan_at(snapshot, 470)) == [("misfired/late", 2, 100, 200), ("misfired/late", 1, 400, 400)]


@pytest.mark.parametrize("policy", [CatchUpAll(limit=1), CatchUpWithin(window=SECOND), Spread(limit=1)])
def test_a_line_is_not_decided_again_however_long_it_waits_for_a_node(policy):
    rows = [projected(0, 5, caught_up=470, first_due=3), projected(1_000, caught_up=470)]
    plan = plan_at(read(scheduled(every(1_000, start=0), misfire_policy=policy), 1_000, *rows), 1_900)
    assert (closed(plan), nominals(plan)) == ([], [2_000])


def test_a_spread_one_is_not_late_before_its_time():
    plan = plan_at(read(scheduled(every(9_000)), 0, projected(0, 2_000, caught_up=470)), 2_060)
    assert plan.closed == ()


def test_what_is_left_of_another_rule_is_decided_without_a_timed_trigger():
    plan = plan_at(read(scheduled(EventTrigger("uploaded")), 0, projected(0, caught_up=10)), 71)
    assert closed(plan) == [("misfired/late", 1, 0, 0)]
    assert plan.plan_at is None


def test_a_once_that_was_missed_is_caught_up_and_nothing_follows():
    plan = plan_at(read(scheduled(OnceTrigger(moment(100)), misfire_policy=CatchUpOne()), 100, 100), 900)
    assert planned(plan) == [(100, 100, 900)]
    assert (plan.exhausted, plan.plan_at, after_noon(plan.watermark)) == (True, None, 100)


def test_a_year_of_seconds_is_one_row():
    plan = plan_at(read(scheduled(every(1), misfire_policy=Skip(grace=SECOND)), 0), 365 * DAY)
    assert closed(plan) == [("misfired/late", 365 * DAY - 1, 1, 365 * DAY - 1)]
    assert nominals(plan)[0] == 365 * DAY


# Which rows a plan may change

ROW = first_plan(scheduled(every(100, start=100)), lookahead=LOOKAHEAD).planned[0]


def test_a_row_that_was_never_started_is_a_projection():
    assert projection(ROW) == projected(100, first_due=100)
    waiting = replace(ROW, phase=Phase.CLAIMED, waiting_for=Reason.QUEUED, caught_up=at(5), due=at(150))
    expected = projected(100, 150, first_due=100, is_claimed=True, caught_up=5, waiting_for=Reason.QUEUED)
    assert projection(waiting) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": 1},
        {"losses": 1},
        {"reason": Reason.LEASE_LOST},
        {"phase": Phase.DISPATCHING},
        {"phase": Phase.SUPERSEDED},
        {"origin": manual("k")},
    ],
)
def test_any_other_row_is_none(changes):
    assert projection(replace(ROW, **changes)) is None


def listening(end):
    return scheduled(EventTrigger("uploaded", end_at=moment(end)))


def test_a_schedule_that_waits_for_events_is_planned_when_its_trigger_listens_no_more():
    plan = first_plan(listening(100), lookahead=LOOKAHEAD)
    assert (plan.plan_at, plan.exhausted, plan.planned) == (at(100) + 1, False, ())
    plan = plan_at(read(listening(100), 0), 100)
    assert (plan.plan_at, plan.exhausted) == (at(100) + 1, False)
    plan = plan_at(read(listening(100), 0), 101)
    assert (plan.plan_at, plan.exhausted) == (None, True)


def test_a_schedule_that_waits_for_events_without_end_is_never_planned_again():
    plan = plan_at(read(scheduled(EventTrigger("uploaded")), 0), 100)
    assert (plan.plan_at, plan.exhausted) == (None, False)


def test_resuming_a_schedule_whose_events_are_over_ends_it():
    paused = replace(listening(100), phase=SchedulePhase.PAUSED)
    assert edits.resume(read(paused, 0), now=at(50), lookahead=0).plan_at == at(100) + 1
    assert edits.resume(read(paused, 0), now=at(101), lookahead=0).exhausted
