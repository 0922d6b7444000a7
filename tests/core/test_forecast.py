"""Forecasts: percentiles of the last runs, the fires that are left, and what is unknown."""

import pytest

from noonmark.core.budgets.forecast import forecast, month_of, percentile
from noonmark.core.instants import parse_instant

NOW = parse_instant("2026-11-18T05:00:00Z")
CENT = 10_000_000


@pytest.mark.parametrize(
    ("numbers", "p50", "p90"),
    [([7], 7, 7), ([1, 9], 1, 9), (range(1, 11), 5, 9), (range(1, 12), 6, 10), ([3] * 50, 3, 3)],
)
def test_percentiles_are_numbers_of_the_list(numbers, p50, p90):
    assert (percentile(list(numbers), 50), percentile(list(numbers), 90)) == (p50, p90)


@pytest.mark.parametrize(
    ("now", "start", "end"),
    [
        ("2026-11-18T05:00:00Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("2026-12-31T23:59:59.999999Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2028-02-01T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ],
)
def test_months_are_those_of_utc(now, start, end):
    assert month_of(parse_instant(now)) == (parse_instant(start), parse_instant(end))


def test_each_fire_that_is_left_costs_what_the_last_runs_did():
    costs = [CENT, 2 * CENT, 3 * CENT, 4 * CENT, None, 10 * CENT]
    result = forecast(costs, fires=12, spent=5 * CENT, limit=20 * CENT, now=NOW).to_document()
    assert result == {
        "month_start_utc": "2026-11-01T00:00:00Z",
        "month_end_utc": "2026-12-01T00:00:00Z",
        "spent_usd": 0.05,
        "runs": 5,
        "unpriced_runs": 1,
        "fires_left": 12,
        "run_p50_usd": 0.03,
        "run_p90_usd": 0.1,
        "p50_usd": 0.41,
        "p90_usd": 1.25,
        "at_most_usd": 2.45,
        "is_rough": False,
        "unknown": None,
    }


@pytest.mark.parametrize(
    ("costs", "fires", "p50", "is_rough", "unknown"),
    [
        ([], 3, None, False, "it has not run yet"),
        ([], None, None, False, "no trigger says how often it fires"),
        ([CENT], None, None, False, "no trigger says how often it fires"),
        ([None, None, CENT], 3, None, False, "the prices of most of its runs are unknown"),
        ([None, CENT], 3, 5 * CENT, True, None),
        ([CENT] * 4, 1, 3 * CENT, True, None),
        ([CENT] * 5, 1, 3 * CENT, False, None),
        ([0] * 5, 9, 2 * CENT, False, None),
        ([], 0, 2 * CENT, False, None),
    ],
    ids=str,
)
def test_what_cannot_be_known_is_said(costs, fires, p50, is_rough, unknown):
    result = forecast(costs, fires=fires, spent=2 * CENT, now=NOW)
    assert (result.p50, result.is_rough, result.unknown, result.most) == (
        p50,
        is_rough,
        unknown,
        None,
    )
