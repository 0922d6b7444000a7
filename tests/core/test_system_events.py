"""What Noonmark tells of itself: which facts there are, and what each says."""

from dataclasses import replace

import pytest

from noonmark.core import system_events
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Standing
from noonmark.core.budgets.spend import Amount
from noonmark.core.ids import TRIGGER, manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.schedule import AuditEntry
from noonmark.core.system_events import ENDS, SystemEvent, of_budget, of_lost_node, of_occurrence, of_schedule
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

JOB = factories.schedule("job", name="nightly", labels={"team": "data"})


def ended(phase=Phase.FAILED, reason=Reason.ATTEMPTS_EXHAUSTED, *, origin=TRIGGER, **changes):
    return factories.occurrence(JOB, origin, phase=phase, reason=reason, **{"attempt": 3, **changes})


def run(error="Traceback (most recent call last):\n  ..\nValueError: no such table\n"):
    return Run(
        id="r", occurrence_id="o", attempt=3, node="n1", started=NOW, ended=NOW, outcome=Outcome.FAILED, error=error
    )


def test_every_end_but_that_of_an_edit_is_reported():
    assert set(ENDS) == FINAL - {Phase.SUPERSEDED}
    assert all(fact == f"occurrence.{phase}" for phase, fact in ENDS.items())


def test_a_failure_says_what_an_alert_needs():
    explanation = of_occurrence(SystemEvent.FAILED, JOB, ended(detail='{"attempt": 3, "max_attempts": 3}'), run=run())
    assert (explanation.event_type, explanation.source) == ("occurrence.failed", "noonmark")
    assert explanation.payload == {
        "occurrence_id": ended().id,
        "schedule_id": "schedule-of-job",
        "schedule_name": "nightly",
        "labels": {"team": "data"},
        "user": "ada",
        "target_kind": "function",
        "origin": "trigger",
        "phase": "failed",
        "reason": "attempts_exhausted",
        "summary": "The attempt failed, and it was the last one allowed.",
        "detail": {"attempt": 3, "max_attempts": 3},
        "nominal_at": "2030-03-17T17:47:00Z",
        "due_at": "2030-03-17T17:47:00Z",
        "attempt": 3,
        "retry_at": None,
        "late_seconds": None,
        "expected_seconds": None,
        "waited_for": None,
        "missed_count": 0,
        "missed_from": None,
        "missed_to": None,
        "error": "ValueError: no such table",
        "error_text": "Traceback (most recent call last):\n  ..\nValueError: no such table",
        "depth": 1,
        "chain": ["schedule-of-job"],
    }


