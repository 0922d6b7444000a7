"""Documents of occurrences: their last run, their end, their failure, and the terms in force for them."""

from dataclasses import replace
from typing import get_args

import pytest

from noonmark.core.ids import manual
from noonmark.core.instants import parse_instant
from noonmark.core.lifecycle import ENDINGS, Phase
from noonmark.core.planner import occurrence
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.operations.models import answers
from noonmark.operations.serializers import CLASSES, TERMS, failure_class, failure_detail, occurrence_document
from noonmark.testing import factories
from tests.operations.answers import check_answer
from tests.operations.harness import REPORT, Harness


@pytest.fixture(params=["memory://", "sqlite"])
def harness(request, tmp_path):
    return Harness(request.param if request.param == "memory://" else f"sqlite:///{tmp_path}/harness.db")


def both(harness, made):
    """The newest occurrence that is not merely planned, as it is told in a list and by itself."""
    listed = harness("schedule/occurrences", schedule_id=made["schedule_id"])["occurrences"]
    first = next(one for one in listed if one["origin"] != "trigger" or one["reason"] is not None)
    answer = harness("occurrence/get", occurrence_id=first["occurrence_id"])
    assert first == answer
    return answer


def test_one_that_has_ended_tells_its_last_run_and_its_end(harness):
    schedule = harness.create()
    harness.pass_by(60)
    told = both(harness, schedule)
    [run] = harness("occurrence/runs", occurrence_id=told["occurrence_id"])["runs"]
    assert (told["phase"], told["attempt_count"], told["run_id"]) == ("completed", 1, run["run_id"])
    assert told["node"] == told["claimed_by"] == run["node"]
    assert told["started_at_utc"] == told["dispatched_at_utc"] == run["started_at_utc"] == "2026-03-01T12:01:00Z"
    assert told["completed_at_utc"] == "2026-03-01T12:01:00Z"
    assert (told["failure_class"], told["failure_detail"]) == (None, None)
    assert told["delivery_correlation_id"] == told["occurrence_id"]
    check_answer(answers.Occurrence, told)


@pytest.mark.parametrize(("early", "shown"), [(15_000, "12:00:00Z"), (-15_000, "12:00:00.015000Z")])
def test_one_that_runs_began_no_earlier_than_it_was_due(early, shown):
    schedule = factories.schedule("tidy")
    due = parse_instant("2026-03-01T12:00:00Z")
    row = occurrence(schedule, due, due)
    told = occurrence_document(replace(row, phase=Phase.DISPATCHING, attempt=1, node="n1", started=due - early))
    assert told["started_at_utc"] == told["dispatched_at_utc"] == f"2026-03-01T{shown}"


def test_one_that_waits_has_no_run_and_no_end(harness):
    schedule = harness.create()
    [told] = harness("schedule/occurrences", schedule_id=schedule["schedule_id"])["occurrences"]
    for name in ("run_id", "node", "claimed_by", "started_at_utc", "dispatched_at_utc", "completed_at_utc"):
        assert told[name] is None, name
    assert (told["attempt_count"], told["failure_class"], told["failure_detail"]) == (0, None, None)
    check_answer(answers.Occurrence, told)


def test_a_failure_is_shown_with_its_class_also_before_the_next_attempt(harness):
    schedule = harness.create(retry_policy={"max_attempts": 2, "backoff_seconds": 5})
    harness.answers += [ValueError("no paper"), KeyError("no ink")]
    answer = harness("schedule/run", schedule_id=schedule["schedule_id"])
    harness.driver.run_due()
    between = both(harness, schedule)
    assert (between["phase"], between["run_id"], between["completed_at_utc"]) == ("pending", None, None)
    assert (between["failure_class"], between["failure_detail"]) == ("runtime_rejected", "ValueError: no paper")
    harness.pass_by(10)
    after = harness("occurrence/get", occurrence_id=answer["occurrence_id"])
    assert (after["phase"], after["attempt_count"]) == ("failed", 2)
    assert (after["failure_class"], after["failure_detail"]) == ("runtime_rejected", "KeyError: 'no ink'")
    assert after["run_id"] == harness("occurrence/runs", occurrence_id=answer["occurrence_id"])["runs"][0]["run_id"]


def test_the_terms_are_those_of_the_present_declaration_until_it_is_edited(harness):
    schedule = harness.create(misfire_policy={"type": "skip", "grace_seconds": 5}, missing_target_policy="skip")
    harness("schedule/run", schedule_id=schedule["schedule_id"], overlap="allow")
    harness.driver.run_due()
    told = both(harness, schedule)
    assert (told["trigger_snapshot"], told["target_snapshot"]) == (schedule["trigger"], schedule["target"])
    assert (told["misfire_policy"], told["missing_target_policy"]) == (schedule["misfire_policy"], "skip")
    assert (told["overlap_policy"], schedule["overlap_policy"]) == ("allow", "skip")
    harness("schedule/update", schedule_id=schedule["schedule_id"], max_runs=5)
    told = both(harness, schedule)
    assert [told[name] for name in TERMS] == [None, None, None, "allow", None]
    check_answer(answers.Occurrence, told)


