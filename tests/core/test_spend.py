"""Money is whole nano-dollars, and an unknown price stays unknown."""

from decimal import Decimal

import pytest

from noonmark.core.budgets.spend import Usage, to_dollars, to_nanos


@pytest.mark.parametrize(
    ("dollars", "nanos"),
    [
        (0.1, 100_000_000),
        ("0.000000001", 1),
        (Decimal("1e-10"), 1),
        (2, 2_000_000_000),
        (0.1 + 0.2, 300_000_001),
        (0, 0),
    ],
)
def test_dollars_are_rounded_up_to_nano_dollars(dollars, nanos):
    assert to_nanos(dollars) == nanos


@pytest.mark.parametrize(
    ("nanos", "shown"), [(1, "1e-09"), (250_000_000, "0.25"), (3_000_000_000, "3"), (1_000_000_001, "1.000000001")]
)
def test_json_shows_at_most_nine_decimals(nanos, shown):
    assert str(to_dollars(nanos)) == shown


def test_usage_is_added_up():
    one = Usage(model="a", provider="p", input_tokens=1, output_tokens=2, cache_read_tokens=3, model_calls=1, cost=5)
    two = Usage(model="b", cache_write_tokens=4, tool_calls=2, cost=6)
    both = one.plus(two)
    assert both == Usage(
        model="b",
        provider="p",
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        model_calls=1,
        tool_calls=2,
        cost=11,
    )
    assert both.total_tokens == 10
    assert both.to_document() == {
        "model": "b",
        "provider": "p",
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_tokens": 3,
        "cache_write_tokens": 4,
        "total_tokens": 10,
        "model_calls": 1,
        "tool_calls": 2,
        "cost_usd": 1.1e-08,
    }


def test_with_an_unknown_price_a_sum_is_unknown():
    for one, other in ((Usage(cost=None), Usage(cost=1)), (Usage(cost=1), Usage(cost=None))):
        assert one.plus(other).to_document()["cost_usd"] is None
    assert Usage().to_document()["cost_usd"] == 0
