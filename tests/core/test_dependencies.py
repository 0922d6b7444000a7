"""What waits for the schedules it depends on, what runs, and what is skipped."""

import itertools
from dataclasses import replace

import pytest

from noonmark.core import edits, ids
from noonmark.core.admission import Claim, End, Wait, after_upstreams, depends_on_others, times_in_question
from noonmark.core.causation import chain_after, chain_behind
from noonmark.core.errors import InvalidSchedule
from noonmark.core.event import Chain, joined
from noonmark.core.instants import MIN_INSTANT, SECOND
from noonmark.core.lifecycle import ENDINGS, FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.planner import Snapshot, first_plan, occurrence, owed, plan
from noonmark.core.policies import dependencies
from noonmark.core.policies.dependencies import FollowUp, Standing, Standings, check_order, find_cycle, follow_up
from noonmark.core.policies.limits import Dependency
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from tests.core.scheduled import LOOKAHEAD, after_noon, at, every, scheduled

DAY = 86_400
PENDING = "wait for dependency_pending"
FAILED = "skipped/dependency_failed"
ACTIVE, PAUSED, OVER = SchedulePhase.ACTIVE, SchedulePhase.PAUSED, SchedulePhase.COMPLETED
UP = Dependency(schedule_id="up")


def standing(phase=None, *, schedule=ACTIVE, schedule_id="up", require_success=True, watermark=100, **fields):
    """An upstream; without a phase, its time in question has no outcome yet."""
    dependency = Dependency(schedule_id=schedule_id, require_success=require_success)
    newest = None if phase is None else (at(100), phase)
    known = {"phase": schedule, "watermark": at(watermark), "newest": newest}
    for name in ("ended", "completed"):
        fields[name] = None if fields.get(name) is None else at(fields[name])
    return Standing(dependency=dependency, **(known | fields))


def claim_of(schedule, now=100, **row):
    one = replace(occurrence(schedule, at(100), at(100)), phase=Phase.CLAIMED, **row)
    return Claim(occurrence=one, schedule=schedule, claimed=at(now))


def decided(*each, now=100, **fields):
    """What is decided about the fire at 100 s."""
    claim = claim_of(scheduled(every(100), depends_on=(UP,), **fields), now)
    return after_upstreams(claim, Standings(each=each, news=7), now=at(now))


def told(decision):
    match decision:
        case End(phase=phase, reason=reason):
            assert reason in ENDINGS[phase]
            return f"{phase}/{reason}"
        case Wait(waiting_for=reason):
            return f"wait for {reason}"
    return "goes on"


@pytest.mark.parametrize("phase", sorted(LIVE))
@pytest.mark.parametrize("require_success", [True, False])
def test_what_is_still_open_is_waited_for(phase, require_success):
    decision = decided(standing(phase, require_success=require_success))
    assert told(decision) == PENDING
    assert (decision.until, decision.seen, decision.after) == (at(100 + DAY), 7, at(0))


@pytest.mark.parametrize("phase", sorted(FINAL - {Phase.COMPLETED}))
def test_any_end_but_completed_is_a_failure_unless_that_does_not_matter(phase):
    decision = decided(standing(phase))
    assert told(decision) == FAILED
    assert decision.facts == {"upstream": "up", "phase": str(phase)}
    assert told(decided(standing(phase, require_success=False))) == "goes on"


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([], "goes on"),
        ([Phase.COMPLETED], "goes on"),
        ([Phase.COMPLETED, Phase.COMPLETED], "goes on"),
        ([Phase.COMPLETED, Phase.DISPATCHING], PENDING),
        ([Phase.DISPATCHING, Phase.FAILED], FAILED),  # there is nothing left to wait for
        ([Phase.FAILED, Phase.COMPLETED], FAILED),
    ],
)
def test_every_upstream_has_a_say(phases, expected):
    assert told(decided(*(standing(phase) for phase in phases))) == expected


