"""What calls of models cost: by the table of the settings, or else by genai-prices. An unknown price is None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.budgets.spend import to_nanos

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.budgets.prices import Price
    from noonmark.core.budgets.spend import Usage
    from noonmark.targets.agent.model_names import ModelName


class PriceList:
    """The prices that a node knows."""

    def __init__(self, table: Mapping[str, Price]) -> None:
        """With prices by the name of the model, with or without its provider."""
        self._table = table

    def cost(self, model: ModelName, usage: Usage) -> int | None:
        """What a call has cost, in nano-dollars."""
        if (price := self._listed(model)) is not None:
            return price.cost(usage)
        if model.is_free:
            return 0
        return _looked_up(
            model,
            input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )

    def most(self, model: ModelName, input_tokens: int, output_tokens: int) -> int | None:
        """The most that a call can cost: all of its input may be written to a cache."""
        if (price := self._listed(model)) is not None:
            return price.most(input_tokens, output_tokens)
        if model.is_free:
            return 0
        plain = _looked_up(model, input_tokens=input_tokens, output_tokens=output_tokens)
        written = _looked_up(
            model, input_tokens=input_tokens, output_tokens=output_tokens, cache_write_tokens=input_tokens
        )
        return None if plain is None else max(plain, written or 0)

    def _listed(self, model: ModelName) -> Price | None:
        price = self._table.get(model.full)
        return self._table.get(model.name) if price is None else price


def _looked_up(model: ModelName, **tokens: int) -> int | None:
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - takes 0.2 s

    try:
        return to_nanos(calc_price(Usage(**tokens), model.name, provider_id=model.provider).total_price)
    except (LookupError, ValueError):
        return None
