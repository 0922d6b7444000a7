"""The run window: its document, when it closes, and whether an occurrence may still start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.instants import MAX_INSTANT, SECOND, from_micros
from noonmark.core.policies.window import (
    EndAction,
    Window,
    WindowDecision,
    WindowPeriod,
    judge,
    last_window_warning,
    read_window,
    window_period_at,
)
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, OnceTrigger
from tests.core.reading import read
from tests.core.scheduled import at, every

FIRST_DUE = 1_792_573_200_000_000
HOUR = 3_600 * SECOND


def window(written, target_kind="command"):
    return read(read_window, {"window": written}, "window", target_kind=target_kind)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, None),
        ({"duration_seconds": 3600}, Window(duration=HOUR, end_action=EndAction.CANCEL)),
        ({"duration_seconds": 0.001, "end_action": "none"}, Window(duration=1_000, end_action=EndAction.NONE)),
        ({"duration_seconds": 60, "end_action": "pause"}, Window(duration=60 * SECOND, end_action=EndAction.PAUSE)),
    ],
)
def test_what_is_accepted(written, expected):
    assert window(written) == (expected, {})


@pytest.mark.parametrize(
    ("target_kind", "refused"),
    [("command", False), ("workflow", False), (None, False), ("function", True), ("http", True), ("session", True)],
)
def test_only_commands_and_workflows_can_be_suspended(target_kind, refused):
    message = f"cannot be pause for a {target_kind} target; only runs of bundle, command, workflow can be suspended"
    _, problems = window({"duration_seconds": 60, "end_action": "pause"}, target_kind)
    assert problems == ({"window.end_action": message} if refused else {})
    assert window({"duration_seconds": 60, "end_action": "cancel"}, target_kind)[1] == {}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (3600, {"window": "must be an object, not 3600", "window.duration_seconds": "is required"}),
        ({}, {"window.duration_seconds": "is required"}),
        ({"duration_seconds": 0}, {"window.duration_seconds": "must be a number from 0.001 to 31,622,400, not 0"}),
        (
            {"duration_seconds": 60, "end_action": "stop", "zone": "UTC"},
            {
                "window.end_action": 'must be one of cancel, pause, none, not "stop"',
                "window.zone": "unknown field; allowed are duration_seconds, end_action",
            },
        ),
    ],
)
def test_what_is_refused(written, expected):
    assert window(written)[1] == expected


@given(st.builds(Window, duration=st.integers(1_000, 366 * 24 * HOUR), end_action=st.sampled_from(EndAction)))
def test_a_window_reads_back_from_its_document(value):
    assert window(value.to_document()) == (value, {})


@pytest.mark.parametrize(
    ("now", "reason", "is_open"),
    [
        (FIRST_DUE - SECOND, Reason.WINDOW_OPEN, True),
        (FIRST_DUE, Reason.WINDOW_OPEN, True),
        (FIRST_DUE + HOUR - 1, Reason.WINDOW_OPEN, True),
        (FIRST_DUE + HOUR, Reason.WINDOW_CLOSED, False),
        (FIRST_DUE + 10 * HOUR, Reason.WINDOW_CLOSED, False),
    ],
)
def test_an_occurrence_starts_before_the_window_closes_or_not_at_all(now, reason, is_open):
    judged = judge(Window(duration=HOUR), first_due=FIRST_DUE, now=now)
    assert judged == WindowDecision(reason=reason, first_due=FIRST_DUE, closes_at=FIRST_DUE + HOUR, now=now)
    assert judged.is_open is is_open


def test_a_window_closes_at_the_end_of_time_at_the_latest():
    assert Window(duration=HOUR).closes_at(MAX_INSTANT - SECOND) == MAX_INSTANT


def test_the_numbers_behind_a_judgement():
    facts = {"first_due": "2026-10-21T09:00:00Z", "closes_at": "2026-10-21T10:00:00Z"}
    still = judge(Window(duration=HOUR), first_due=FIRST_DUE, now=FIRST_DUE + 600 * SECOND)
    assert still.facts() == {**facts, "remaining_seconds": 3_000}
    late = judge(Window(duration=HOUR), first_due=FIRST_DUE, now=FIRST_DUE + 2 * HOUR)
    assert late.facts() == {**facts, "remaining_seconds": 0}


@pytest.mark.parametrize(
    ("trigger", "action", "warns"),
    [
        (None, EndAction.PAUSE, True),
        (OnceTrigger(from_micros(at(50))), EndAction.PAUSE, True),
        (every(100, end=150), EndAction.PAUSE, True),
        (EventTrigger("seen"), EndAction.PAUSE, True),
        (every(100), EndAction.PAUSE, False),
        (OnceTrigger(from_micros(at(50))), EndAction.CANCEL, False),
    ],
)
def test_a_pause_that_no_window_ends_is_warned_of(trigger, action, warns):
    window = Window(duration=SECOND, end_action=action)
    assert (last_window_warning(window, trigger, now=at(1)) is not None) is warns
    assert last_window_warning(None, trigger, now=at(1)) is None


@pytest.mark.parametrize(
    ("trigger", "duration", "now", "is_open", "since", "until"),
    [
        (every(100), 30, 7, True, 5, 35),  # it was due with a jitter of five seconds
        (every(100), 30, 35, False, 35, 100),
        (every(100), 30, 99, False, 35, 100),
        (every(100), 30, 100, True, 100, 130),
        (every(100), 30, 130, False, 130, 200),
        (every(100, end=150), 30, 140, False, 130, None),
        (None, 30, 34, True, 5, 35),
        (None, 30, 200, False, 35, None),
        (every(100), 150, 155, True, 100, 250),  # the next one had opened before the first closed
        (every(100), 150, 250, True, 200, 350),
    ],
)
def test_after_the_first_window_another_opens_at_each_fire(trigger, duration, now, is_open, since, until):
    spell = window_period_at(Window(duration=duration * SECOND), trigger, first_due=at(5), now=at(now))
    assert spell == WindowPeriod(is_open=is_open, since=at(since), until=None if until is None else at(until))
