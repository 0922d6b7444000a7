"""The expected rate: documents, windows, and what is reported of them."""

import json
from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.interruption import rate_line
from noonmark.core.planner import first_plan
from noonmark.core.policies.expected_rate import (
    ExpectedRate,
    RateAlert,
    RateProblem,
    RateWindow,
    close,
    count_ping,
    count_start,
    count_success,
    open_window,
    read_window,
    since,
)
from noonmark.core.schedule import parse_schedule
from noonmark.core.system_events import of_rate
from tests.core.scheduled import NOON, scheduled

PER = 60 * SECOND
NOW = NOON
RATE = ExpectedRate(per=PER, at_least=2, at_most=3)
WINDOW = RateWindow(ends=NOW + PER)
DOCUMENT = {
    "trigger": {"type": "event", "event_type": "seen"},
    "target": {"target_kind": "function", "function": "work"},
}


def read(rate):
    return parse_schedule(DOCUMENT | {"expected_rate": rate}, now=from_micros(NOW)).expected_rate


@pytest.mark.parametrize(
    "rate",
    [
        {"at_least": 2, "at_most": 3, "per_seconds": 60},
        {"at_least": 2, "per_seconds": 60},
        {"at_most": 3, "per_seconds": 0.5 + 1},
    ],
)
def test_a_rate_is_written_as_it_is_read(rate):
    assert read(rate).to_document() == rate


def test_no_rate_is_none():
    assert read(None) is None


@pytest.mark.parametrize(
    ("rate", "field", "message"),
    [
        ({"at_least": 1}, "per_seconds", "is required"),
        ({"per_seconds": 60}, "at_least", "is required, unless at_most is given"),
        ({"at_least": 3, "at_most": 2, "per_seconds": 60}, "at_most", "must not be less than at_least, 3"),
        ({"at_least": 0, "per_seconds": 60}, "at_least", "1"),
        ({"at_least": 1, "per_seconds": 0}, "per_seconds", "1"),
        ({"at_least": 1, "per_seconds": 60, "every": 1}, "every", ""),
    ],
)
def test_a_bad_rate_is_refused(rate, field, message):
    with pytest.raises(InvalidSchedule) as refused:
        read(rate)
    [problem] = refused.value.problems
    assert problem.field == f"expected_rate.{field}"
    assert message in problem.message


@pytest.mark.parametrize(
    ("window", "is_told", "window_after"),
    [
        (WINDOW, False, replace(WINDOW, started=1)),
        (replace(WINDOW, started=3), True, replace(WINDOW, started=4)),
        (replace(WINDOW, started=4), False, replace(WINDOW, started=5)),
        (replace(WINDOW, ends=NOW, started=3), False, replace(WINDOW, ends=NOW, started=3, started_after=1)),
        (replace(WINDOW, ends=NOW, started_after=3), True, replace(WINDOW, ends=NOW, started_after=4)),
    ],
)
def test_the_first_start_too_many_is_reported(window, is_told, window_after):
    counted = count_start(RATE, window, now=NOW)
    assert (counted.alert is not None, counted.window) == (is_told, replace(window_after, last_alert=counted.alert))
    if counted.alert is not None:
        assert (counted.alert.first, counted.alert.last, counted.alert.count) == (NOW, NOW + PER, 4)


def test_without_a_maximum_no_start_is_too_many():
    assert count_start(replace(RATE, at_most=None), replace(WINDOW, started=99), now=NOW).alert is None


def test_a_success_after_the_end_counts_for_the_next_window():
    assert count_success(WINDOW, now=NOW) == replace(WINDOW, succeeded=1)
    assert count_success(WINDOW, now=NOW + PER) == replace(WINDOW, succeeded_after=1)


@pytest.mark.parametrize(
    ("signals", "started", "succeeded", "is_begun"),
    [
        (["start", "success"], 1, 1, False),
        (["success"], 1, 1, False),
        (["start", "fail", "success"], 2, 1, False),
        (["start", "start"], 2, 0, True),
    ],
)
def test_pings_count_as_starts_and_successes(signals, started, succeeded, is_begun):
    window = WINDOW
    for signal in signals:
        is_start, is_success = signal == "start", signal == "success"
        window = count_ping(RATE, window, is_start=is_start, is_success=is_success, now=NOW).window
    assert window == replace(WINDOW, started=started, succeeded=succeeded, is_begun=is_begun)


