"""The runaway guard: documents, what is counted, and when a rule is broken."""

from dataclasses import replace

import pytest

from noonmark.core.admission import Busy, Claim, Place, refused
from noonmark.core.edits import stop_runaway
from noonmark.core.ids import manual
from noonmark.core.instants import from_micros, to_text
from noonmark.core.interruption import runaway_line
from noonmark.core.lifecycle import ENDINGS, Phase, SchedulePhase
from noonmark.core.planner import Snapshot
from noonmark.core.policies.runaway import (
    HOUR,
    Breach,
    Counted,
    Guard,
    RunawayPolicy,
    RunawayRule,
    count_result,
    count_start,
    guard_of,
    is_looser,
    judge_results,
    judge_spend,
    judge_start,
    read_counted,
    read_runaway,
    result_digest,
)
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import Pause, parse_schedule
from noonmark.core.settlement import Delivered, settle
from noonmark.core.system_events import of_runaway
from noonmark.core.triggers import CronTrigger, EventTrigger, IntervalTrigger
from noonmark.testing import factories
from tests.core.reading import read
from tests.core.scheduled import NOON

AGENT = Guard(fires=60, spare=2, factor=5)
USD = 10**9
BREACH = Breach(rule=RunawayRule.FIRES, seen=61, limit=60, since=NOON, text="61 starts")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, None),
        ({}, None),
        ({"max_fires_per_hour": 0}, RunawayPolicy(max_fires_per_hour=0)),
        (
            {"max_fires_per_hour": 9, "max_spend_factor": 2.5, "max_identical_results": 3},
            RunawayPolicy(max_fires_per_hour=9, max_spend_factor=2.5, max_identical_results=3),
        ),
    ],
)
def test_rules_are_written_as_they_are_read(written, expected):
    assert read(read_runaway, {"runaway": written}, "runaway") == (expected, {})
    assert expected is None or expected.to_document() == written


@pytest.mark.parametrize(
    ("written", "field", "problem"),
    [
        (60, "", "must be an object, not 60"),
        ({"max_fires_per_hour": -1}, ".max_fires_per_hour", "must be an integer from 0 to 1,000,000, not -1"),
        ({"max_spend_factor": 0.5}, ".max_spend_factor", "must be 0, or from 1 to 1,000, not 0.5"),
        ({"max_spend_factor": "5"}, ".max_spend_factor", 'must be a number, not "5"'),
        ({"max_identical_results": 1.5}, ".max_identical_results", "must be an integer from 0 to 10,000, not 1.5"),
        (
            {"fires": 1},
            ".fires",
            "unknown field; allowed are max_fires_per_hour, max_identical_results, max_spend_factor",
        ),
    ],
)
def test_what_is_no_rule_is_refused(written, field, problem):
    assert read(read_runaway, {"runaway": written}, "runaway")[1] == {f"runaway{field}": problem}


@pytest.mark.parametrize(
    ("policy", "is_agent", "expected"),
    [
        (None, False, None),
        (None, True, AGENT),
        (RunawayPolicy(max_fires_per_hour=10), False, Guard(fires=10)),
        (RunawayPolicy(max_fires_per_hour=10), True, Guard(fires=10, factor=5)),
        (RunawayPolicy(max_spend_factor=2), False, Guard(factor=2)),
        (RunawayPolicy(max_identical_results=3), True, replace(AGENT, identical=3)),
        (RunawayPolicy(max_fires_per_hour=0, max_spend_factor=0, max_identical_results=0), True, None),
    ],
)
def test_an_agent_has_rules_of_its_own(policy, is_agent, expected):
    assert guard_of(policy, is_agent=is_agent) == expected


def test_a_declaration_has_the_rules_of_its_target():
    def declared(target, **fields):
        document = {"trigger": {"type": "cron", "expression": "@daily"}, "target": target, **fields}
        return parse_schedule(document, now=from_micros(NOON))

    agent, other = {"target_kind": "task", "query": "Go."}, {"target_kind": "function", "function": "work"}
    assert (declared(agent).guard, declared(other).guard) == (AGENT, None)
    assert declared(other, runaway={"max_identical_results": 2}).guard == Guard(identical=2)
    assert "runaway" not in declared(agent).to_document()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, False),
        (RunawayPolicy(max_fires_per_hour=60, max_spend_factor=5), False),
        (RunawayPolicy(max_identical_results=9), False),
        (RunawayPolicy(max_fires_per_hour=61), True),
        (RunawayPolicy(max_fires_per_hour=0), True),
        (RunawayPolicy(max_spend_factor=6), True),
        (RunawayPolicy(max_spend_factor=0), True),
    ],
)
def test_rules_that_leave_an_agent_more_room(policy, expected):
    assert is_looser(policy) is expected


