"""Durations and distances as people read them."""

from datetime import timedelta

import pytest

from noonmark.cli.render.times import duration_text, exact_text, relative_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.000034, "0.034 ms"),
        (0.0071234, "7.12 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1, "1 s"),
        (3.14159, "3.14 s"),
        (59.96, "60 s"),
        (90, "1 min 30 s"),
        (7_200, "2 h"),
    ],
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        ({}, "now"),
        ({"milliseconds": 999}, "now"),
        ({"seconds": 1}, "in 1 s"),
        ({"seconds": 125}, "in 2 min 5 s"),
        ({"hours": 3, "minutes": 12, "seconds": 59}, "in 3 h 12 min"),
        ({"hours": 3, "seconds": 59}, "in 3 h"),
        ({"days": 99, "hours": 23}, "in 99 d 23 h"),
        ({"days": 100, "hours": 23}, "in 100 d"),
        ({"days": 2_000_000}, "in 2,000,000 d"),
        ({"minutes": -5}, "5 min ago"),
        ({"days": -1, "hours": -2}, "1 d 2 h ago"),
    ],
)
def test_distances_from_now(distance, text):
    assert relative_text(timedelta(**distance)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.001, "1 ms"),
        (0.0125, "12.5 ms"),
        (1, "1 s"),
        (1.25, "1.25 s"),
        (300, "5 min"),
        (3_600, "1 h"),
        (3_601, "1 h 1 s"),
        (90_061.5, "1 d 1 h 1 min 1.5 s"),
        (3_155_760_000, "36525 d"),
    ],
)
def test_a_declared_duration_is_not_rounded(seconds, text):
    assert exact_text(seconds) == text