def test_a_large_target_is_shown_by_the_occurrence_alone(harness):
    schedule = harness.create(target={**REPORT, "payload": "x" * 5_000})
    [listed] = harness("schedule/occurrences", schedule_id=schedule["schedule_id"])["occurrences"]
    alone = harness("occurrence/get", occurrence_id=listed["occurrence_id"])
    assert (listed["target_snapshot"], alone["target_snapshot"]) == (None, schedule["target"])
    assert listed["trigger_snapshot"] == alone["trigger_snapshot"] == schedule["trigger"]


@pytest.mark.parametrize(("revision", "expected"), [(2, 2), (3, None), (1, None)])
def test_what_an_edit_took_away_tells_which_as_long_as_it_was_the_last_one(revision, expected):
    of = factories.schedule()
    occurrence = factories.occurrence(of, manual("a"), phase=Phase.SUPERSEDED, reason=Reason.EDITED)
    told = occurrence_document(occurrence, replace(of, revision=revision))
    assert told["superseded_by_revision"] == expected
    assert occurrence_document(occurrence)["superseded_by_revision"] is None


def test_what_steers_tells_as_much_as_who_looks(harness):
    schedule = harness.create()
    of = {"schedule_id": schedule["schedule_id"]}
    answer = harness("schedule/run", **of)
    assert answer == harness("occurrence/get", occurrence_id=answer["occurrence_id"])
    assert answer["target_snapshot"] == schedule["target"]
    cancelled = harness("occurrence/cancel", occurrence_id=answer["occurrence_id"])
    assert cancelled == harness("occurrence/get", occurrence_id=answer["occurrence_id"])
    assert (cancelled["phase"], cancelled["completed_at_utc"]) == ("cancelled", "2026-03-01T12:00:00Z")
    harness.pass_by(60)
    again = harness("schedule/backfill", **of, **{"from": "2026-03-01T12:01:00Z", "to": "2026-03-01T12:01:00Z"})
    assert again["occurrences"][0]["trigger_snapshot"] == schedule["trigger"]


WISHES = {
    Reason.SUCCEEDED,
    Reason.CANCELLED,
    Reason.REPLACED,
    Reason.WINDOW_CLOSED,
    Reason.DELETED,
    Reason.DEPENDENCY_FAILED,
    Reason.DEPENDENCY_TIMED_OUT,
    Reason.PAUSED,
    Reason.HALTED,
    Reason.MAX_RUNS_REACHED,
    Reason.APPROVAL_DENIED,
    Reason.APPROVAL_EXPIRED,
    Reason.LATE,
    Reason.NEWER_FIRE,
    Reason.CATCH_UP_LIMIT,
    Reason.EDITED,
}


def test_every_end_has_a_class_or_is_not_a_failure():
    occurrence = factories.occurrence(factories.schedule(), manual("a"))
    known = get_args(answers.FailureClass)
    for phase, reasons in ENDINGS.items():
        for reason in reasons:
            ended = replace(occurrence, phase=phase, reason=reason)
            found = failure_class(ended, None)
            assert (found is None) == (reason in WISHES), reason
            assert found is None or found in known
            assert failure_detail(ended, None) == (None if found is None else reason.sentence)
    assert set(CLASSES.values()) <= set(known)


@pytest.mark.parametrize(
    ("route", "phase", "reason", "outcome", "expected"),
    [
        ("http", Phase.PENDING, Reason.RETRY_SCHEDULED, Outcome.DELIVERY_FAILED, "transport_error"),
        ("http", Phase.PENDING, Reason.RETRY_SCHEDULED, Outcome.TIMED_OUT, "runtime_rejected"),
        ("http", Phase.DELIVERY_FAILED, Reason.ATTEMPTS_EXHAUSTED, None, "transport_error"),
        ("http", Phase.FAILED, Reason.ATTEMPTS_EXHAUSTED, Outcome.FAILED, "runtime_rejected"),
        ("mob", Phase.FAILED, Reason.FAILED, Outcome.FAILED, "mob_rejected"),
        ("mob", Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE, Outcome.DELIVERY_FAILED, "transport_error"),
        ("http", Phase.PENDING, Reason.LEASE_LOST, Outcome.LEASE_LOST, "lease_lost"),
        ("http", Phase.PENDING, None, None, None),
    ],
)
def test_the_class_of_an_attempt_is_that_of_its_outcome(route, phase, reason, outcome, expected):
    occurrence = factories.occurrence(factories.schedule(), manual("a"), route=route, phase=phase, reason=reason)
    run = Run(id="r", occurrence_id=occurrence.id, attempt=1, node="n", started=0, ended=1, outcome=outcome)
    assert failure_class(occurrence, run) == expected