@pytest.mark.parametrize(
    "counted",
    [Counted(), Counted(since=NOON, hour=NOON, starts=3, digest="ab", identical=2, stopped="61 starts")],
)
def test_what_is_counted_survives_being_stored(counted):
    assert read_counted(counted.to_document()) == counted


@pytest.mark.parametrize("damaged", [None, [], {}, {"since": 0, "hour": 0, "starts": "3", "identical": 0}])
def test_a_damaged_count_begins_anew(damaged):
    assert read_counted(damaged) is None


def test_texts_that_are_none_are_dropped():
    assert read_counted(Counted(starts=1).to_document() | {"digest": 7, "stopped": []}) == Counted(starts=1)


def test_starts_count_for_their_hour():
    counted = count_start(count_start(Counted(), at=NOON), at=NOON + HOUR - 1)
    assert (counted.hour, counted.starts) == (NOON, 2)
    assert count_start(counted, at=NOON - 1) == counted  # of an hour that is over
    assert count_start(counted, at=NOON + HOUR) == replace(counted, hour=NOON + HOUR, starts=1)


@pytest.mark.parametrize(
    ("guard", "trigger", "starts", "limit"),
    [
        (AGENT, None, 59, None),
        (AGENT, None, 60, 60),
        (AGENT, EventTrigger("seen"), 60, 60),
        (AGENT, CronTrigger("0 * * * *"), 60, 60),
        (AGENT, CronTrigger("* * * * *"), 60, None),  # as planned
        (AGENT, CronTrigger("* * * * *"), 119, None),
        (AGENT, CronTrigger("* * * * *"), 120, 120),
        (Guard(fires=5), IntervalTrigger(60, start_at=from_micros(NOON)), 59, None),  # never fewer than planned
        (Guard(fires=5), IntervalTrigger(60, start_at=from_micros(NOON)), 60, 60),
        (Guard(fires=5), CronTrigger("0 * * * *"), 5, 5),
        (Guard(factor=5), None, 10**6, None),
    ],
)
def test_a_start_beyond_the_limit_breaks_the_rule(guard, trigger, starts, limit):
    breach = judge_start(guard, Counted(hour=NOON, starts=starts), trigger, at=NOON + 5)
    assert (breach and breach.limit) == limit
    if breach is not None:
        assert (breach.rule, breach.seen, breach.since) == (RunawayRule.FIRES, starts + 1, NOON)
        assert breach.text.startswith(f"{starts + 1} starts in the hour from {to_text(NOON)} on; at most {limit} are")
    assert judge_start(guard, Counted(hour=NOON - HOUR, starts=starts), trigger, at=NOON) is None