@pytest.mark.parametrize("require_success", [True, False])
def test_an_upstream_that_is_gone_is_a_failure(require_success):
    decision = decided(standing(schedule=None, require_success=require_success))
    assert told(decision) == FAILED
    assert decision.facts == {"upstream": "up", "phase": "missing"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"last_phase": Phase.COMPLETED}, "goes on"),
        ({"last_phase": Phase.FAILED}, FAILED),
        ({"last_phase": Phase.FAILED, "require_success": False}, "goes on"),
        ({"last_phase": None}, PENDING),
        ({"schedule": OVER, "last_phase": Phase.COMPLETED}, "goes on"),
        ({"schedule": PAUSED, "last_phase": Phase.COMPLETED}, "goes on"),
    ],
)
def test_where_no_time_was_named_the_last_outcome_counts(fields, expected):
    decision = decided(standing(**fields))
    assert told(decision) == expected
    if isinstance(decision, Wait):
        assert decision.after is None


@pytest.mark.parametrize(
    ("step", "fields", "expected"),
    [
        (100, {"watermark": 0}, PENDING),
        (30, {"watermark": 60, "newest": (at(60), Phase.COMPLETED)}, PENDING),
        (30, {"watermark": 90, "newest": (at(90), Phase.COMPLETED)}, "goes on"),
        (30, {"watermark": 60, "newest": (at(90), Phase.COMPLETED)}, "goes on"),  # somebody cancelled ahead, or so
        (100, {"watermark": 0, "exhausted": True}, "goes on"),
        (1000, {"watermark": 0}, "goes on"),
        (100, {"watermark": 0, "schedule": PAUSED}, FAILED),
        (100, {"watermark": 0, "schedule": PAUSED, "require_success": False}, "goes on"),
    ],
)
def test_a_time_that_is_not_planned_yet_is_waited_for_or_skipped_by_a_pause(step, fields, expected):
    up = standing(fires=every(step, start=step if step == 1000 else 0), last_phase=Phase.COMPLETED, **fields)
    decision = decided(up)
    assert told(decision) == expected
    if isinstance(decision, Wait):
        assert decision.after == at(0)


def test_who_waits_for_a_first_outcome_too_takes_any():
    assert decided(standing(Phase.PENDING), standing(last_phase=None)).after is None
    assert decided(standing(Phase.PENDING), standing(last_phase=Phase.COMPLETED)).after == at(0)


@pytest.mark.parametrize(("now", "expected"), [(100 + DAY - 1, PENDING), (100 + DAY, "skipped/dependency_timed_out")])
def test_the_wait_is_over_after_a_day(now, expected):
    decision = decided(standing(Phase.COMPLETED, schedule_id="done"), standing(Phase.PENDING), now=now)
    assert told(decision) == expected
    if isinstance(decision, End):
        assert decision.facts == {"upstream": "up", "waits_until": "2026-11-16T12:01:40Z"}


@pytest.mark.parametrize(("duration", "until"), [(60, 160), (2 * DAY, 100 + DAY)])
def test_it_waits_no_longer_than_its_window_is_open(duration, until):
    decision = decided(standing(Phase.PENDING), window=Window(duration=duration * SECOND))
    assert after_noon(decision.until) == until


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, True),
        ({"waiting_for": Reason.DEPENDENCY_PENDING}, True),
        ({"waiting_for": Reason.QUEUED}, False),
        ({"waiting_for": Reason.CONCURRENCY_LIMIT}, False),
        ({"origin": ids.manual("k")}, False),
        ({"origin": ids.backfill("b")}, False),
        ({"attempt": 1}, False),
        ({"losses": 1}, False),
        ({"reason": Reason.LEASE_LOST}, False),
    ],
)
def test_what_was_asked_for_or_has_begun_or_has_passed_does_not_depend(row, expected):
    assert depends_on_others(claim_of(scheduled(every(100), depends_on=(UP,)), **row)) is expected


def test_without_upstreams_or_a_trigger_nothing_is_asked_at_admission():
    assert not depends_on_others(claim_of(scheduled(every(100))))
    assert not depends_on_others(claim_of(follower()))
    assert times_in_question(claim_of(follower())) == (at(100), at(100))


def test_times_after_my_previous_one_and_up_to_mine_are_in_question():
    asked = dependencies.times_in_question
    assert [after_noon(time) for time in asked(every(100), at(300))] == [200, 300]
    assert asked(every(100), at(0)) == (MIN_INSTANT - 1, at(0))