def test_the_same_fact_is_the_same_event_and_another_one_is_another():
    ids = [
        of_occurrence(fact, JOB, one).event_id
        for fact, one in [
            (SystemEvent.FAILED, ended()),
            (SystemEvent.FAILED, ended(detail='{"x": 1}')),
            (SystemEvent.RETRYING, ended()),
            (SystemEvent.RETRYING, ended(attempt=2)),
            (SystemEvent.FAILED, ended(origin=manual("k"))),
        ]
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_a_schedule_without_a_name_is_called_by_its_id():
    assert (
        of_occurrence(SystemEvent.FAILED, factories.schedule("x"), ended()).payload["schedule_name"] == "schedule-of-x"
    )


@pytest.mark.parametrize(
    ("told", "line", "text"),
    [
        (None, "", ""),
        (run(error=None), "", ""),
        (run(error="  \n "), "", ""),
        (run(error="x" * 301), "x" * 299 + "…", "x" * 301),
        (run(error="a" * 1_000 + "\n" + "b" * 1_500), "b" * 299 + "…", "a" * 499 + "\n" + "b" * 1_500),
        (run(error="a\0\ud800"), "a\\0\\ud800", "a\\0\\ud800"),
    ],
)
def test_what_went_wrong_is_shown_as_far_as_there_is_room(told, line, text):
    payload = of_occurrence(SystemEvent.FAILED, JOB, ended(), run=told).payload
    assert (payload["error"], payload["error_text"]) == (line, text)


def test_a_damaged_detail_is_none():
    assert of_occurrence(SystemEvent.FAILED, JOB, ended(detail="{")).payload["detail"] == {}


def test_a_gap_is_shown_with_its_count():
    gap = ended(Phase.MISFIRED, Reason.LATE, missed_count=7, missed_first=NOW, missed_last=NOW + MINUTE)
    payload = of_occurrence(SystemEvent.MISFIRED, JOB, gap).payload
    assert (payload["missed_count"], payload["missed_from"], payload["missed_to"]) == (
        7,
        "2030-03-17T17:47:00Z",
        "2030-03-17T17:48:00Z",
    )


def test_another_attempt_is_shown_with_its_time():
    occurrence = ended(Phase.PENDING, Reason.RETRY_SCHEDULED, due=NOW + MINUTE, first_due=NOW)
    payload = of_occurrence(SystemEvent.RETRYING, JOB, occurrence, run=run()).payload
    assert (payload["retry_at"], payload["due_at"]) == ("2030-03-17T17:48:00Z", "2030-03-17T17:47:00Z")


@pytest.mark.parametrize(("after", "late"), [(-5, False), (SECOND, False), (SECOND + 1, True)])
def test_late_is_more_than_a_second(after, late):
    assert system_events.is_late(NOW, NOW + after) is late


@pytest.mark.parametrize(
    ("started", "waited_for", "seconds"), [(NOW + MINUTE, Reason.QUEUED, 60), (NOW + MINUTE, None, 60), (None, None, 0)]
)
def test_a_late_start_says_by_how_much(started, waited_for, seconds):
    occurrence = ended(Phase.DISPATCHING, None, started=started, attempt=1)
    payload = of_occurrence(SystemEvent.STARTED_LATE, JOB, occurrence, waited_for=waited_for).payload
    assert (payload["late_seconds"], payload["waited_for"]) == (seconds, waited_for)
    assert (payload["reason"], payload["summary"]) == (None, SystemEvent.STARTED_LATE.sentence)


def test_a_schedule_is_shown_with_its_last_author():
    note = AuditEntry(at=NOW, caller="key:ops", operation="schedule/pause", reason="maintenance")
    paused = replace(JOB, phase=SchedulePhase.PAUSED)
    told = of_schedule(SystemEvent.SCHEDULE_PAUSED, paused, note=note)
    assert told.event_type == "schedule.paused"
    assert told.payload == {
        "schedule_id": "schedule-of-job",
        "schedule_name": "nightly",
        "labels": {"team": "data"},
        "user": "ada",
        "target_kind": "function",
        "trigger_type": "interval",
        "phase": "paused",
        "revision": 1,
        "at": "2030-03-17T17:47:00Z",
        "by": "key:ops",
        "reason": "maintenance",
        "failures_in_row": 0,
        "depth": 1,
        "chain": ["schedule-of-job"],
    }
    by_itself = of_schedule(SystemEvent.SCHEDULE_PAUSED, paused, failures=3).payload
    assert (by_itself["by"], by_itself["reason"], by_itself["failures_in_row"]) == (None, "pause_on_failure", 3)
    without = of_schedule(SystemEvent.SCHEDULE_CREATED, factories.schedule("x", trigger=None)).payload
    assert (without["trigger_type"], without["by"], without["reason"]) == (None, None, None)


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("active", "active", "updated"),
        ("paused", "paused", "updated"),
        ("active", "paused", "paused"),
        ("paused", "active", "resumed"),
        ("completed", "active", "updated"),
        ("paused", "deleted", "deleted"),
    ],
)
def test_a_change_has_its_name(before, after, fact):
    one, other = (replace(JOB, phase=SchedulePhase(phase)) for phase in (before, after))
    assert system_events.change(one, other) == f"schedule.{fact}"


def test_a_lost_node_is_shown_by_what_it_said_last():
    told = of_lost_node("n1", seen=NOW, started=NOW - MINUTE, version="1.0", load=2, routes=("http",))
    assert told.payload == {
        "node": "n1",
        "seen_at": "2030-03-17T17:47:00Z",
        "started_at": "2030-03-17T17:46:00Z",
        "version": "1.0",
        "load": 2,
        "routes": ["http"],
        "depth": 1,
    }
    again = of_lost_node("n1", seen=NOW + 1, started=NOW - MINUTE, version="1.0", load=2, routes=("http",))
    assert told.event_id != again.event_id


def test_a_budget_that_is_nearly_used_up_says_how_far():
    budget = Budget(
        tenant="acme", scope=BudgetScope.USER, scope_id="ada", period=Period.DAY, max_cost=2_500_000_000, updated=NOW
    )
    start, end = Period.DAY.bounds(NOW)
    standing = Standing(
        budget=budget,
        settled=Amount(tokens=5, cost=2_000_000_000),
        reserved=Amount(tokens=3, cost=100_000_000),
        period_start=start,
        period_end=end,
    )
    told = of_budget(standing)
    assert told.event_type == "budget.threshold"
    assert told.payload == {
        "scope": "user",
        "scope_id": "ada",
        "period": "day",
        "period_start": "2030-03-17T00:00:00Z",
        "period_end": "2030-03-18T00:00:00Z",
        "warning_threshold": 0.8,
        "max_cost_usd": 2.5,
        "max_tokens": None,
        "settled_cost_usd": 2,
        "settled_tokens": 5,
        "reserved_cost_usd": 0.1,
        "reserved_tokens": 3,
        "hard": True,
        "depth": 1,
    }
    total = replace(standing, budget=replace(budget, max_cost=None, max_tokens=9), period_end=None)
    assert (of_budget(total).payload["period_end"], of_budget(total).payload["max_cost_usd"]) == (None, None)
    assert of_budget(total).event_id != told.event_id
