"""What waits for the schedules it depends on, what runs, and what is skipped."""

from dataclasses import replace

import pytest

from noonmark.core import ids
from noonmark.core.admission import Claim, End, Wait, after_upstreams
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import ENDINGS, FINAL, LIVE, Phase
from noonmark.core.planner import occurrence
from noonmark.core.policies.dependencies import Upstream, times_in_question
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from tests.core.scheduled import after_noon, at, every, scheduled

DAY = 86_400
PENDING = "wait for dependency_pending"
FAILED = "skipped/dependency_failed"


def upstream(phase, *, require_success=True, schedule_id="up", **known):
    dependency = Dependency(schedule_id=schedule_id, require_success=require_success)
    return Upstream(dependency=dependency, phase=phase, **known)


def decided(*upstreams, now=100, **row):
    """What is decided about the fire at 100 s."""
    schedule = scheduled(every(100))
    one = replace(occurrence(schedule, at(100), at(100)), phase=Phase.CLAIMED, **row)
    return after_upstreams(Claim(occurrence=one, schedule=schedule, claimed=at(now)), upstreams, now=at(now))


def told(decision):
    match decision:
        case End(phase=phase, reason=reason):
            assert reason in ENDINGS[phase]
            return f"{phase}/{reason}"
        case Wait(waiting_for=reason):
            return f"wait for {reason}"
    return "goes on"


@pytest.mark.parametrize("phase", [None, *LIVE])
@pytest.mark.parametrize("require_success", [True, False])
def test_what_is_still_open_is_waited_for(phase, require_success):
    assert told(decided(upstream(phase, require_success=require_success))) == PENDING


@pytest.mark.parametrize("phase", FINAL - {Phase.COMPLETED})
def test_any_end_but_completed_is_a_failure_unless_that_does_not_matter(phase):
    decision = decided(upstream(phase))
    assert told(decision) == FAILED
    assert decision.facts == {"upstream": "up", "phase": str(phase)}
    assert told(decided(upstream(phase, require_success=False))) == "goes on"


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
    assert told(decided(*(upstream(phase) for phase in phases))) == expected


@pytest.mark.parametrize("require_success", [True, False])
def test_an_upstream_that_is_gone_is_a_failure(require_success):
    decision = decided(upstream(None, require_success=require_success, is_known=False))
    assert told(decision) == FAILED
    assert decision.facts == {"upstream": "up", "phase": "missing"}


@pytest.mark.parametrize(("now", "expected"), [(100 + DAY - 1, PENDING), (100 + DAY, "skipped/dependency_timed_out")])
def test_the_wait_is_over_after_a_day(now, expected):
    decision = decided(upstream(Phase.COMPLETED, schedule_id="done"), upstream(Phase.PENDING), now=now)
    assert told(decision) == expected
    if isinstance(decision, End):
        assert decision.facts == {"upstream": "up", "waits_until": "2026-11-16T12:01:40Z"}


@pytest.mark.parametrize(
    "row",
    [
        {"origin": ids.manual("k")},
        {"origin": ids.backfill("b")},
        {"attempt": 1},
        {"losses": 1},
        {"reason": Reason.LEASE_LOST},
    ],
)
def test_what_was_asked_for_or_has_begun_does_not_wait(row):
    assert told(decided(upstream(Phase.FAILED), **row)) == "goes on"


def test_times_after_my_previous_one_and_up_to_mine_are_in_question():
    assert [after_noon(time) for time in times_in_question(every(100), at(300))] == [200, 300]
    assert times_in_question(every(100), at(0)) == (MIN_INSTANT - 1, at(0))
