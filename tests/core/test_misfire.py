"""Misfire policies: names, aliases, forms, refusals, and the judgement of a single late occurrence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.instants import SECOND
from noonmark.core.policies.misfire import (
    CatchUpAll,
    CatchUpOne,
    CatchUpWithin,
    Lateness,
    Skip,
    Spread,
    judge,
    read_misfire,
)
from noonmark.core.reasons import Reason
from tests.core.reading import read

KINDS = "skip, catch_up_one, catch_up_all, catch_up_within, spread"
LEAP_YEAR = 366 * 86_400
LENGTHS = st.integers(SECOND, LEAP_YEAR * SECOND)
LIMITS = st.integers(1, 1_000)
POLICIES = (
    st.builds(Skip, grace=LENGTHS)
    | st.builds(CatchUpOne, grace=LENGTHS)
    | st.builds(CatchUpAll, grace=LENGTHS, limit=LIMITS)
    | st.builds(CatchUpWithin, grace=LENGTHS, limit=LIMITS, window=LENGTHS)
    | st.builds(Spread, grace=LENGTHS, limit=LIMITS, window=LENGTHS)
)


def misfire(written, trigger_type="cron"):
    return read(read_misfire, {"misfire_policy": written}, "misfire_policy", trigger_type=trigger_type)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("skip", Skip(grace=60 * SECOND)),
        ("none", Skip(grace=60 * SECOND)),
        ("catch_up_one", CatchUpOne(grace=60 * SECOND)),
        ("catchup_one", CatchUpOne(grace=60 * SECOND)),
        ("catch_up_all", CatchUpAll(grace=60 * SECOND, limit=10)),
        ("catchup_all", CatchUpAll(grace=60 * SECOND, limit=10)),
        ("fire_immediately", CatchUpAll(grace=60 * SECOND, limit=100)),
        ("spread", Spread(grace=60 * SECOND, limit=100, window=60 * SECOND)),
        ({"type": "none"}, Skip(grace=60 * SECOND)),
        ({"type": "skip", "grace_seconds": 1}, Skip(grace=SECOND)),
        ({"type": "skip", "grace_seconds": 1.5, "limit": None}, Skip(grace=1_500_000)),
        ({"type": "catch_up_one", "grace_seconds": LEAP_YEAR}, CatchUpOne(grace=LEAP_YEAR * SECOND)),
        ({"type": "catch_up_all", "limit": 1_000}, CatchUpAll(grace=60 * SECOND, limit=1_000)),
        ({"type": "fire_immediately"}, CatchUpAll(grace=60 * SECOND, limit=100)),
        ({"type": "fire_immediately", "limit": 3}, CatchUpAll(grace=60 * SECOND, limit=3)),
        (
            {"type": "catch_up_within", "window_seconds": 3600},
            CatchUpWithin(grace=60 * SECOND, limit=100, window=3600 * SECOND),
        ),
        (
            {"type": "spread", "grace_seconds": 5, "limit": 7, "window_seconds": 600},
            Spread(grace=5 * SECOND, limit=7, window=600 * SECOND),
        ),
    ],
)
def test_what_is_accepted(written, expected):
    assert misfire(written) == (expected, {})


@pytest.mark.parametrize("trigger_type", ["once", "interval", "cron", "calendar", "event"])
def test_the_default_is_skip_and_for_once_catching_up(trigger_type):
    expected = CatchUpOne(grace=60 * SECOND) if trigger_type == "once" else Skip(grace=60 * SECOND)
    assert misfire(None, trigger_type) == (expected, {})
    assert misfire("skip", trigger_type) == (Skip(grace=60 * SECOND), {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("later", {"": f'must be one of {KINDS}, not "later"'}),
        (True, {"": f"must be one of {KINDS}, not true"}),
        (["skip"], {"": f"must be one of {KINDS}, not a list"}),
        ({"grace_seconds": 5}, {".type": "is required"}),
        (
            {"type": "later", "grace": 5},
            {
                ".type": f'must be one of {KINDS}, not "later"',
                ".grace": (
                    "unknown field; allowed are grace_seconds, limit, type, window_seconds; did you mean grace_seconds?"
                ),
            },
        ),
        ({"type": "skip", "limit": 5}, {".limit": "does not belong to skip, which takes grace_seconds"}),
        (
            {"type": "catch_up_all", "window_seconds": 5},
            {".window_seconds": "does not belong to catch_up_all, which takes grace_seconds, limit"},
        ),
        ({"type": "catch_up_within"}, {".window_seconds": "is required"}),
        (
            {"type": "spread", "grace_seconds": 0.9, "limit": 0, "window_seconds": 0},
            {
                ".grace_seconds": "must be a number from 1 to 31,622,400, not 0.9",
                ".limit": "must be an integer from 1 to 1,000, not 0",
                ".window_seconds": "must be a number from 1 to 31,622,400, not 0",
            },
        ),
        ({"type": "catch_up_all", "limit": 1_001}, {".limit": "must be an integer from 1 to 1,000, not 1001"}),
        (
            {"type": "catch_up_within", "window_seconds": LEAP_YEAR + 1},
            {".window_seconds": "must be a number from 1 to 31,622,400, not 31622401"},
        ),
    ],
)
def test_what_is_refused(written, expected):
    _, problems = misfire(written)
    assert problems == {f"misfire_policy{field}": message for field, message in expected.items()}


@given(POLICIES, st.sampled_from(["once", "cron", "event"]))
def test_a_policy_reads_back_from_its_document(policy, trigger_type):
    assert misfire(policy.to_document(), trigger_type) == (policy, {})


def test_documents_use_the_canonical_names_and_write_everything_out():
    assert misfire("fire_immediately")[0].to_document() == {"type": "catch_up_all", "grace_seconds": 60, "limit": 100}
    assert misfire("none")[0].to_document() == {"type": "skip", "grace_seconds": 60}


GRACE = 30 * SECOND
DUE = 1_000 * SECOND


@pytest.mark.parametrize("policy", [Skip(grace=GRACE), CatchUpOne(grace=GRACE), CatchUpAll(grace=GRACE)])
@pytest.mark.parametrize(
    ("late_by", "reason", "runs"),
    [
        (-5 * SECOND, Reason.ON_TIME, True),
        (0, Reason.ON_TIME, True),
        (SECOND - 1, Reason.ON_TIME, True),
        (SECOND, Reason.WITHIN_GRACE, True),
        (GRACE, Reason.WITHIN_GRACE, True),
        (GRACE + 1, Reason.LATE, False),
        (86_400 * SECOND, Reason.LATE, False),
    ],
)
def test_one_occurrence_runs_within_its_grace(policy, late_by, reason, runs):
    judged = judge(policy, due=DUE, now=DUE + late_by)
    assert judged == Lateness(reason=reason, late_by=max(0, late_by), grace=GRACE)
    assert judged.runs is runs


@pytest.mark.parametrize(
    ("late_by", "lease", "runs", "grace"),
    [
        (40 * SECOND, 20 * SECOND, True, 40 * SECOND),
        (40 * SECOND + 1, 20 * SECOND, False, 40 * SECOND),
        (30 * SECOND, 5 * SECOND, True, GRACE),
        (30 * SECOND + 1, 5 * SECOND, False, GRACE),
    ],
)
def test_after_a_lost_claim_the_grace_is_at_least_two_leases(late_by, lease, runs, grace):
    judged = judge(Skip(grace=GRACE), due=DUE, now=DUE + late_by, lease_lost=True, lease=lease)
    assert (judged.runs, judged.grace) == (runs, grace)


def test_a_lease_that_was_not_lost_does_not_count():
    assert not judge(Skip(grace=GRACE), due=DUE, now=DUE + GRACE + 1, lease=60 * SECOND).runs


@pytest.mark.parametrize(
    ("due", "caught_up_at", "late_by"),
    [
        (DUE, DUE + 7_200 * SECOND, GRACE),
        # Spread to a time after the decision: the later of the two counts.
        (DUE + 7_250 * SECOND, DUE + 7_200 * SECOND, GRACE),
    ],
)
def test_under_skip_a_caught_up_occurrence_counts_its_lateness_from_then_on(due, caught_up_at, late_by):
    now = max(due, caught_up_at) + late_by
    policy = Skip(grace=GRACE)
    assert judge(policy, due=due, now=now, caught_up_at=caught_up_at).late_by == late_by
    assert judge(policy, due=due, now=now, caught_up_at=caught_up_at).runs
    assert not judge(policy, due=due, now=now + 1, caught_up_at=caught_up_at).runs


@pytest.mark.parametrize("policy", [CatchUpOne(), CatchUpAll(), CatchUpWithin(window=SECOND), Spread()])
def test_a_caught_up_occurrence_is_not_decided_again(policy):
    judged = judge(policy, due=DUE, now=DUE + 7_200 * SECOND, caught_up_at=DUE + SECOND)
    assert (judged.runs, judged.reason) == (True, Reason.CAUGHT_UP)


def test_the_numbers_behind_a_judgement():
    judged = judge(Skip(grace=GRACE), due=DUE, now=DUE + 90_500_000)
    assert judged.reason is Reason.LATE
    assert judged.facts() == {"late_by_seconds": 90.5, "grace_seconds": 30}
