"""Explanations of instants: what ran then, or why nothing did."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noonmark.core import ids
from noonmark.core.explain import explain_instant
from noonmark.core.frozen import evolve
from noonmark.core.instants import parse_instant, to_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Pause
from noonmark.core.triggers import CronTrigger, EventTrigger, OnceTrigger
from tests.core.explained import GAP, check, decisions, row, run, step
from tests.core.scheduled import LOOKAHEAD, at, every, moment, read, scheduled

OUTAGE = at(1_230)


def asked(schedule, seconds, *rows, now=OUTAGE, runs=(), admitted=0):
    explanation = explain_instant(schedule, at(seconds), now=now, rows=rows, runs=runs, admitted=admitted)
    check(explanation)
    return explanation


def ended(schedule, nominal, **fields):
    fields = {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "attempt": 1} | fields
    return row(schedule, nominal, **fields)


def missed(schedule):
    return row(schedule, phase=Phase.MISFIRED, reason=Reason.LATE, **GAP)


def test_the_row_of_that_very_time_is_explained():
    schedule = scheduled()
    done = ended(schedule, 100)
    explanation = asked(schedule, 100, ended(schedule, 200), done, ended(schedule, 0), runs=[run(done, 101, 102)])
    assert explanation.occurrence_id == done.id
    assert explanation.summary == "It ran: node `n1` started it at 2026-11-15 12:01:41 UTC, and it took 1 second."


def test_a_time_within_an_outage_is_counted_in_the_row_of_the_gap():
    schedule = scheduled()
    outage = plan(read(schedule, -100), now=OUTAGE, lookahead=LOOKAHEAD)
    rows = [*reversed(outage.planned), *outage.closed]
    for seconds in (0, 500, 1_100):
        explanation = asked(schedule, seconds, *rows)
        assert explanation.summary == (
            "It did not run: 12 fires from 2026-11-15 12:00:00 UTC to 2026-11-15 12:18:20 UTC were missed because no "
            "node took them up in time, and the misfire policy `skip` drops what is later than 1 minute."
        )
        assert (explanation.phase, explanation.occurrence_id) == ("misfired", outage.closed[0].id)
        assert step(explanation, "misfire").facts["missed_count"] == 12
        assert parse_instant(step(explanation, "trigger").facts["nominal_at"]) == at(seconds)


def test_between_the_missed_ones_the_trigger_names_nothing():
    schedule = scheduled()
    explanation = asked(schedule, 550, missed(schedule))
    assert explanation.summary == (
        "Nothing ran at 2026-11-15 12:09:10 UTC: the trigger does not name that time (Every 1 minute 40 seconds, from "
        "2026-11-15 12:00:00 UTC); the one before it is 2026-11-15 12:08:20 UTC, the next one is "
        "2026-11-15 12:10:00 UTC."
    )
    assert decisions(explanation)["trigger"] == "not_named"
    assert step(explanation, "trigger").facts["next_at"] == "2026-11-15T12:10:00Z"
    assert (explanation.occurrence_id, explanation.phase) == (None, None)


def test_what_an_earlier_rule_missed_is_shown_even_where_the_present_one_is_silent():
    schedule = evolve(scheduled(revision=2), anchored=OUTAGE)
    explanation = asked(schedule, 550, evolve(missed(schedule), revision=1))
    assert explanation.summary.startswith("It did not run: 12 fires ")
    assert "the misfire policy of that time" in explanation.summary


def test_an_edit_that_keeps_the_times_leaves_no_doubt_which_were_named():
    schedule = scheduled(revision=2)
    gap = evolve(missed(schedule), revision=1)
    assert decisions(asked(schedule, 550, gap))["trigger"] == "not_named"
    assert asked(schedule, 500, gap).occurrence_id == gap.id


SINGLE = {"missed_count": 1, "missed_first": 500, "missed_last": 500}
INNER = {"missed_count": 3, "missed_first": 400, "missed_last": 600}
BY_ROWS = {
    "what the trigger named and somebody cancelled ahead": (500, {"phase": Phase.CANCELLED}),
    "what waits": (500, {"phase": Phase.PENDING, "waiting_for": Reason.QUEUED}),
    "what was caught up": (500, {"caught_up": 1_230}),
    "a misfire of its own": (500, {"phase": Phase.MISFIRED, "reason": Reason.TARGET_MISSING, **SINGLE}),
    "a backfill": (500, {"origin": ids.backfill("b1"), "id": "occ_again"}),
    "what was asked for by hand": (500, {"origin": ids.manual("m1"), "id": "occ_by_hand"}),
    "what an event set off": (500, {"origin": ids.event("e1"), "id": "occ_event"}),
    "a gap within the gap": (400, {"phase": Phase.SKIPPED, "reason": Reason.PAUSED, **INNER}),
}


@pytest.mark.parametrize(("nominal", "fields"), BY_ROWS.values(), ids=BY_ROWS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_gap_that_reaches_over_the_time_of_another_row_leaves_that_to_it(nominal, fields, is_first):
    schedule = scheduled()
    other = ended(schedule, nominal, **fields)
    rows = [missed(schedule), other] if is_first else [other, missed(schedule)]
    assert asked(schedule, 500, *rows).occurrence_id == other.id
    for seconds in (300, 700):
        assert asked(schedule, seconds, *rows).occurrence_id == missed(schedule).id, "the gap has its other times"


def test_a_gap_leaves_its_first_time_to_what_made_up_for_it():
    schedule = scheduled()
    again = ended(schedule, 0, origin=ids.backfill("b1"), id="occ_again")
    assert asked(schedule, 0, again, missed(schedule)).occurrence_id == again.id
    assert asked(schedule, 0, missed(schedule)).occurrence_id == missed(schedule).id


def test_of_what_was_asked_for_at_one_time_the_last_is_reported():
    schedule = scheduled()
    first, second = (
        ended(schedule, 100, origin=ids.backfill(key), id=f"occ_{key}", due=due)
        for key, due in (("b", 900), ("a", 950))
    )
    for rows in ([first, second], [second, first]):
        assert asked(schedule, 100, *rows, missed(schedule)).occurrence_id == second.id


def test_what_an_edit_moved_away_is_not_in_a_gap_that_reaches_over_it():
    schedule = scheduled(revision=3)
    moved = ended(schedule, 550, phase=Phase.SUPERSEDED, reason=Reason.EDITED, attempt=0, revision=1)
    assert asked(schedule, 550, evolve(missed(schedule), revision=2), moved).occurrence_id == moved.id


def test_the_missed_before_a_caught_up_one_are_reported_with_it():
    schedule = scheduled(misfire_policy=misfire.CatchUpAll(limit=2))
    late = plan(read(schedule, -100), now=OUTAGE, lookahead=LOOKAHEAD)
    caught_up = next(row for row in late.planned if row.caught_up is not None)
    running = evolve(caught_up, phase=Phase.DISPATCHING, attempt=1)
    explanation = explain_instant(schedule, running.nominal, now=OUTAGE, rows=[running, *late.closed])
    assert step(explanation, "misfire").facts["missed_before"]["missed_count"] == 10
    assert step(explanation, "misfire").decision == "caught_up"


def test_what_was_asked_for_at_that_time_is_explained():
    schedule = scheduled()
    for seconds in (50, 100):
        by_hand = ended(schedule, seconds, origin=ids.manual("m1"))
        assert step(asked(schedule, seconds, ended(schedule, 0), by_hand), "trigger").decision == "asked_for"


def test_the_trigger_comes_before_what_was_asked_for():
    schedule = scheduled()
    again = ended(schedule, 0, origin=ids.backfill("b1"), id="occ_again", due=900)
    for own in (ended(schedule, 0), ended(schedule, 0, phase=Phase.SKIPPED, reason=Reason.OVERLAP, attempt=0)):
        assert asked(schedule, 0, again, own).occurrence_id == own.id


@pytest.mark.parametrize(
    ("between", "is_told"),
    [
        ({}, False),
        ({"phase": Phase.SKIPPED, "reason": Reason.OVERLAP}, False),
        ({"caught_up": 1_200}, False),
        ({"caught_up": 1_230}, True),
    ],
)
def test_only_what_was_missed_just_before_a_caught_up_one_is_shown_with_it(between, is_told):
    schedule = scheduled(misfire_policy=misfire.CatchUpAll(limit=2))
    caught_up = ended(schedule, 1_300, caught_up=1_230)
    explanation = asked(schedule, 1_300, caught_up, ended(schedule, 1_200, **between), missed(schedule), now=at(1_400))
    assert ("missed_before" in step(explanation, "misfire").facts) is is_told


def test_a_gap_that_reaches_over_a_caught_up_one_does_not_lie_before_it():
    schedule = scheduled(misfire_policy=misfire.CatchUpAll(limit=2))
    explanation = asked(schedule, 500, ended(schedule, 500, caught_up=1_230), missed(schedule))
    assert "missed_before" not in step(explanation, "misfire").facts


@pytest.mark.parametrize(("started", "ended_at"), [(101, 160), (101, None), (150, 150)])
def test_what_was_running_then_is_reported(started, ended_at):
    schedule = scheduled()
    long = ended(schedule, 100) if ended_at else row(schedule, 100, phase=Phase.DISPATCHING, attempt=1)
    explanation = asked(schedule, 150, ended(schedule, 0), long, runs=[run(long, started, ended_at)])
    assert explanation.occurrence_id == long.id
    assert explanation.summary.startswith("About the occurrence of 2026-11-15 12:01:40 UTC: it ")


@pytest.mark.parametrize(("started", "ended_at"), [(101, 149), (151, 160)])
def test_what_ran_at_another_time_is_not(started, ended_at):
    schedule = scheduled()
    other = ended(schedule, 100)
    assert asked(schedule, 150, other, runs=[run(other, started, ended_at)]).summary.startswith("Nothing ran at ")


@pytest.mark.parametrize("fields", [{"due": 150, "first_due": 130}, {"due": 130, "first_due": 150}])
def test_what_was_due_then_is_reported(fields):
    schedule = scheduled()
    moved = row(schedule, 100, **fields)
    assert asked(schedule, 150, moved, now=at(120)).occurrence_id == moved.id
    superseded = evolve(moved, phase=Phase.SUPERSEDED, reason=Reason.EDITED)
    assert asked(schedule, 150, superseded, now=at(120)).occurrence_id is None


def test_a_run_of_another_time_says_nothing_of_one_that_the_trigger_names():
    schedule = scheduled()
    long = ended(schedule, 0)
    explanation = asked(schedule, 100, long, runs=[run(long, 1, 500)], now=at(101))
    assert explanation.summary.startswith("It has not run yet: it has been due since 2026-11-15 12:01:40 UTC")


def test_what_an_edit_moved_away_is_reported():
    schedule = evolve(scheduled(revision=2), anchored=at(20))
    moved = row(schedule, 50, revision=1, phase=Phase.SUPERSEDED, reason=Reason.EDITED)
    explanation = asked(schedule, 50, moved)
    assert explanation.summary == ("It did not run: the schedule was edited, and its new rule does not name this time.")


def test_before_the_last_edit_of_the_trigger_another_rule_was_in_force():
    schedule = evolve(scheduled(revision=2), anchored=at(150))
    explanation = asked(schedule, 100)
    assert explanation.summary == (
        "Nothing ran at 2026-11-15 12:01:40 UTC: nothing is recorded, and another rule was in force then; the present "
        "one speaks of times after 2026-11-15 12:02:30 UTC."
    )
    assert decisions(explanation)["trigger"] == "edited"


START = {"trigger": every(100, start=500, end=900)}


@pytest.mark.parametrize(
    ("schedule", "seconds", "decision", "told"),
    [
        (scheduled(), -100, "before_creation", "the schedule was created at 2026-11-15 12:00:00 UTC"),
        (scheduled(**START), 400, "before_start", "the trigger starts at 2026-11-15 12:08:20 UTC"),
        (scheduled(**START), 1_000, "after_end", "the trigger ended at 2026-11-15 12:15:00 UTC"),
        (
            evolve(scheduled(phase=SchedulePhase.DELETED), deleted=at(50)),
            100,
            "deleted",
            "the schedule was deleted at 2026-11-15 12:00:50 UTC",
        ),
        (
            evolve(scheduled(phase=SchedulePhase.COMPLETED, max_runs=2), updated=at(150)),
            200,
            "completed",
            "the schedule was completed by 2026-11-15 12:02:30 UTC: it may run 2 times",
        ),
        (
            evolve(scheduled(OnceTrigger(moment(100)), phase=SchedulePhase.COMPLETED), updated=at(101)),
            200,
            "completed",
            "the schedule was completed by 2026-11-15 12:01:41 UTC: nothing more was to come",
        ),
        (
            evolve(scheduled(phase=SchedulePhase.COMPLETED, max_runs=1), updated=at(700)),
            500,
            "completed",
            "the schedule was completed by 2026-11-15 12:11:40 UTC: it may run once",
        ),
    ],
)
def test_outside_the_life_of_the_schedule_nothing_runs(schedule, seconds, decision, told):
    explanation = asked(schedule, seconds, ended(schedule, 0))
    assert explanation.summary.endswith(f" UTC: {told}.")
    assert step(explanation, "bounds").decision == decision
    assert {one.decision for one in explanation.steps[3:]} <= {"not_reached", "does_not_apply"}


def test_one_that_was_accepted_just_after_its_time_is_within_the_life_of_its_schedule():
    schedule = scheduled(OnceTrigger(moment(-10)))
    assert step(asked(schedule, -10, now=at(5)), "bounds").decision == "within"
    assert step(asked(schedule, -11, now=at(5)), "bounds").decision == "before_creation"


def test_the_ends_of_what_a_trigger_names_are_reported():
    schedule = scheduled(OnceTrigger(moment(100)))
    assert asked(schedule, 50, now=at(20)).summary.endswith(
        "; none before it, the next one is 2026-11-15 12:01:40 UTC."
    )
    after = asked(schedule, 150, ended(schedule, 100), now=at(120))
    assert after.summary.startswith("Nothing will run at ")
    assert after.summary.endswith("; the one before it is 2026-11-15 12:01:40 UTC, none after it.")


def test_a_time_before_the_rule_was_in_force_is_not_shown_as_the_one_before():
    schedule = evolve(scheduled(every(100), revision=2), anchored=at(120))
    assert "; none before it, the next one is " in asked(schedule, 150).summary


def test_a_schedule_that_waits_for_events_has_no_times():
    explanation = asked(scheduled(EventTrigger("uploaded")), 100)
    assert explanation.summary == (
        "Nothing ran at 2026-11-15 12:01:40 UTC: the schedule waits for events (When uploaded is emitted), and no "
        "event triggered it then."
    )


def test_a_schedule_that_follows_others_has_no_times():
    one = scheduled(depends_on=(Dependency(schedule_id="extract"), Dependency(schedule_id="load")))
    one = evolve(one, declaration=replace(one.declaration, trigger=None))
    explanation = asked(one, 100)
    assert explanation.summary == (
        "Nothing ran at 2026-11-15 12:01:40 UTC: the schedule has no times of its own; it fires when all of `extract`, "
        "`load` have ended, which was not then."
    )


def test_a_time_to_come_is_shown_as_it_would_be_planned():
    schedule = scheduled(every(100, jitter=40))
    explanation = asked(schedule, 2_000)
    assert explanation.summary.startswith("It has not run yet: it is due at 2026-11-15 12:33:")
    assert (explanation.occurrence_id, explanation.phase) == (None, None)
    assert step(explanation, "trigger").facts["is_recorded"] is False
    assert decisions(explanation) == {
        "trigger": "named",
        "bounds": "within",
        "pause": "not_paused",
        "misfire": "not_yet",
        "overlap": "not_yet",
        "claim": "not_yet",
        "runs": "not_yet",
    }


@pytest.mark.parametrize(
    ("seconds", "until", "is_said"), [(210, None, True), (210, 300, True), (190, None, False), (310, 300, False)]
)
def test_a_pause_is_named_at_times_that_the_trigger_does_not_name(seconds, until, is_said):
    pause = Pause(at=at(200), by="ada", reason="maint", until=None if until is None else at(until))
    schedule = replace(scheduled(), phase=SchedulePhase.PAUSED, updated=at(200), pause=pause)
    summary = asked(schedule, seconds).summary
    assert "the trigger does not name that time" in summary
    words = ". Besides, the schedule has been paused since 2026-11-15 12:03:20 UTC by `ada` (maint)"
    assert (words in summary) is is_said


@pytest.mark.parametrize(("seconds", "lead"), [(1_200, "Nothing ran"), (1_300, "Nothing will run")])
def test_while_it_is_paused_nothing_runs(seconds, lead):
    schedule = evolve(scheduled(phase=SchedulePhase.PAUSED), updated=at(150))
    for rows in ([ended(schedule, 100)], []):
        explanation = asked(schedule, seconds, *rows)
        assert explanation.summary.startswith(f"{lead} at ")
        assert explanation.summary.endswith(
            ": the schedule is paused; what it names meanwhile is counted as skipped when it is resumed."
        )
        assert decisions(explanation)["pause"] == "paused"


def test_fires_that_are_not_planned_yet_are_shown_with_what_the_policy_says():
    for policy, fate in ((misfire.Skip(), "drops it"), (misfire.CatchUpAll(), "decides whether it still runs")):
        schedule = scheduled(misfire_policy=policy)
        explanation = asked(schedule, 1_000, row(schedule, 100))
        assert f" {fate} as soon as a node plans the schedule again" in explanation.summary
        assert decisions(explanation)["misfire"] == "late"


def test_when_it_has_run_as_often_as_it_may_nothing_more_is_named():
    schedule = scheduled(max_runs=2)
    by_hand = ended(schedule, 50, origin=ids.manual("m1"))
    running = row(schedule, 200, phase=Phase.DISPATCHING, attempt=1)
    explanation = asked(schedule, 300, running, ended(schedule, 100), by_hand)
    assert explanation.summary == (
        "Nothing ran at 2026-11-15 12:05:00 UTC: the schedule may run 2 times, and has done so."
    )
    assert decisions(explanation)["limits"] == "max_runs_reached"
    assert decisions(explanation)["overlap"] == "not_reached"
    assert asked(schedule, 300, running, by_hand).summary.startswith("It has not run yet: ")


@pytest.mark.parametrize(
    ("admitted", "rows", "seconds", "told"),
    [
        (0, [], 200, None),
        (0, [], 300, "does so before that time"),
        (1, [], 200, "does so before that time"),
        (2, [], 100, "has done so"),
        # What runs already is counted, though its time has yet to come.
        (1, [{"nominal": 100, "phase": Phase.DISPATCHING, "attempt": 1}], 200, None),
        # What is due and has not begun comes first.
        (1, [{"nominal": 0}], 100, "does so before that time"),
        (1, [{"nominal": 0, "origin": ids.manual("m1")}], 100, None),
    ],
)
def test_a_time_to_come_for_which_no_run_is_left(admitted, rows, seconds, told):
    schedule = scheduled(max_runs=2)
    kept = [row(schedule, fields.pop("nominal"), **fields) for fields in map(dict, rows)]
    explanation = asked(schedule, seconds, *kept, now=at(50), admitted=admitted)
    if told is None:
        assert explanation.summary.startswith("It has not run yet: ")
        return
    assert explanation.summary.startswith("Nothing will run at ")
    assert explanation.summary.endswith(f": the schedule may run 2 times, and {told}.")
    assert step(explanation, "limits").decision == "max_runs_reached"
    assert step(explanation, "limits").facts["runs_so_far"] == admitted


@pytest.mark.parametrize("phase", [SchedulePhase.ACTIVE, SchedulePhase.PAUSED, SchedulePhase.DELETED])
def test_what_is_not_kept_any_more_is_shown_as_such(phase):
    schedule = evolve(scheduled(phase=phase), updated=at(1_000))
    kept = [ended(schedule, 900), ended(schedule, 800)]
    explanation = asked(schedule, 500, *kept)
    assert explanation.summary == (
        "What became of 2026-11-15 12:08:20 UTC is not known: no record of it is kept any more; ended occurrences are "
        "kept for some time, and only so many of a schedule."
    )
    assert step(explanation, "runs").decision == "forgotten"
    assert step(explanation, "runs").facts["oldest_kept"] == "2026-11-15T12:13:20Z"
    assert {one.decision for one in explanation.steps[3:-2]} <= {"not_known", "does_not_apply"}
    assert step(asked(schedule, 500), "runs").decision == "forgotten"
    assert "oldest_kept" not in step(asked(schedule, 500), "runs").facts
    edited = asked(evolve(schedule, revision=2), 500, *kept)
    assert edited.summary.endswith(", or its declaration of then, which an edit has changed since, named nothing.")


def test_a_schedule_that_was_never_changed_forgets_as_well():
    schedule = scheduled()
    assert step(asked(schedule, 500), "runs").decision == "forgotten"
    assert step(asked(schedule, 500, row(schedule, 1_300)), "runs").decision == "forgotten"


def test_what_was_cancelled_ahead_says_nothing_of_the_times_before_it():
    schedule = evolve(scheduled(phase=SchedulePhase.PAUSED), updated=at(50))
    ahead = row(schedule, 400, phase=Phase.CANCELLED, reason=Reason.CANCELLED)
    for now in (at(250), at(500)):
        assert decisions(asked(schedule, 200, ahead, ended(schedule, 0), now=now))["pause"] == "paused"
    active = scheduled()
    assert decisions(asked(active, 200, ahead, ended(active, 100), now=at(201)))["claim"] == "due"


def berlin(expression, **fields):
    return scheduled(CronTrigger(expression, "Europe/Berlin", **fields), created=-400 * 86_400)


GAP_HOUR = "on 2026-03-29 in Europe/Berlin, where the clock jumps from 02:00 to 03:00"
MOVED = "; the fire moved to 03:00, which is 2026-03-29 01:00:00 UTC"
ONCE = "comes twice on 2026-10-25 in Europe/Berlin, and fires only the"


@pytest.mark.parametrize(
    ("schedule", "instant", "decision", "told"),
    [
        (berlin("30 2 * * *"), "2026-03-29T01:30:00Z", "moved", f"02:30 does not exist {GAP_HOUR}{MOVED}."),
        (
            berlin("30 2 * * *", dst={"gap": "skip"}),
            "2026-03-29T01:30:00Z",
            "skipped",
            f"02:30 does not exist {GAP_HOUR}; nothing fires for it.",
        ),
        (
            berlin("*/30 2 * * *"),
            "2026-03-29T01:30:00Z",
            "skipped",
            f"02:30 does not exist {GAP_HOUR}; nothing fires for it.",
        ),
        (berlin("30 2 * * *"), "2026-10-25T01:30:00Z", "second_pass", f"02:30 {ONCE} first time."),
        (
            berlin("30 2 * * *", dst={"fold": "second"}),
            "2026-10-25T00:30:00Z",
            "first_pass",
            f"02:30 {ONCE} second time.",
        ),
    ],
)
def test_a_change_of_the_clock_is_told_where_it_is_the_reason(schedule, instant, decision, told):
    explanation = explain_instant(schedule, parse_instant(instant), now=at(0))
    check(explanation)
    assert explanation.summary.endswith(f" UTC: {told}")
    assert decisions(explanation)["dst"] == decision
    assert decisions(explanation)["trigger"] == "not_named"
    assert step(explanation, "dst").facts["timezone"] == "Europe/Berlin"
    assert "previous_at" in step(explanation, "trigger").facts


def test_what_became_of_a_fire_that_was_moved_is_reported():
    one = berlin("30 2 * * *")
    moved = (parse_instant("2026-03-29T01:00:00Z") - at(0)) // 1_000_000
    explanation = explain_instant(one, parse_instant("2026-03-29T01:30:00Z"), now=at(0), rows=[ended(one, moved)])
    assert explanation.summary.endswith(f"{MOVED}, and that occurrence is `completed`.")


@pytest.mark.parametrize(
    ("expression", "instant"),
    [
        ("30 2 * * *", "2026-03-29T01:45:00Z"),  # in what was jumped over, but no time of the trigger
        ("30 2 * * *", "2026-10-25T01:45:00Z"),  # in the repeated hour, likewise
        ("30 2 * * *", "2026-03-29T01:30:00.5Z"),  # no whole second
        ("30 2 * * *", "2026-03-29T02:30:00Z"),  # after the hour
    ],
)
def test_a_change_of_the_clock_is_not_told_where_it_is_not_the_reason(expression, instant):
    explanation = explain_instant(berlin(expression), parse_instant(instant), now=at(0))
    check(explanation)
    assert "the trigger does not name that time" in explanation.summary
    assert step(explanation, "dst").decision == "does_not_apply"


def test_at_the_ends_of_time_there_is_no_wall_clock():
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for instant in (first, last):
        one = evolve(berlin("* * * * *"), created=to_micros(first))
        explanation = explain_instant(one, to_micros(instant), now=at(0))
        check(explanation)