@pytest.mark.parametrize(
    ("window", "late", "alert"),
    [
        (replace(WINDOW, succeeded=2), 0, None),
        (replace(WINDOW, succeeded=1), 0, (NOW, NOW + PER, 1, 1)),
        (replace(WINDOW, succeeded=1), 2 * PER, (NOW, NOW + 3 * PER, 1, 3)),
        (replace(WINDOW, succeeded=2), 2 * PER + 1, (NOW + PER, NOW + 3 * PER, 0, 2)),
    ],
)
def test_a_window_with_too_few_successes_is_reported(window, late, alert):
    judged = close(RATE, replace(window, started=5, started_after=1, succeeded_after=2), now=NOW + PER + late)
    following = RateWindow(ends=NOW + 2 * PER + late // PER * PER, started=1, succeeded=2, last_alert=judged.alert)
    assert judged.window == following
    told = judged.alert
    assert (told and (told.first, told.last, told.count, told.windows)) == alert


def test_without_a_minimum_no_window_is_reported():
    assert close(replace(RATE, at_least=None), WINDOW, now=NOW + PER).alert is None


def test_what_was_counted_since_a_window_was_read_is_not_lost():
    judged = close(RATE, WINDOW, now=NOW + PER).window
    stored = replace(WINDOW, started_after=2, succeeded_after=1)
    assert since(judged, WINDOW, stored) == replace(judged, started=2, succeeded=1)
    assert since(judged, WINDOW, replace(WINDOW, succeeded=1)) is None


def test_the_later_of_two_alerts_is_remembered():
    judged = close(RATE, WINDOW, now=NOW + PER).window
    stored = count_start(RATE, replace(WINDOW, started_after=3), now=NOW + PER).window
    assert judged.last_alert.problem is RateProblem.TOO_RARE
    assert stored.last_alert.problem is RateProblem.TOO_OFTEN
    assert since(judged, WINDOW, stored).last_alert == stored.last_alert
    older = replace(stored, last_alert=replace(stored.last_alert, last=NOW))
    assert since(judged, WINDOW, older).last_alert == judged.last_alert


@pytest.mark.parametrize("document", [None, [], {}, WINDOW.to_document() | {"ends": "soon"}])
def test_a_damaged_window_reads_as_none(document):
    assert read_window(document) is None


def test_a_window_reads_back():
    window = replace(
        WINDOW, started=1, succeeded=2, started_after=3, succeeded_after=4, is_begun=True, last_alert=OFTEN
    )
    assert read_window(json.loads(json.dumps(window.to_document()))) == window


@pytest.mark.parametrize("changed", [{"problem": "odd"}, {"count": "4"}, {"rate": None}])
def test_a_damaged_alert_is_forgotten(changed):
    document = replace(WINDOW, last_alert=OFTEN).to_document()
    document["last_alert"] |= changed
    assert read_window(document) == WINDOW


OFTEN = RateAlert(problem=RateProblem.TOO_OFTEN, rate=RATE, first=NOW, last=NOW + PER, count=4)
RARE = RateAlert(problem=RateProblem.TOO_RARE, rate=RATE, first=NOW, last=NOW + PER, count=0)


@pytest.mark.parametrize(
    ("alert", "line"),
    [
        (OFTEN, "runs too often: 4 starts within 60 s; at most 3 are expected"),
        (RARE, "runs too rarely: 0 successes within 60 s; at least 2 are expected"),
        (replace(RARE, count=1), "runs too rarely: 1 success within 60 s; at least 2 are expected"),
        (
            replace(RARE, windows=3),
            "runs too rarely: 0 successes within 60 s; at least 2 are expected, 3 times in a row",
        ),
    ],
)
def test_a_report_is_a_log_line_and_an_event(alert, line):
    schedule = scheduled(name="nightly", expected_rate=RATE)
    assert rate_line(schedule, alert) == f"nightly {line}"
    event = of_rate(schedule, alert)
    assert event.event_type == f"schedule.{alert.problem}"
    assert event.payload["expected_rate"] == {"at_least": 2, "at_most": 3, "per_seconds": 60}
    assert (event.payload["schedule_name"], event.payload["windows"]) == ("nightly", alert.windows)


class TestPlans:
    schedule = scheduled(expected_rate=RATE)
    snapshot = replace(first_plan(schedule, lookahead=0).snapshot, rate_window=WINDOW)

    @pytest.mark.parametrize(
        ("window", "now", "is_judged"),
        [(WINDOW, NOW + PER - 1, False), (WINDOW, NOW + PER, True), (None, NOW + PER, False)],
    )
    def test_judge_a_window_that_has_ended(self, window, now, is_judged):
        made = edits.plan_or_resume(replace(self.snapshot, rate_window=window), now=now, lookahead=0)
        assert (made.rate_window is not None, made.rate_alert is not None) == (is_judged, is_judged)

    def test_count_a_ping(self):
        made = edits.ping(self.snapshot, is_start=True, is_success=False, now=NOW, lookahead=0)
        assert made.rate_window == replace(open_window(RATE, now=NOW), started=1, is_begun=True)

    def test_count_no_ping_without_a_window(self):
        without = replace(self.snapshot, rate_window=None)
        assert edits.ping(without, is_start=True, is_success=False, now=NOW, lookahead=0) is None