# Without a trigger


def ended(last_phase=Phase.COMPLETED, *, at_second=50, **fields):
    """An upstream that has ended once."""
    completed = at_second if last_phase is Phase.COMPLETED else None
    return standing(last_phase=last_phase, ended=at_second, **({"completed": completed} | fields))


IDLE = standing()
OVER_LONG_AGO = standing(schedule=OVER, last_phase=Phase.COMPLETED)


@pytest.mark.parametrize(
    ("each", "has_fired", "expected"),
    [
        ([IDLE], False, None),
        ([ended()], False, (50, "")),
        ([ended()], True, (50, "")),
        ([ended(at_second=10)], True, None),
        ([ended(), IDLE], True, None),
        ([ended(), ended(at_second=60)], True, (60, "")),
        ([ended(), ended(at_second=10)], True, None),
        ([ended(Phase.FAILED)], True, (50, "failed")),
        ([ended(Phase.SKIPPED)], True, (50, "skipped")),
        ([ended(Phase.FAILED, require_success=False)], True, (50, "")),
        ([ended(Phase.FAILED), IDLE], True, None),
        ([ended(Phase.FAILED), ended(at_second=60)], True, (60, "failed")),
        ([ended(Phase.FAILED, at_second=60, completed=50)], True, (60, "")),  # it has completed since
        ([ended(Phase.FAILED, at_second=60, completed=20)], True, (60, "failed")),
        ([OVER_LONG_AGO], False, (20.000001, "")),
        ([OVER_LONG_AGO], True, None),
        ([OVER_LONG_AGO, ended()], True, (50, "")),
        ([OVER_LONG_AGO, IDLE], False, None),
        ([standing(schedule=OVER, last_phase=Phase.FAILED), ended()], True, (50, "failed")),
        ([standing(schedule=OVER, last_phase=Phase.FAILED, require_success=False), ended()], True, (50, "")),
        ([standing(schedule=OVER), ended()], True, (50, "missing")),
        ([standing(schedule=OVER, require_success=False), ended()], True, (50, "")),
        ([standing(schedule=None), ended()], True, (50, "missing")),
        ([standing(schedule=None, require_success=False), ended()], True, (50, "missing")),
    ],
)
def test_a_follower_fires_when_all_have_ended_since_its_last_fire(each, has_fired, expected):
    """Its last fire was at 20 s."""
    fire = follow_up(each, watermark=at(20), has_fired=has_fired)
    detail = "" if expected is None or not expected[1] else f'{{"phase": "{expected[1]}", "upstream": "up"}}'
    assert fire == (None if expected is None else FollowUp(nominal=at(expected[0]), detail=detail))


SHALLOW, DEEP = Chain(1, 1).then("a", "x"), Chain(2, 1).then("b", "x")


@pytest.mark.parametrize(
    ("each", "behind"),
    [
        ([ended(leads=DEEP)], DEEP),
        ([ended(leads=DEEP), ended(at_second=60, leads=SHALLOW)], joined([DEEP, SHALLOW])),
        ([ended(), ended(at_second=60, leads=SHALLOW)], SHALLOW),
        ([standing(schedule=OVER, last_phase=Phase.COMPLETED, ended=10, leads=DEEP), ended(leads=SHALLOW)], SHALLOW),
        ([OVER_LONG_AGO], None),
    ],
)
def test_a_follow_up_stands_where_the_deepest_of_those_stands_that_have_ended_since(each, behind):
    assert follow_up(each, watermark=at(20), has_fired=False).behind == behind


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED])
def test_the_row_of_a_follow_up_knows_what_led_to_it(phase):
    planned = plan(followed(ended(phase, leads=DEEP)), now=at(55), lookahead=LOOKAHEAD)
    [row] = [*planned.planned, *planned.closed]
    assert chain_behind(row) == DEEP
    assert chain_after(row) == DEEP.then(row.schedule_id)
    planned = plan(followed(ended(phase)), now=at(55), lookahead=LOOKAHEAD)
    assert [chain_behind(row) for row in (*planned.planned, *planned.closed)] == [Chain()]


