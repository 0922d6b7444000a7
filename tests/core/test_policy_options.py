"""Typed policies: each stands for a document, and the readers of documents judge it."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from http.client import HTTPException

import pytest

from noonmark.core.errors import InvalidSchedule
from noonmark.core.policies import limits, misfire, overlap, retry, window
from noonmark.core.policies.options import (
    Allow,
    CancelRunning,
    CatchUpAll,
    CatchUpOne,
    CatchUpWithin,
    Policy,
    Queue,
    QueueOne,
    Retry,
    Skip,
    SkipMissed,
    Spread,
    Terminate,
    Window,
    as_document,
    seconds_of,
)
from tests.core.reading import read

MINUTE = timedelta(minutes=1)
OVERLAP = [
    (Skip(), "skip"),
    (Queue(), "queue"),
    (Queue(limit=5), {"type": "queue", "queue_limit": 5}),
    (Queue(5), {"type": "queue", "queue_limit": 5}),
    (QueueOne(), "queue_one"),
    (Allow(), "allow"),
    (CancelRunning(), "cancel_running"),
    (Terminate(), "terminate"),
    (CancelRunning(MINUTE), {"type": "cancel_running", "cancel_grace_seconds": 60}),
    (CancelRunning(grace=0.5), {"type": "cancel_running", "cancel_grace_seconds": 0.5}),
]
MISFIRE = [
    (SkipMissed(), "skip"),
    (SkipMissed(grace=MINUTE), {"type": "skip", "grace_seconds": 60}),
    (CatchUpOne(grace=5), {"type": "catch_up_one", "grace_seconds": 5}),
    (CatchUpAll(), "catch_up_all"),
    (CatchUpAll(limit=100), "fire_immediately"),
    (CatchUpAll(10, grace=5), {"type": "catch_up_all", "limit": 10, "grace_seconds": 5}),
    (CatchUpWithin(3_600), {"type": "catch_up_within", "window_seconds": 3_600}),
    (CatchUpWithin(60 * MINUTE, limit=7), {"type": "catch_up_within", "window_seconds": 3_600, "limit": 7}),
    (Spread(), "spread"),
    (Spread(30, limit=7, grace=5), {"type": "spread", "window_seconds": 30, "limit": 7, "grace_seconds": 5}),
]
RETRY = [
    (Retry(0), {}),
    (Retry(3), {"max_attempts": 4}),
    (Retry(1, on=OSError), {"max_attempts": 2, "on": ["OSError"]}),
    (
        Retry(1, on=(TimeoutError, "shop.Busy"), not_on=[HTTPException]),
        {"max_attempts": 2, "on": ["TimeoutError", "shop.Busy"], "not_on": ["http.client.HTTPException"]},
    ),
    (Retry(99, MINUTE), {"max_attempts": 100, "backoff_seconds": 60}),
    (
        Retry(4, backoff=30, multiplier=3, max_backoff=10 * MINUTE),
        {"max_attempts": 5, "backoff_seconds": 30, "multiplier": 3, "max_backoff_seconds": 600},
    ),
]
WINDOW = [
    (Window(60), {"duration_seconds": 60}),
    (Window(MINUTE, end_action="none"), {"duration_seconds": 60, "end_action": "none"}),
]
READERS = [
    *((overlap.read_overlap, {"trigger_type": "event"}, *pair) for pair in OVERLAP),
    *((misfire.read_misfire, {"trigger_type": "cron"}, *pair) for pair in MISFIRE),
    *((retry.read_retry, {}, *pair) for pair in RETRY),
    *((window.read_window, {"target_kind": None}, *pair) for pair in WINDOW),
]


@pytest.mark.parametrize(("reader", "settings", "typed", "document"), READERS)
def test_a_typed_policy_reads_as_the_document_it_stands_for(reader, settings, typed, document):
    expected = read(reader, {"p": document}, "p", **settings)
    assert read(reader, {"p": as_document(typed, option="")}, "p", **settings) == expected
    assert expected[1] == {}


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (lambda: Queue(0), "limit", "must be an integer from 1 to 100,000, not 0"),
        (lambda: Queue(limit="many"), "limit", 'must be an integer, not "many"'),
        (lambda: CancelRunning(-1), "grace", "must be a number from 0 to 86,400, not -1"),
        (lambda: CatchUpAll(limit=1_001), "limit", "must be an integer from 1 to 1,000, not 1001"),
        (lambda: SkipMissed(grace=0), "grace", "must be a number from 1 to 31,622,400, not 0"),
        (lambda: CatchUpWithin(None), "window", "is required"),
        (lambda: CatchUpWithin(0.5), "window", "must be a number from 1 to 31,622,400, not 0.5"),
        (lambda: Retry(100), "retries", "must be an integer from 0 to 99, not 100"),
        (lambda: Retry(-1), "retries", "must be an integer from 0 to 99, not -1"),
        (lambda: Retry(retries=True), "retries", "must be an integer from 0 to 99, not true"),
        (lambda: Retry({}), "retries", "must be an integer from 0 to 99, not a dict"),
        (lambda: Retry(1, on=()), "on", "must name an exception; leave it out to retry whatever is raised"),
        (lambda: Retry(1, on=(int,)), "on[0]", "must be text, not a type"),
        (lambda: Retry(1, backoff=-1), "backoff", "must be a number from 0 to 604,800, not -1"),
        (lambda: Retry(1, 60, max_backoff=5), "max_backoff", "must not be less than backoff_seconds"),
        (lambda: Window(0), "duration", "must be a number from 0.001 to 31,622,400, not 0"),
        (lambda: Window(1, "explode"), "end_action", 'must be one of cancel, pause, none, not "explode"'),
        (lambda: limits.Concurrency(""), "key", "must have 1 to 200 characters, not 0"),
        (lambda: limits.Concurrency("x", 0), "limit", "must be an integer from 1 to 100,000, not 0"),
        (lambda: limits.Dependency(5), "schedule_id", "must be text, not 5"),
        (lambda: limits.Dependency(""), "schedule_id", "must have 1 to 200 characters, not 0"),
        (lambda: limits.Dependency("a", "yes"), "require_success", 'must be True or False, not "yes"'),
    ],
)
def test_a_bad_setting_is_refused_when_the_value_is_made(make, field, message):
    with pytest.raises(InvalidSchedule) as refused:
        make()
    assert (refused.value.field, refused.value.message) == (field, message)


def test_all_problems_are_listed():
    with pytest.raises(InvalidSchedule) as refused:
        CatchUpWithin(-1, limit=0, grace=0)
    assert [problem.field for problem in refused.value.problems] == ["grace", "window", "limit"]


def test_they_are_frozen_values_that_show_what_was_written():
    policy = Retry(3, backoff=MINUTE)
    assert repr(policy) == "Retry(retries=3, backoff=datetime.timedelta(seconds=60))"
    assert (repr(Skip()), repr(CatchUpAll(limit=10))) == ("Skip()", "CatchUpAll(limit=10)")
    assert policy == Retry(3, MINUTE)
    assert len({policy, Retry(3, MINUTE), Queue(3)}) == 2
    with pytest.raises(FrozenInstanceError):
        policy.retries = 4


def test_the_base_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Policy()


def test_a_dependency_and_a_concurrency_limit_are_written_by_position():
    assert as_document(limits.Dependency("a"), option="depends_on") == {"schedule_id": "a", "require_success": True}
    written = {"concurrency_key": "a", "concurrency_limit": 2}
    assert as_document(limits.Concurrency("a", 2), option="concurrency") == written


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("misfire", Skip(), "must be a misfire policy such as SkipMissed() or CatchUpAll(), not Skip()"),
        ("overlap", SkipMissed(), "must be an overlap policy such as Skip() or Queue(), not SkipMissed()"),
        ("retries", Window(60), "must be a number or a Retry, not Window(duration=60)"),
        ("overlap", Queue, "is the class Queue; call it: Queue(..)"),
        ("description", limits.Concurrency, "is the class Concurrency; call it: Concurrency(..)"),
    ],
)
def test_the_value_of_another_option_and_a_class_are_refused(option, value, message):
    with pytest.raises(InvalidSchedule) as refused:
        as_document(value, option=option)
    assert (refused.value.field, refused.value.message) == (option, message)


def test_anything_else_is_left_to_the_parser():
    assert as_document("queue", option="overlap") == "queue"
    assert as_document(None, option="overlap") is None
    assert seconds_of("long") == "long"
    assert seconds_of(MINUTE + timedelta(microseconds=1)) == 60.000001
