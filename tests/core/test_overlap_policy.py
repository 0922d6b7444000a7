"""Overlap policies: names, aliases, forms, and everything that is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.instants import SECOND
from noonmark.core.policies.overlap import Allow, CancelRunning, Queue, QueueOne, Skip, Terminate, read_overlap
from tests.core.reading import read

NAMES = "skip, queue, queue_one, allow, cancel_running, terminate"

TRIGGERS = ["once", "interval", "cron", "calendar", "event"]
POLICIES = (
    st.sampled_from([Skip(), QueueOne(), Allow()])
    | st.builds(Queue, queue_limit=st.integers(1, 100_000))
    | st.just(Terminate())
    | st.builds(CancelRunning, cancel_grace=st.integers(0, 86_400 * SECOND))
)


def overlap(document, trigger_type="cron"):
    return read(read_overlap, document, "overlap_policy", trigger_type=trigger_type)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("skip", Skip()),
        ("skip_if_running", Skip()),
        ("queue", Queue(queue_limit=100)),
        ("queue_one", QueueOne()),
        ("allow", Allow()),
        ("allow_concurrent", Allow()),
        ("cancel_running", CancelRunning(cancel_grace=10 * SECOND)),
        ("terminate", Terminate()),
        ({"type": "terminate"}, Terminate()),
        ({"type": "skip"}, Skip()),
        ({"type": "skip_if_running", "queue_limit": None}, Skip()),
        ({"type": "queue"}, Queue(queue_limit=100)),
        ({"type": "queue", "queue_limit": 1}, Queue(queue_limit=1)),
        ({"type": "queue", "queue_limit": 100_000}, Queue(queue_limit=100_000)),
        ({"type": "cancel_running", "cancel_grace_seconds": 0}, CancelRunning(cancel_grace=0)),
        ({"type": "cancel_running", "cancel_grace_seconds": 2.5}, CancelRunning(cancel_grace=2_500_000)),
    ],
)
def test_what_is_accepted(written, expected):
    assert overlap({"overlap_policy": written}) == (expected, {})


@pytest.mark.parametrize("trigger_type", TRIGGERS)
@pytest.mark.parametrize("document", [{}, {"overlap_policy": None}, {"prohibit_overlap": None}])
def test_the_default_is_skip_and_for_events_a_long_queue(document, trigger_type):
    expected = Queue(queue_limit=10_000) if trigger_type == "event" else Skip()
    assert overlap(document, trigger_type) == (expected, {})


def test_an_event_queue_is_long_unless_it_says_otherwise():
    assert overlap({"overlap_policy": "queue"}, "event") == (Queue(queue_limit=10_000), {})
    assert overlap({"overlap_policy": {"type": "queue", "queue_limit": 7}}, "event") == (Queue(queue_limit=7), {})


@pytest.mark.parametrize("trigger_type", TRIGGERS)
def test_prohibit_overlap_says_skip_or_allow(trigger_type):
    assert overlap({"prohibit_overlap": True}, trigger_type) == (Skip(), {})
    assert overlap({"prohibit_overlap": False}, trigger_type) == (Allow(), {})


def test_prohibit_overlap_beside_a_policy_is_refused():
    _, problems = overlap({"prohibit_overlap": True, "overlap_policy": "skip"})
    assert problems == {"prohibit_overlap": "says the same thing as overlap_policy; give one of the two"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"prohibit_overlap": "yes"}, {"prohibit_overlap": 'must be true or false, not "yes"'}),
        (
            {"overlap_policy": "sometimes"},
            {"overlap_policy": f'must be one of {NAMES}, not "sometimes"'},
        ),
        (
            {"overlap_policy": 7},
            {"overlap_policy": f"must be one of {NAMES}, not 7"},
        ),
        ({"overlap_policy": {}}, {"overlap_policy.type": "is required"}),
        (
            {"overlap_policy": {"type": "never", "queue_limit": 5}},
            {"overlap_policy.type": f'must be one of {NAMES}, not "never"'},
        ),
        (
            {"overlap_policy": {"type": "skip", "queue_limit": 5}},
            {"overlap_policy.queue_limit": "does not belong to skip, which takes no settings"},
        ),
        (
            {"overlap_policy": {"type": "queue", "cancel_grace_seconds": 5}},
            {"overlap_policy.cancel_grace_seconds": "does not belong to queue, which takes queue_limit"},
        ),
        (
            {"overlap_policy": {"type": "queue", "queue_limit": 0}},
            {"overlap_policy.queue_limit": "must be an integer from 1 to 100,000, not 0"},
        ),
        (
            {"overlap_policy": {"type": "queue", "queue_limit": 100_001}},
            {"overlap_policy.queue_limit": "must be an integer from 1 to 100,000, not 100001"},
        ),
        (
            {"overlap_policy": {"type": "cancel_running", "cancel_grace_seconds": -1}},
            {"overlap_policy.cancel_grace_seconds": "must be a number from 0 to 86,400, not -1"},
        ),
        (
            {"overlap_policy": {"type": "skip", "wait": 5}},
            {"overlap_policy.wait": "unknown field; allowed are cancel_grace_seconds, queue_limit, type"},
        ),
    ],
)
def test_what_is_refused(document, expected):
    assert overlap(document)[1] == expected


@given(POLICIES, st.sampled_from(TRIGGERS))
def test_a_policy_reads_back_from_its_document(policy, trigger_type):
    assert overlap({"overlap_policy": policy.to_document()}, trigger_type) == (policy, {})


def test_documents_use_the_canonical_names():
    assert Skip().to_document() == "skip"
    assert QueueOne().to_document() == "queue_one"
    assert Allow().to_document() == "allow"
    assert Queue().to_document() == {"type": "queue", "queue_limit": 100}
    assert CancelRunning().to_document() == {"type": "cancel_running", "cancel_grace_seconds": 10}
    assert Terminate().to_document() == "terminate"