@pytest.mark.parametrize(
    ("recent", "past", "limit"),
    [
        (6 * USD, [USD] * 10, 5),
        (5 * USD, [USD] * 10, None),
        (6 * USD, [USD] * 4, None),  # too few hours to know what is usual
        (2 * USD, [USD // 100] * 5, 1),  # five cents would be too strict
        (1 * USD, [USD // 100] * 5, None),
        (20 * USD, [*[USD] * 8, 50 * USD, 50 * USD], None),  # its expensive hours are usual
        (20 * USD, [*[USD] * 9, 50 * USD], 5),
    ],
)
def test_an_hour_is_compared_with_its_past_hours(recent, past, limit):
    breach = judge_spend(AGENT, recent, past, now=NOON)
    assert (breach and breach.limit) == limit
    if breach is not None:
        assert (breach.rule, breach.seen, breach.since) == (RunawayRule.SPEND, recent / USD, NOON - HOUR)
        assert breach.text.startswith(f"it spent ${recent // USD}.00 within an hour; at most ${limit}.00 are allowed")
    assert judge_spend(replace(AGENT, factor=None), recent, past, now=NOON) is None


def test_results_in_a_row():
    counted = Counted(since=NOON)
    for digest, identical in (("a", 1), ("a", 2), (None, 2), ("b", 1), ("b", 2), ("b", 3)):
        counted = count_result(counted, digest)
        assert counted.identical == identical
    assert judge_results(3, counted) is None
    breach = judge_results(2, counted)
    assert (breach.rule, breach.seen, breach.limit, breach.since) == (RunawayRule.RESULTS, 3, 2, NOON)
    assert breach.text == "its last 3 results were the same; at most 2 in a row are allowed"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"session_id": "s1", "text": "done"}, {"session_id": "s2", "text": "done"}, True),
        ({"session_id": "s1", "text": "done"}, {"session_id": "s1", "text": "done!"}, False),
        ("1", 1, False),
        (0, False, False),
    ],
)
def test_results_are_told_apart_by_what_they_say(first, second, is_same):
    assert (result_digest(first) == result_digest(second)) is is_same
    assert len(result_digest(first)) == 32


@pytest.mark.parametrize("nothing", [None, {}, {"session_id": "s1"}])
def test_no_result_has_no_digest(nothing):
    assert result_digest(nothing) is None


@pytest.mark.parametrize("breach", [BREACH, None])
def test_what_runs_away_is_skipped_and_its_schedule_paused_once(breach):
    schedule = factories.schedule()
    claim = Claim(occurrence=factories.occurrence(schedule, manual("a")), schedule=schedule, claimed=NOON)
    end = refused(claim, Busy(place=Place.RUNAWAY, breach=breach, stopped="61 starts", at=NOON))
    assert (end.phase, end.reason) == (Phase.SKIPPED, Reason.PAUSED)
    assert end.reason in ENDINGS[end.phase]
    assert end.facts == {"paused_by": "noonmark", "pause_reason": "61 starts"}
    assert (end.breach, end.pause) == (breach, None)


@pytest.mark.parametrize(
    ("policy", "outcome", "expected"),
    [
        (None, Outcome.COMPLETED, None),
        (RunawayPolicy(max_fires_per_hour=3), Outcome.COMPLETED, None),
        (RunawayPolicy(max_identical_results=3), Outcome.COMPLETED, 3),
        (RunawayPolicy(max_identical_results=3), Outcome.FAILED, None),
    ],
)
def test_only_a_result_counts(policy, outcome, expected):
    schedule = factories.schedule(runaway=policy)
    running = factories.occurrence(schedule, manual("a"), phase=Phase.DISPATCHING, attempt=1, started=NOON)
    settlement = settle(running, schedule, Delivered(outcome=outcome, started=NOON, ended=NOON), node="n")
    assert (settlement.max_identical, settlement.may_pause) == (expected, expected is not None)


def test_it_is_told():
    schedule = factories.schedule(name="digest", schedule_id="digest")
    assert runaway_line(schedule, BREACH) == (
        "digest is paused: 61 starts; `noonmark schedule resume digest` resumes it"
    )
    event = of_runaway(schedule, BREACH)
    assert (event.event_type, event.payload["summary"], event.payload["rule"]) == (
        "schedule.runaway",
        "61 starts",
        "fires_per_hour",
    )
    assert (event.payload["seen"], event.payload["limit"], event.payload["since"]) == (61, 60, to_text(NOON))
    assert event.event_id == of_runaway(schedule, BREACH).event_id
    assert event.event_id != of_runaway(replace(schedule, updated=NOON + HOUR), BREACH).event_id


def test_an_active_schedule_is_paused_and_no_other():
    snapshot = Snapshot(schedule=factories.schedule(), watermark=NOON)
    plan = stop_runaway(snapshot, BREACH, now=NOON)
    assert (plan.schedule.phase, plan.schedule.pause) == (
        SchedulePhase.PAUSED,
        Pause(at=NOON, by="noonmark", reason="61 starts"),
    )
    assert (plan.breach, plan.note.caller, plan.note.operation) == (BREACH, "noonmark", "schedule/pause")
    assert stop_runaway(replace(snapshot, schedule=plan.schedule), BREACH, now=NOON) is None
