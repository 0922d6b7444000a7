"""Retry: the policy's document, and the time of the next attempt."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.errors import exception_names
from noonmark.core.instants import MAX_INSTANT, SECOND
from noonmark.core.policies.retry import RetryDecision, RetryPolicy, next_attempt, read_retry
from noonmark.core.reasons import Reason
from tests.core.reading import read

WEEK = 604_800
FAILED_AT = 1_792_573_200_000_000
POLICIES = st.builds(
    lambda backoff, longer, **settings: RetryPolicy(
        backoff=backoff, max_backoff=min(backoff + longer, WEEK * SECOND), **settings
    ),
    backoff=st.integers(0, WEEK * SECOND),
    longer=st.integers(0, WEEK * SECOND),
    max_attempts=st.integers(1, 100),
    multiplier=st.floats(1, 100) | st.integers(1, 100),
)


def retry(written):
    return read(read_retry, {"retry_policy": written}, "retry_policy")


def pause(policy, attempt, occurrence_id="occ_1"):
    decision = next_attempt(policy, attempt=attempt, failed_at=FAILED_AT, occurrence_id=occurrence_id)
    return decision.retry_at - FAILED_AT


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, RetryPolicy(max_attempts=1, backoff=SECOND, multiplier=2, max_backoff=300 * SECOND)),
        ({}, RetryPolicy(max_attempts=1, backoff=SECOND, multiplier=2, max_backoff=300 * SECOND)),
        ({"max_attempts": 100}, RetryPolicy(max_attempts=100)),
        (
            {"max_attempts": 4, "backoff_seconds": 0.5, "multiplier": 1.5, "max_backoff_seconds": 20},
            RetryPolicy(max_attempts=4, backoff=500_000, multiplier=1.5, max_backoff=20 * SECOND),
        ),
        # A long first pause is not cut short by a limit that nobody asked for.
        ({"backoff_seconds": 600}, RetryPolicy(backoff=600 * SECOND, max_backoff=600 * SECOND)),
        ({"backoff_seconds": 0}, RetryPolicy(backoff=0)),
        (
            {"on": ["builtins.OSError", "OSError", "shop.Busy"], "not_on": ["__main__.f.<locals>.Broken"]},
            RetryPolicy(on=("OSError", "shop.Busy"), not_on=("__main__.f.<locals>.Broken",)),
        ),
    ],
)
def test_what_is_accepted(written, expected):
    assert retry(written) == (expected, {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("twice", {"": 'must be an object, not "twice"'}),
        (
            {"max_attempts": 0, "backoff_seconds": -1, "multiplier": 0.5, "max_backoff_seconds": WEEK + 1},
            {
                ".max_attempts": "must be an integer from 1 to 100, not 0",
                ".backoff_seconds": "must be a number from 0 to 604,800, not -1",
                ".multiplier": "must be a number from 1 to 100, not 0.5",
                ".max_backoff_seconds": "must be a number from 0 to 604,800, not 604801",
            },
        ),
        ({"max_attempts": 101}, {".max_attempts": "must be an integer from 1 to 100, not 101"}),
        (
            {"backoff_seconds": 10, "max_backoff_seconds": 9},
            {".max_backoff_seconds": "must not be less than backoff_seconds"},
        ),
        ({"on": "OSError"}, {".on": 'must be an array, not "OSError"'}),
        ({"on": []}, {".on": "must name an exception; leave it out to retry whatever is raised"}),
        (
            {"on": ["OSError", "no name"], "not_on": [3]},
            {
                ".on[1]": "must be the name of an exception, such as 'http.client.HTTPException', not \"no name\"",
                ".not_on[0]": "must be text, not 3",
            },
        ),
        (
            {"attempts": 3},
            {
                ".attempts": (
                    "unknown field; allowed are backoff_seconds, max_attempts, max_backoff_seconds, multiplier, "
                    "not_on, on; did you mean max_attempts?"
                )
            },
        ),
    ],
)
def test_what_is_refused(written, expected):
    _, problems = retry(written)
    assert problems == {f"retry_policy{field}": message for field, message in expected.items()}


@given(POLICIES)
def test_a_policy_reads_back_from_its_document(policy):
    assert retry(policy.to_document()) == (policy, {})


def test_a_single_attempt_is_not_repeated():
    decision = next_attempt(RetryPolicy(), attempt=1, failed_at=FAILED_AT, occurrence_id="occ_1")
    assert decision == RetryDecision(
        reason=Reason.ATTEMPTS_EXHAUSTED, attempt=1, max_attempts=1, failed_at=FAILED_AT, retry_at=None
    )
    assert decision.facts() == {"attempt": 1, "max_attempts": 1}


@pytest.mark.parametrize(("attempt", "retried"), [(1, True), (3, True), (4, False), (5, False)])
def test_as_many_attempts_as_allowed(attempt, retried):
    decision = next_attempt(RetryPolicy(max_attempts=4), attempt=attempt, failed_at=0, occurrence_id="occ_1")
    assert (decision.retry_at is not None) is retried
    assert decision.reason == ("retry_scheduled" if retried else "attempts_exhausted")


def test_the_pauses_grow_up_to_their_limit():
    policy = RetryPolicy(max_attempts=20, backoff=SECOND, multiplier=2, max_backoff=300 * SECOND)
    expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    for attempt, seconds in enumerate(expected, start=1):
        assert seconds * SECOND <= pause(policy, attempt) < seconds * SECOND * 11 // 10


def test_pauses_are_pinned():
    # The fractions of (occ_1, 1) and (occ_1, 2) are 0.34932743525490206 and 0.9662802694235701, of a tenth.
    policy = RetryPolicy(max_attempts=3, backoff=10 * SECOND, multiplier=3)
    assert pause(policy, 1) == 10_349_327
    assert pause(policy, 2) == 32_898_840


def test_two_that_failed_together_come_back_apart():
    policy = RetryPolicy(max_attempts=2, backoff=60 * SECOND)
    assert pause(policy, 1, "occ_1") != pause(policy, 1, "occ_2")


def test_without_backoff_the_next_attempt_is_immediate():
    assert pause(RetryPolicy(max_attempts=100, backoff=0, multiplier=100), 99) == 0


@given(POLICIES, st.integers(1, 10**9))
def test_any_attempt_of_any_policy_has_an_answer(policy, attempt):
    decision = next_attempt(policy, attempt=attempt, failed_at=FAILED_AT, occurrence_id="occ_1")
    if attempt >= policy.max_attempts:
        assert decision.retry_at is None
    else:
        waited = decision.retry_at - FAILED_AT
        assert policy.backoff <= waited <= policy.max_backoff * 11 // 10


@given(POLICIES)
def test_later_pauses_are_never_shorter_but_for_the_spread(policy):
    pauses = [pause(policy, attempt) for attempt in range(1, policy.max_attempts)]
    assert all(later * 11 // 10 + 1 >= earlier for earlier, later in itertools.pairwise(pauses))


def test_a_limit_beyond_all_policies_does_not_overflow():
    policy = RetryPolicy(max_attempts=10**9, multiplier=100)
    assert 300 * SECOND <= pause(policy, 10**8) <= 330 * SECOND


def test_the_numbers_behind_a_retry():
    policy = RetryPolicy(max_attempts=3, backoff=0)
    decision = next_attempt(policy, attempt=2, failed_at=FAILED_AT, occurrence_id="occ_1")
    assert decision.facts() == {
        "attempt": 2,
        "max_attempts": 3,
        "delay_seconds": 0,
        "retry_at": "2026-10-21T09:00:00Z",
    }


@pytest.mark.parametrize("number", range(20))
def test_no_pause_is_longer_than_the_longest(number):
    policy = RetryPolicy(max_attempts=9, backoff=9_000_000, max_backoff=10_000_000)
    for attempt in range(1, 9):
        decision = next_attempt(policy, attempt=attempt, failed_at=0, occurrence_id=f"occ_{number}")
        assert 9_000_000 <= decision.retry_at <= 10_000_000


def test_a_retry_at_the_end_of_time_can_be_shown():
    decision = next_attempt(RetryPolicy(max_attempts=2), attempt=1, failed_at=MAX_INSTANT, occurrence_id="occ_1")
    assert decision.facts()["retry_at"] == "9999-12-31T23:59:59.999999Z"


class Busy(ConnectionError):
    """An error of a program."""


def test_an_exception_has_the_names_of_its_bases():
    assert exception_names(Busy) == (f"{__name__}.Busy", "ConnectionError", "OSError", "Exception", "BaseException")


def test_the_main_program_has_one_name_in_every_process():
    assert exception_names(type("Late", (ValueError,), {"__module__": "__mp_main__"}))[0] == "__main__.Late"


@pytest.mark.parametrize(
    ("on", "not_on", "is_retried"),
    [
        ((), (), True),
        (("ConnectionError",), (), True),
        (("ValueError", "OSError"), (), True),
        (("ValueError",), (), False),
        ((), ("ValueError",), True),
        ((), ("OSError",), False),
        (("OSError",), (f"{__name__}.Busy",), False),
        ((f"{__name__}.Busy",), ("TimeoutError",), True),
    ],
)
def test_exceptions_decide_whether_there_is_another_attempt(on, not_on, is_retried):
    policy = RetryPolicy(max_attempts=3, on=on, not_on=not_on)
    decision = next_attempt(policy, attempt=1, failed_at=FAILED_AT, occurrence_id="occ_1", raised=exception_names(Busy))
    assert decision.reason == ("retry_scheduled" if is_retried else "not_retried")
    assert decision.facts().get("exception") == (None if is_retried else f"{__name__}.Busy")
    assert (decision.retry_at is not None) == is_retried


def test_a_failure_without_an_exception_is_tried_again():
    policy = RetryPolicy(max_attempts=2, on=("OSError",), not_on=("ValueError",))
    assert next_attempt(policy, attempt=1, failed_at=FAILED_AT, occurrence_id="occ_1").retry_at is not None


def test_the_last_attempt_is_the_last_after_any_exception():
    policy = RetryPolicy(max_attempts=2, on=("ValueError",))
    decision = next_attempt(policy, attempt=2, failed_at=FAILED_AT, occurrence_id="occ_1", raised=("OSError",))
    assert decision.reason is Reason.ATTEMPTS_EXHAUSTED


def test_exceptions_are_written_into_the_document():
    policy = RetryPolicy(on=("OSError",), not_on=("shop.Busy",))
    assert retry(policy.to_document()) == (policy, {})
    assert {"on", "not_on"}.isdisjoint(RetryPolicy().to_document())
