"""Occurrences and runs as values: integers inside, aware datetimes outside."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.instants import to_micros
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.occurrence import Occurrence
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOMINAL = to_micros(NOON)

PLANNED = Occurrence(
    id=occurrence_id("u1", TRIGGER, NOMINAL),
    uid="u1",
    schedule_id="nightly",
    revision=1,
    origin=TRIGGER,
    phase=Phase.PENDING,
    route="command",
    nominal=NOMINAL,
    due=NOMINAL + 250_000,
    first_due=NOMINAL + 250_000,
)


def test_times_are_shown_in_utc():
    assert PLANNED.nominal_at == NOON
    assert PLANNED.nominal_at.tzinfo is UTC
    assert PLANNED.due_at == NOON + timedelta(milliseconds=250)
    assert (PLANNED.ended_at, replace(PLANNED, ended=NOMINAL).ended_at) == (None, NOON)


def test_an_ordinary_occurrence_missed_nothing():
    assert (PLANNED.missed_count, PLANNED.missed_from, PLANNED.missed_to) == (0, None, None)
    assert (PLANNED.attempt, PLANNED.reason, PLANNED.detail) == (0, None, "")


def test_one_row_tells_of_a_whole_gap():
    gap = replace(
        PLANNED,
        phase=Phase.MISFIRED,
        reason=Reason.LATE,
        missed_count=3,
        missed_first=NOMINAL,
        missed_last=NOMINAL + 2 * 3_600_000_000,
    )
    assert gap.missed_from == NOON
    assert gap.missed_to == NOON + timedelta(hours=2)
    assert f"{gap.phase}/{gap.reason}" == "misfired/late"


def test_a_run_ends_once():
    started = Run(id="r1", occurrence_id=PLANNED.id, attempt=1, node="n1", started=NOMINAL)
    assert (started.started_at, started.ended_at, started.outcome) == (NOON, None, None)
    ended = replace(
        started,
        ended=NOMINAL + 1_500_000,
        outcome=Outcome.COMPLETED,
        result={"rows": 3},
        usage=Usage(input_tokens=120, cost=500_000_000),
    )
    assert ended.ended_at - ended.started_at == timedelta(seconds=1.5)
    assert str(ended.outcome) == "completed"
    assert {ended: "a run with a result can be a key"}


@pytest.mark.parametrize("outcome", [each for each in Outcome if each not in (Outcome.LEASE_LOST, Outcome.SUSPENDED)])
def test_an_outcome_is_a_phase_in_which_an_occurrence_may_end(outcome):
    assert Phase(outcome) in FINAL
