"""Prices: exact, and rounded up to a nano-dollar."""

from decimal import Decimal

import pytest

from noonmark.core.budgets.prices import Price, parse_price
from noonmark.core.budgets.spend import Usage

PLAIN = Price(input=Decimal("2.5"), output=Decimal(10))
CACHED = Price(input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75"))


@pytest.mark.parametrize(
    ("price", "usage", "nanos"),
    [
        (PLAIN, Usage(input_tokens=1, output_tokens=1), 12_500),
        (PLAIN, Usage(input_tokens=1_000_000), 2_500_000_000),
        (PLAIN, Usage(cache_read_tokens=2, cache_write_tokens=2), 10_000),
        (CACHED, Usage(input_tokens=1, output_tokens=1, cache_read_tokens=10, cache_write_tokens=4), 36_000),
        (Price(input=Decimal("0.0001"), output=Decimal(0)), Usage(input_tokens=3), 1),
        (Price(input=Decimal(0), output=Decimal(0)), Usage(input_tokens=3), 0),
    ],
)
def test_what_a_call_has_cost(price, usage, nanos):
    assert price.cost(usage) == nanos


@pytest.mark.parametrize(
    ("price", "tokens", "nanos"),
    [
        (PLAIN, (1_000, 100), 3_500_000),
        (CACHED, (1_000, 100), 5_250_000),
        (Price(input=Decimal(3), output=Decimal(0), cache_write=Decimal(1)), (10, 0), 30_000),
    ],
)
def test_the_most_that_a_call_can_cost(price, tokens, nanos):
    assert price.most(*tokens) == nanos


@pytest.mark.parametrize(
    ("text", "price"),
    [("2.5, 10", PLAIN), ("3,15,0.3,3.75", CACHED), ("0,0", Price(input=Decimal(0), output=Decimal(0)))],
)
def test_a_price_is_read(text, price):
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "1,2,3,4,5", "a,b", "-1,2", "nan,1", "1,Infinity", "1,2000000"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"must be dollars per million tokens, as INPUT,OUTPUT .*, not "):
        parse_price(text)