def follower(**fields):
    return replace(
        scheduled(every(100), **({"depends_on": (UP,)} | fields)),
        declaration=replace(scheduled(every(100), **({"depends_on": (UP,)} | fields)).declaration, trigger=None),
    )


def followed(*each, watermark=20, schedule=None, **fields):
    upstreams = Standings(each=each)
    return Snapshot(schedule=schedule or follower(), watermark=at(watermark), upstreams=upstreams, **fields)


def test_a_new_follower_counts_from_its_creation_and_is_planned_at_once():
    plan = first_plan(follower(), lookahead=LOOKAHEAD)
    assert (plan.watermark, plan.plan_at, plan.planned, plan.exhausted) == (at(0), at(0), (), False)


def test_a_follow_up_is_planned_once_and_has_waited():
    planned = plan(followed(ended()), now=at(55), lookahead=LOOKAHEAD)
    [row] = planned.planned
    assert (row.nominal, row.due, row.waiting_for) == (at(50), at(50), Reason.DEPENDENCY_PENDING)
    assert (planned.watermark, planned.plan_at, planned.exhausted) == (at(50), None, False)
    assert not plan(followed(ended(), watermark=50), now=at(55), lookahead=LOOKAHEAD).planned


def test_a_follow_up_of_the_future_is_due_now():
    [row] = plan(followed(ended(at_second=60)), now=at(55), lookahead=LOOKAHEAD).planned
    assert (row.nominal, row.due) == (at(60), at(55))


def test_a_failed_follow_up_is_skipped_in_the_plan():
    planned = plan(followed(ended(Phase.FAILED)), now=at(55), lookahead=LOOKAHEAD)
    [row] = planned.closed
    assert (row.phase, row.reason, row.waiting_for) == (Phase.SKIPPED, Reason.DEPENDENCY_FAILED, None)
    assert row.detail == '{"phase": "failed", "upstream": "up"}'
    assert (planned.watermark, planned.planned) == (at(50), ())


@pytest.mark.parametrize(
    ("each", "expected"),
    [([OVER_LONG_AGO], True), ([OVER_LONG_AGO, standing(schedule=None)], True), ([OVER_LONG_AGO, IDLE], False)],
)
def test_a_follower_is_over_when_nothing_upstream_is_to_come(each, expected):
    assert plan(followed(*each, admitted=at(20)), now=at(55), lookahead=LOOKAHEAD).exhausted is expected


def test_a_follower_that_has_run_as_often_as_it_may_owes_nothing():
    used_up = followed(ended(), schedule=follower(max_runs=1), runs=1)
    assert owed(used_up) is None
    planned = plan(used_up, now=at(55), lookahead=LOOKAHEAD)
    assert (planned.planned, planned.exhausted) == ((), True)


@pytest.mark.parametrize("last", [50, 60])
def test_what_a_follower_owes_when_it_is_paused_is_skipped(last):
    paused = edits.pause(followed(ended(at_second=last)), now=at(55))
    [row] = paused.closed
    assert (row.nominal, row.phase, row.reason) == (at(last), Phase.SKIPPED, Reason.PAUSED)
    assert (paused.watermark, paused.planned) == (at(max(55, last)), ())


@pytest.mark.parametrize("last", [50, 60])
def test_what_a_pause_skipped_of_a_follower_is_one_row(last):
    paused = replace(follower(), phase=PAUSED)
    resumed = edits.resume(followed(ended(at_second=last), schedule=paused), now=at(55), lookahead=LOOKAHEAD)
    [row] = resumed.closed
    assert (row.nominal, row.reason, row.missed_count) == (at(last), Reason.PAUSED, 1)
    assert (resumed.watermark, resumed.plan_at) == (at(max(55, last)), at(55))
    assert not edits.resume(followed(IDLE, schedule=paused), now=at(55), lookahead=LOOKAHEAD).closed


@pytest.mark.parametrize("last", [50, 60])
def test_an_edited_follower_keeps_what_it_owes_and_looks_upstream_again(last):
    snapshot = followed(ended(at_second=last))
    other = replace(snapshot.schedule.declaration, timeout=5 * SECOND)
    edited = edits.edit(snapshot, other, now=at(55), lookahead=LOOKAHEAD)
    [row] = edited.planned
    assert (row.nominal, row.revision, row.waiting_for) == (at(last), 2, Reason.DEPENDENCY_PENDING)
    assert (edited.watermark, edited.plan_at) == (at(max(55, last)), at(55))


