"""Prices of models: dollars per million tokens, exact. Costs are rounded up to a nano-dollar."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Usage

NANOS_PER_TOKEN = 1_000
"""The price of one token in nano-dollars, where a million tokens cost a dollar."""
MAX_PRICE = 1_000_000
_FIELDS = (2, 4)
_ALLOWED = "must be dollars per million tokens, as INPUT,OUTPUT or INPUT,OUTPUT,CACHE_READ,CACHE_WRITE, such as 2.5,10"


@frozen(kw_only=True)
class Price:
    """Dollars per million tokens. Cached input costs as much as other input, unless it is priced."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def cost(self, usage: Usage) -> int:
        """What a call has cost, in nano-dollars."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return _nanos(
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
        )

    def most(self, input_tokens: int, output_tokens: int) -> int:
        """The most that a call can cost: all of its input may be written to a cache."""
        dearest = max(self.input, self.cache_write or 0)
        return _nanos(input_tokens * dearest + output_tokens * self.output)


def _nanos(millionths: Decimal) -> int:
    return int((millionths * NANOS_PER_TOKEN).to_integral_value(rounding=ROUND_CEILING))


def parse_price(text: str) -> Price:
    """Read a price; ValueError says what is allowed."""
    try:
        parts = [Decimal(part.strip()) for part in text.split(",")]
    except InvalidOperation:
        parts = []
    if len(parts) not in _FIELDS or not all(part.is_finite() and 0 <= part <= MAX_PRICE for part in parts):
        raise ValueError(f"{_ALLOWED}, not {shown(text)}")
    return Price(**dict(zip(("input", "output", "cache_read", "cache_write"), parts, strict=False)))
