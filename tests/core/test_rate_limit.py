"""Rate limits: a bucket gives what it has, and refills at its rate."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.rate_limit import RateLimit, Taken, parse_rate

NOW = 1_000 * SECOND
TEN = RateLimit(10, SECOND, 5)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100/s", RateLimit(100, SECOND, 20)),
        (" 600 / m ", RateLimit(600, 60 * SECOND, 2)),
        ("1/h", RateLimit(1, 3_600 * SECOND, 1)),
    ],
)
def test_a_rate_is_read(text, limit):
    assert parse_rate(text) == limit
    assert parse_rate(text, burst=None).burst == limit.quantity


@pytest.mark.parametrize("value", ["", "100", "0/s", "5/d", "-1/s", "100001/s", None, 5])
def test_what_is_no_rate_is_refused(value):
    with pytest.raises(ValueError, match="must be a rate such as 100/s, 600/m or 5000/h, not"):
        parse_rate(value)


def test_a_bucket_gives_what_it_has_and_says_when_there_is_more():
    assert TEN.take(None, 2, now=NOW) == Taken(2, NOW + 200_000, 3, 0)
    assert TEN.take(NOW + 200_000, 9, now=NOW) == Taken(3, NOW + 500_000, 0, 100_000)
    assert TEN.take(NOW + 500_000, 1, now=NOW) == Taken(0, NOW + 500_000, 0, 100_000)
    assert TEN.take(NOW + 500_000, 1, now=NOW + 100_000).granted == 1


def test_a_bucket_that_was_quiet_is_full_and_one_from_the_future_is_empty():
    assert TEN.take(NOW - 1, 9, now=NOW).granted == 5
    assert TEN.take(NOW + 999 * SECOND, 1, now=NOW) == Taken(0, NOW + 500_000, 0, 100_000)


def test_a_node_takes_a_small_portion():
    assert (parse_rate("1000/s").portion, TEN.portion) == (50, 1)
