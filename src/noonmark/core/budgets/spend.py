"""Spend: tokens, and money as whole nano-dollars. An unknown price is None, never 0."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import Any

from noonmark.core.frozen import frozen

NANOS = 1_000_000_000
"""Nano-dollars in a dollar."""


def to_nanos(dollars: Decimal | float | str) -> int:
    """Dollars as nano-dollars, rounded up."""
    amount = Decimal(str(dollars)) if isinstance(dollars, float) else Decimal(dollars)
    return int((amount * NANOS).to_integral_value(rounding=ROUND_CEILING))


def to_dollars(nanos: int) -> float | int:
    """Nano-dollars as the number that JSON shows, with at most nine decimals."""
    return nanos // NANOS if nanos % NANOS == 0 else float(Decimal(nanos) / NANOS)


@frozen(kw_only=True)
class Amount:
    """Tokens and money together, such as what is reserved for a call."""

    tokens: int = 0
    cost: int | None = 0
    """Nano-dollars; None if the price is unknown."""


@frozen(kw_only=True)
class Usage:
    """What a run, a session or one call of a model has used."""

    model: str | None = None
    """The last one, where there were several."""
    provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    cost: int | None = 0
    """Nano-dollars; None if the price of any part is unknown."""

    @property
    def total_tokens(self) -> int:
        """All tokens, cached ones included."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            model=other.model or self.model,
            provider=other.provider or self.provider,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    def to_document(self) -> dict[str, Any]:
        """The usage as JSON shows it; `cost_usd` is null while a price is unknown."""
        return {
            "model": self.model,
            "provider": self.provider,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "total_tokens": self.total_tokens,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "cost_usd": None if self.cost is None else to_dollars(self.cost),
        }
