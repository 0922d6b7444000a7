"""Budgets, their counters, and calls of models."""

from __future__ import annotations

from collections import Counter as Sums
from collections import defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING

from noonmark.core.budgets.budget import BudgetScope, Period
from noonmark.core.budgets.reservation import RunSpend
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.policies.runaway import HOUR
from noonmark.stores.rules import budget_records as rules
from noonmark.stores.rules.budget_records import Counter
from noonmark.stores.rules.records import DELIVERING
from noonmark.stores.rules.usage_groups import usage_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from noonmark.core.budgets.breaker import Breaker
    from noonmark.core.budgets.budget import Budget, Standing
    from noonmark.core.budgets.reservation import Owner
    from noonmark.core.instants import Micros
    from noonmark.ports.budgets import UsageBy, UsageGroup
    from noonmark.stores.rules.budget_records import BudgetKey, Call
    from noonmark.stores.rules.records import Row


class BudgetRecords(rules.BudgetRecords):
    """Everything about budgets."""

    def __init__(self, now: Callable[[], Micros], rows: Mapping[str, Row]) -> None:
        """There is nothing yet; the rows are those of the store, by id."""
        self._now, self._rows = now, rows
        self._budgets: dict[BudgetKey, Budget] = {}
        self._counters: dict[tuple[BudgetKey, Micros], Counter] = {}
        self._calls: dict[tuple[str, str], Call] = {}
        self._of_occurrence: defaultdict[str, dict[tuple[str, str], Call]] = defaultdict(dict)
        self._breakers: dict[tuple[str, str], Breaker] = {}

    def call(self, tenant: str, call_id: str) -> Call | None:
        return self._calls.get((tenant, call_id))

    def put_call(self, call: Call) -> None:
        name = (call.tenant, call.call_id)
        self._calls[name] = call
        for occurrence_id in _counted_for(call):
            self._of_occurrence[occurrence_id][name] = call

    def delete_call(self, call: Call) -> None:
        name = (call.tenant, call.call_id)
        del self._calls[name]
        for occurrence_id in _counted_for(call):
            self._of_occurrence[occurrence_id].pop(name)
            if not self._of_occurrence[occurrence_id]:
                del self._of_occurrence[occurrence_id]

    def calls_not_made(self, tenant: str, occurrence_id: str) -> list[Call]:
        calls = self._of_occurrence.get(occurrence_id, {}).values()
        own = [one for one in calls if one.tenant == tenant and one.occurrence_id == occurrence_id]
        return [one for one in own if not one.is_settled and not one.is_made]

    def run_spend(self, tenant: str, occurrence_id: str) -> RunSpend:
        calls = [one for one in self._of_occurrence.get(occurrence_id, {}).values() if one.tenant == tenant]
        settled, reserved = _sums(calls)
        model_calls = sum(one.usage.model_calls if one.is_settled else 1 for one in calls)
        return RunSpend(settled=settled, reserved=reserved, model_calls=model_calls)

    def fence_holds(self, occurrence_id: str, fence: int) -> bool:
        row = self._rows.get(occurrence_id)
        return row is not None and row.fence == fence and row.phase in DELIVERING

    def budget(self, key: BudgetKey) -> Budget | None:
        return self._budgets.get(key)

    def put_budget(self, budget: Budget) -> None:
        key = (budget.tenant, budget.scope, budget.scope_id, budget.period)
        self._budgets[key] = budget
        for (owner, _), counter in self._counters.items():
            if owner == key:
                counter.budget = budget

    def delete_budget(self, key: BudgetKey) -> None:
        del self._budgets[key]
        self._counters = {name: one for name, one in self._counters.items() if name[0] != key}

    def counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        keys = [(tenant, scope, scope_id, period) for scope, scope_id in covering for period in Period]
        return [self._counter(budget, at) for key in keys if (budget := self._budgets.get(key)) is not None]

    def stored_counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        stored_ids = {id(counter) for counter in self._counters.values()}
        return [one for one in self.counters(tenant, covering, at) if id(one) in stored_ids]

    def changed_counter(self, counter: Counter) -> None:
        budget = counter.budget
        key = (budget.tenant, budget.scope, budget.scope_id, budget.period)
        self._counters[key, counter.period_start] = counter

    def count(self, budget: Budget, period_start: Micros) -> Counter:
        calls = [
            one
            for one in self._calls.values()
            if one.at >= period_start
            and one.tenant == budget.tenant
            and (budget.scope is BudgetScope.TENANT or (budget.scope, budget.scope_id) in one.owners)
        ]
        settled, reserved = _sums(calls)
        return Counter(budget, period_start, settled.tokens, settled.cost or 0, reserved.tokens, reserved.cost or 0)

    def breaker(self, tenant: str, user: str) -> Breaker | None:
        return self._breakers.get((tenant, user))

    def put_breaker(self, tenant: str, user: str, breaker: Breaker | None) -> None:
        if breaker is None:
            self._breakers.pop((tenant, user), None)
        else:
            self._breakers[tenant, user] = breaker

    def page(
        self,
        tenant: str,
        limit: int,
        scope: BudgetScope | None,
        scope_id: str | None,
        after: tuple[str, str, str] | None,
    ) -> list[Standing]:
        """Budgets with their counters, by scope, id and period."""
        budgets = [
            budget
            for (owner, *place), budget in sorted(self._budgets.items())
            if owner == tenant
            and scope in (None, budget.scope)
            and scope_id in (None, budget.scope_id)
            and (after is None or tuple(place) > after)
        ]
        return [self._counter(budget, self._now()).standing for budget in budgets[:limit]]

    def run_usage(self, occurrence_id: str) -> Usage | None:
        """What the settled calls of an occurrence used."""
        calls = [one for one in self._of_occurrence.get(occurrence_id, {}).values() if one.is_settled]
        total: Usage | None = None
        for call in sorted(calls, key=lambda one: (one.at, one.call_id)):
            total = call.usage if total is None else total.plus(call.usage)
        return total

    def usage(  # noqa: PLR0913 - as the port has it
        self,
        tenant: str,
        by: UsageBy,
        *,
        since: Micros,
        until: Micros,
        limit: int,
        user: str | None,
        schedule_id: str | None,
    ) -> list[UsageGroup]:
        """Usage of calls in a stretch of time, in groups."""
        calls = (
            call
            for call in self._calls.values()
            if call.tenant == tenant
            and since <= call.at < until
            and user in (None, call.user)
            and schedule_id in (None, call.schedule_id)
        )
        return usage_groups(calls, by, limit)

    def cost_of(self, occurrence_id: str) -> int | None:
        """What the settled calls of an occurrence cost; None if a price is unknown."""
        calls = self._of_occurrence.get(occurrence_id, {}).values()
        costs = [one.amount.cost for one in calls if one.is_settled]
        return None if None in costs else sum(cost or 0 for cost in costs)

    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        """The schedules that have spent more than that since a time."""
        spent: Sums[tuple[str, str]] = Sums()
        for call in self._calls.values():
            if call.is_settled and call.at > since and call.schedule_id is not None:
                spent[call.tenant, call.schedule_id] += call.amount.cost or 0
        ordered = sorted(spent.items(), key=lambda one: (-one[1], one[0]))
        return [schedule for schedule, cost in ordered if cost > above][:limit]

    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        """What a schedule has spent in each hour before a time."""
        spent: Sums[int] = Sums()
        for call in self._calls.values():
            if (
                (call.tenant, call.schedule_id) == (tenant, schedule_id)
                and call.is_settled
                and since < call.at <= until
            ):
                spent[(until - call.at) // HOUR] += call.amount.cost or 0
        return [cost for _, cost in sorted(spent.items()) if cost > 0]

    def prune(self, *, before: Micros, limit: int) -> int:
        """Delete old settled calls."""
        old = (one for one in self._calls.values() if one.is_settled and one.at < before)
        calls = nsmallest(limit, old, key=lambda one: one.at)
        for call in calls:
            self.delete_call(call)
        return len(calls)

    def _counter(self, budget: Budget, at: Micros) -> Counter:
        key = (budget.tenant, budget.scope, budget.scope_id, budget.period)
        start, _ = budget.period.bounds(at)
        return self._counters.get((key, start)) or Counter(budget, start)


def _counted_for(call: Call) -> set[str]:
    """The occurrence that a call was made for, and the workflow run that it is a step of."""
    return {one for one in (call.occurrence_id, call.whole_id) if one is not None}


def _sums(calls: Iterable[Call]) -> tuple[Amount, Amount]:
    """What is settled, and what is reserved."""
    tokens, costs = {True: 0, False: 0}, {True: 0, False: 0}
    for call in calls:
        tokens[call.is_settled] += call.amount.tokens
        costs[call.is_settled] += call.amount.cost or 0
    return Amount(tokens=tokens[True], cost=costs[True]), Amount(tokens=tokens[False], cost=costs[False])
