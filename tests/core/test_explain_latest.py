"""Explanations of the last occurrence of a schedule, and what comes after it."""

from dataclasses import replace

import pytest

from noonmark.core import ids
from noonmark.core.explain import explain_latest, latest
from noonmark.core.frozen import evolve
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.expected_rate import ExpectedRate, RateWindow, close, count_start
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.triggers import EventTrigger
from tests.core.explained import ERROR, NOW, check, row, run, step
from tests.core.scheduled import at, every, scheduled

ONE = scheduled()
NO_MORE = "no other time is planned"


def ended(nominal, end, **fields):
    fields = {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "attempt": 1} | fields
    return evolve(row(ONE, nominal, **fields), ended=at(end))


def by_hand(nominal, **fields):
    return evolve(row(ONE, nominal, **fields), id="by-hand", origin=ids.manual("m1"))


@pytest.mark.parametrize(
    ("rows", "which"),
    [
        ([], None),
        ([row(ONE, 400)], None),
        ([row(ONE, 400), ended(200, 201), ended(100, 101)], 1),
        ([row(ONE, 400), ended(200, 201), by_hand(250, phase=Phase.DISPATCHING, attempt=1, started=250)], 2),
        ([ended(200, 201), ended(100, 299)], 1),
        ([row(ONE, 300), ended(200, 201)], 0),
        ([row(ONE, 250, phase=Phase.SUPERSEDED), ended(200, 201)], 1),
        ([ended(400, 290, phase=Phase.CANCELLED, reason=Reason.CANCELLED, attempt=0), ended(200, 201)], 0),
        ([row(ONE, 200, due=350, attempt=1, reason=Reason.RETRY_SCHEDULED), ended(100, 299)], 0),
    ],
)
def test_the_last_is_the_one_with_which_something_happened_last(rows, which):
    assert latest(rows, now=NOW) is (None if which is None else rows[which])


FAILED = "it ran and failed: the target reported a failure, with `ValueError: no disk` (attempt 1 of 1)"


def told(occurrence, *, schedule=ONE, next_run=400, unserved=None):
    runs = [run(occurrence, outcome=Outcome.FAILED, error=ERROR)]
    next_run = None if next_run is None else at(next_run)
    explanation = explain_latest(schedule, occurrence, runs, now=NOW, next_run=next_run, unserved=unserved)
    check(explanation)
    assert explanation.occurrence_id == occurrence.id
    return explanation.summary


@pytest.mark.parametrize(
    ("origin", "came"),
    [
        (ids.TRIGGER, "of"),
        (ids.manual("m1"), "asked for at"),
        (ids.event("e1"), "triggered by an event at"),
        (ids.backfill("b1"), "made up for"),
    ],
)
def test_it_is_shown_with_its_id_its_origin_and_the_next_time(origin, came):
    occurrence = evolve(ended(200, 201, phase=Phase.FAILED, reason=Reason.FAILED), origin=origin)
    which = f"About its last occurrence, `{occurrence.id}`, {came} 2026-11-15 12:03:20 UTC"
    assert told(occurrence) == f"{which}: {FAILED}; it is next due at 2026-11-15 12:06:40 UTC."


@pytest.mark.parametrize(
    ("changes", "declared", "after"),
    [
        ({"phase": SchedulePhase.PAUSED}, {}, "the schedule is paused"),
        ({"phase": SchedulePhase.COMPLETED}, {}, "the schedule is completed"),
        ({}, {"trigger": EventTrigger("up")}, "the next event may trigger it (When up is emitted)"),
        (
            {},
            {"trigger": None, "depends_on": (Dependency(schedule_id="extract"),)},
            "it fires again when all of `extract` have ended",
        ),
        ({}, {"trigger": None}, NO_MORE),
    ],
)
def test_without_a_next_time_it_is_told_what_may_come(changes, declared, after):
    schedule = evolve(ONE, declaration=replace(ONE.declaration, **declared), **changes)
    occurrence = ended(200, 201, phase=Phase.FAILED, reason=Reason.FAILED)
    assert told(occurrence, schedule=schedule, next_run=None).endswith(f": {FAILED}; {after}.")


@pytest.mark.parametrize(("end", "after"), [(None, "it is next due at 2026-11-15 12:06:40 UTC"), (350, NO_MORE)])
def test_a_time_that_has_come_is_not_the_next_one(end, after):
    schedule = scheduled(every(100, end=end))
    due = "it has been due since 2026-11-15 12:05:00 UTC"
    waits = f"{due}, and waits for a node that serves `function:tidy` to claim it"
    explanation = explain_latest(schedule, row(schedule, 300), [], now=NOW, next_run=at(300))
    assert explanation.summary.endswith(f"it has not run yet: {waits}; {after}.")


RATE = ExpectedRate(per=60 * SECOND, at_least=2, at_most=3)
COUNTED = RateWindow(ends=at(340), started=3, succeeded=2)
OFTEN = count_start(RATE, COUNTED, now=NOW).window
RARE = close(RATE, RateWindow(ends=at(280), succeeded=1), now=at(290)).window


@pytest.mark.parametrize(
    ("window", "decision", "words", "counted"),
    [
        (COUNTED, "as_expected", "", (3, 2)),
        (
            OFTEN,
            "too_often",
            (
                "; the schedule ran too often from 2026-11-15 12:04:40 UTC to 2026-11-15 12:05:40 UTC"
                " (4 starts within 60 s; at most 3 are expected)"
            ),
            (4, 2),
        ),
        (
            RARE,
            "too_rare",
            (
                "; the schedule ran too rarely from 2026-11-15 12:03:40 UTC to 2026-11-15 12:04:40 UTC"
                " (1 success within 60 s; at least 2 are expected)"
            ),
            (0, 0),
        ),
        (close(RATE, replace(RARE, succeeded=2), now=at(350)).window, "as_expected", "", (0, 0)),
    ],
)
def test_a_rate_that_is_not_as_expected_is_told(window, decision, words, counted):
    schedule = scheduled(expected_rate=RATE)
    explanation = explain_latest(schedule, row(schedule), (), now=NOW, next_run=None, rate_window=window)
    check(explanation)
    assert explanation.summary.endswith(f"; {NO_MORE}{words}.")
    rate = step(explanation, "rate")
    assert (rate.decision, (rate.facts["started"], rate.facts["succeeded"])) == (decision, counted)
    assert rate.facts.get("reported", {}).get("problem", "as_expected") == decision


def test_without_a_window_the_rate_does_not_apply():
    schedule = scheduled(expected_rate=RATE, phase=SchedulePhase.PAUSED)
    explanation = explain_latest(schedule, row(schedule), (), now=NOW, next_run=None)
    assert step(explanation, "rate").decision == "does_not_apply"


def test_a_schedule_whose_next_run_no_node_can_serve_says_so():
    missed = ended(200, 201, phase=Phase.MISFIRED, reason=Reason.NEWER_FIRE, attempt=0)
    unserved = "no live node serves `function:x`; did you mean `function:y`?"
    said = "no live node serves `function:x` (did you mean `function:y`?)"
    assert told(missed, unserved=unserved).endswith(f" UTC; at present, {said}.")
    assert "no live node" not in told(missed, next_run=None, unserved=unserved)
