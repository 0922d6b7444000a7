"""Durations as people type them."""

import pytest

from noonmark.cli.inputs import parse_duration, parse_future, parse_past
from noonmark.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("2h", 7200),
        ("10s", 10),
        ("1d", 86_400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0.1s", 0.1),
        (".5m", 30),
        ("90", 90),
        ("0.25", 0.25),
        (" 5 m ", 300),
        ("0", 0),
    ],
)
def test_durations(text, seconds):
    found = parse_duration(text, field="--in")
    assert (found, type(found)) == (seconds, type(seconds))


@pytest.mark.parametrize(
    "text", ["", "m", "5w", "5M", "-5s", "+5s", "1e3", "5m30s", "inf", "nan", "٣s", "1_0", "9" * 13, "5\x00"]
)
def test_invalid_durations(text):
    with pytest.raises(InvalidRequest, match=r"^--in: must be a duration such as 30m"):
        parse_duration(text, field="--in")


@pytest.mark.parametrize("parse", [parse_future, parse_past])
def test_an_instant_that_may_be_a_duration_says_so(parse):
    with pytest.raises(InvalidRequest, match=r"^--until: must be an RFC 3339 instant .*, or a duration such as 2h$"):
        parse("tomorrow", "--until")
    assert parse("2027-01-01T01:00:00+01:00", "--until") == "2027-01-01T00:00:00Z"
    assert parse(None, "--until") is None
