"""Usage that a run, a caller or a receiver of requests reports."""

from __future__ import annotations

from dataclasses import asdict, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import Usage, to_nanos
from noonmark.core.documents import Reader
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import number_value, shown, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_TOKENS = 1_000_000_000_000
MAX_CALLS = 1_000_000
MAX_USD = 1_000_000
MAX_NAME = 200
MAX_REPORTS = 100
"""How many models one report may name."""


def usage_of(**fields: Any) -> Usage:
    """The usage with these fields; ValueError names the one that is wrong."""
    return _read(fields)


def read_reports(document: object) -> list[Usage]:
    """The usage in a JSON object, or in each object of an array; ValueError says what is wrong."""
    entries = document if isinstance(document, list) else [document]
    if len(entries) > MAX_REPORTS:
        raise ValueError(f"it has {len(entries):,} entries; at most {MAX_REPORTS:,} are allowed")
    return [_read(entry) for entry in entries]


def _read(document: object) -> Usage:
    reader = Reader(document, path="", code=InvalidRequest.code, problems=[])
    usage = read_usage(reader)
    reader.close()
    if reader.problems:
        problem = reader.problems[0]
        raise ValueError(f"{problem.field} {problem.message}" if problem.field else f"it {problem.message}")
    return usage


def read_usage(reader: Reader) -> Usage:
    """The fields of a report. `tokens` are those of unknown kind; a missing cost is unknown."""
    name = text_of(1, MAX_NAME)
    model, provider = reader.read("model", name, ""), reader.read("provider", name, "")
    count = {
        field: reader.integer(field, 0, high=MAX_TOKENS)
        for field in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "tokens")
    }
    if reader.raw("tokens") is not None and any(count[field] for field in count if field != "tokens"):
        reader.problem("tokens", "is for tokens of unknown kind; leave it out beside the others")
    return Usage(
        model=model or None,
        provider=provider or None,
        input_tokens=count["input_tokens"] + count["tokens"],
        output_tokens=count["output_tokens"],
        cache_read_tokens=count["cache_read_tokens"],
        cache_write_tokens=count["cache_write_tokens"],
        model_calls=reader.integer("model_calls", 1, high=MAX_CALLS),
        tool_calls=reader.integer("tool_calls", 0, high=MAX_CALLS),
        cost=reader.read("cost_usd", dollars, -1) if reader.raw("cost_usd") is not None else None,
    )


def dollars(value: object) -> int:
    """An amount of dollars as nano-dollars: a number, a `Decimal`, or either as text."""
    if isinstance(value, str | Decimal):
        try:
            amount = Decimal(value)
        except InvalidOperation:
            raise ValueError(f"must be a number, not {shown(value)}") from None
        if not amount.is_finite() or not 0 <= amount <= MAX_USD:
            raise ValueError(f"must be a number from 0 to {MAX_USD:,}, not {shown(str(value))}")
        return to_nanos(amount)
    return to_nanos(number_value(value, 0, MAX_USD))


def combine(reports: Iterable[Usage]) -> tuple[Usage, ...]:
    """The reports of each model and provider together."""
    by_model: dict[tuple[str | None, str | None], Usage] = {}
    for usage in reports:
        key = usage.model, usage.provider
        by_model[key] = by_model[key].plus(usage) if key in by_model else usage
    return tuple(by_model.values())


def total(reports: Iterable[Usage]) -> Usage | None:
    """All reports together; None without any."""
    usage_sum: Usage | None = None
    for usage in reports:
        usage_sum = usage if usage_sum is None else usage_sum.plus(usage)
    return usage_sum


def masked(usage: Usage, mask: Callable[[str], str]) -> Usage:
    """The usage with its names masked: a report may repeat a secret."""
    model, provider = (None if name is None else mask(name) for name in (usage.model, usage.provider))
    return replace(usage, model=model, provider=provider)


def to_fields(usage: Usage) -> dict[str, Any]:
    """The usage as fields, for another process."""
    return asdict(usage)


def from_fields(fields: Mapping[str, Any]) -> Usage:
    """The usage with such fields."""
    return Usage(**fields)
