"""Usage of calls of models in groups, for stores that add it up themselves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import from_micros
from noonmark.ports.budgets import UsageBy, UsageGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.stores.rules.budget_records import Call


def usage_groups(calls: Iterable[Call], by: UsageBy, limit: int) -> list[UsageGroup]:
    """The groups of calls: days in their order, and others by what they cost, the most first."""
    groups: defaultdict[str | None, _Group] = defaultdict(_Group)
    for call in calls:
        groups[_key(by, call)].add(call)
    result = [one.to_usage(by, key) for key, one in groups.items()]
    if by is UsageBy.DAY:
        return sorted(result, key=lambda one: one.key or "")[:limit]
    return sorted(result, key=lambda one: (-(one.usage.cost or 0), one.key or ""))[:limit]


class _Group:
    """Adds up the usage of calls."""

    def __init__(self) -> None:
        self._total = Usage(cost=0)
        self._unpriced = self._tokens = self._cost = 0

    def add(self, call: Call) -> None:
        if call.is_settled:
            self._unpriced += call.usage.cost is None
            self._total = self._total.plus(replace(call.usage, cost=call.usage.cost or 0))
        else:
            self._tokens += call.amount.tokens
            self._cost += call.amount.cost or 0

    def to_usage(self, by: UsageBy, key: str | None) -> UsageGroup:
        return UsageGroup(
            key=key,
            usage=replace(self._total, model=key if by is UsageBy.MODEL else None, provider=None),
            unpriced_calls=self._unpriced,
            reserved=Amount(tokens=self._tokens, cost=self._cost),
        )


def _key(by: UsageBy, call: Call) -> str | None:
    match by:
        case UsageBy.USER:
            return call.user
        case UsageBy.SCHEDULE:
            return call.schedule_id
        case UsageBy.SESSION:
            return call.session_id
        case UsageBy.MODEL:
            return call.usage.model
        case UsageBy.DAY:
            return from_micros(call.at).date().isoformat()
