"""Records as rows of the tables: column names, values, and JSON text."""

from __future__ import annotations

import json
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import Usage, to_nanos
from noonmark.core.json_values import storable
from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.run import Run

_MOST_DOLLARS = 10**9
Record = Row | ScheduleState | ConcurrencyKey


def _columns(record: type[Record]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(record) if one.init)


ROW_COLUMNS, STATE_COLUMNS, KEY_COLUMNS = _columns(Row), _columns(ScheduleState), _columns(ConcurrencyKey)
RUN_COLUMNS = (
    "occurrence", "fence", "schedule", "attempt", "node", "started", "ended", "outcome", "result", "error", "tokens",
    "cost", "usage",
)  # fmt: skip
row_values: Callable[[Row], tuple[Any, ...]] = attrgetter(*ROW_COLUMNS)
state_values: Callable[[ScheduleState], tuple[Any, ...]] = attrgetter(*STATE_COLUMNS)
key_values: Callable[[ConcurrencyKey], tuple[Any, ...]] = attrgetter(*KEY_COLUMNS)


def run_values(key: int, schedule: int, run: Run, result: str | None) -> tuple[Any, ...]:
    """The columns of a run of the row with that key, of that schedule; its id ends in the fence."""
    tokens, cost = (None, None) if run.usage is None else (run.usage.total_tokens, run.usage.cost)
    fence = int(run.id.rpartition("-")[2])
    error = None if run.error is None else storable(run.error)
    return (
        key, fence, schedule, run.attempt, run.node, run.started, run.ended, run.outcome, result, error, tokens, cost,
        None if run.usage is None else to_json(_usage_detail(run.usage)),
    )  # fmt: skip


def _usage_detail(usage: Usage) -> dict[str, Any] | None:
    """What the totals of a usage do not say; nothing if all tokens are input."""
    detail = {one.name: value for one in fields(usage) if one.name != "cost" and (value := getattr(usage, one.name))}
    return None if detail.keys() <= {"input_tokens"} else detail


def to_usage(tokens: Any, cost: Any, older_cost: Any, detail: str | None) -> Usage | None:
    """The usage of a run; that of an earlier version has a sum of tokens only, and dollars."""
    if type(tokens) is not int:
        return None
    if type(cost) is not int:
        cost = to_nanos(older_cost) if isinstance(older_cost, float) and 0 <= older_cost < _MOST_DOLLARS else None
    try:
        read = from_json(detail, "usage")
        return Usage(**({"input_tokens": tokens} if not isinstance(read, dict) else read), cost=cost)
    except (Unreadable, TypeError):
        return Usage(input_tokens=tokens, cost=cost)


def to_json(value: object) -> str | None:
    """A JSON value as text; nothing for None."""
    return None if value is None else json.dumps(value, sort_keys=False, separators=(",", ":"))


def from_json(text: str | None, column: str) -> object:
    """The value of a text in a column."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"its {column} is not JSON ({error})") from None