@pytest.mark.parametrize("last", [50, 60])
def test_what_an_edited_follower_must_not_run_is_accounted_for(last):
    snapshot = followed(ended(FAILED, at_second=last))
    other = replace(snapshot.schedule.declaration, timeout=5 * SECOND)
    edited = edits.edit(snapshot, other, now=at(55), lookahead=LOOKAHEAD)
    [row] = edited.closed
    assert (row.nominal, row.phase, row.reason) == (at(last), Phase.SKIPPED, Reason.DEPENDENCY_FAILED)
    assert (edited.watermark, edited.planned, edited.plan_at) == (at(max(55, last)), (), at(55))


def test_another_name_does_not_keep_a_follower_from_firing():
    snapshot = followed(ended())
    edited = edits.edit(snapshot, replace(snapshot.schedule.declaration, name="n"), now=at(55), lookahead=LOOKAHEAD)
    assert [row.nominal for row in edited.planned] == [at(50)]


def test_a_follower_that_gets_a_trigger_goes_by_that():
    snapshot = followed(ended())
    timed = replace(snapshot.schedule.declaration, trigger=every(100))
    edited = edits.edit(snapshot, timed, now=at(55), lookahead=LOOKAHEAD)
    # The start of its interval lies within the grace, and is a fire as it is at creation.
    assert sorted(after_noon(row.nominal) for row in edited.planned) == [0, 50, 100]


# Order


KNOWN = {"a": (), "b": ("a",), "c": ("b", "a")}


@pytest.mark.parametrize("named", [["a"], ["b", "a"], ["c"], []])
def test_upstreams_in_order_are_accepted(named):
    check_order("new", [Dependency(schedule_id=one) for one in named], KNOWN)


@pytest.mark.parametrize(
    ("schedule_id", "named", "field", "message"),
    [
        ("new", ["a", "x"], "depends_on[1].schedule_id", "there is no schedule 'x'"),
        ("a", ["a"], "depends_on", "names the schedule itself"),
        ("a", ["b"], "depends_on", "makes a cycle: "),
        ("a", ["c"], "depends_on", "makes a cycle: "),
    ],
)
def test_upstreams_that_are_unknown_or_make_a_cycle_are_refused(schedule_id, named, field, message):
    with pytest.raises(InvalidSchedule, match=message) as refused:
        check_order(schedule_id, [Dependency(schedule_id=one) for one in named], KNOWN)
    assert refused.value.field == field


def test_a_cycle_is_shown_by_who_depends_on_whom():
    with pytest.raises(InvalidSchedule) as refused:
        check_order("a", [Dependency(schedule_id="b")], {"a": (), "b": ("a",)})
    names = refused.value.message.removeprefix("makes a cycle: ").split(" depends on ")
    assert names in (["a", "b", "a"], ["b", "a", "b"])
    with pytest.raises(InvalidSchedule) as refused:
        check_order("a", [Dependency(schedule_id="c")], {"a": (), "b": ("a",), "c": ("b",)})
    names = refused.value.message.removeprefix("makes a cycle: ").split(" depends on ")
    assert {("a", "c"), ("c", "b"), ("b", "a")} == set(itertools.pairwise(names))


def test_a_cycle_is_shown_by_names_where_there_are_any():
    with pytest.raises(InvalidSchedule) as refused:
        check_order("a", [Dependency(schedule_id="b")], {"a": (), "b": ("a",)}, {"b": "backup"})
    shown = refused.value.message.removeprefix("makes a cycle: ").split(" depends on ")
    assert shown in (["a", "'backup' (b)", "a"], ["'backup' (b)", "a", "'backup' (b)"])


def test_what_is_in_order_has_no_cycle():
    assert find_cycle("new", [Dependency(schedule_id="c")], KNOWN) == []
    assert sorted(find_cycle("a", [Dependency(schedule_id="b")], KNOWN)) == ["a", "b"]
