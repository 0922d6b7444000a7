"""Calls of models, the budgets that cover them, and what is counted against each, as the rules see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.budgets.budget import Standing
from noonmark.core.budgets.reservation import owners
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.budgets.breaker import Breaker
    from noonmark.core.budgets.budget import Budget, BudgetScope, Period
    from noonmark.core.budgets.reservation import Owner, RunSpend
    from noonmark.core.instants import Micros

    BudgetKey = tuple[str, BudgetScope, str, Period]
    """The tenant, scope, id and period of a budget."""


@frozen(kw_only=True)
class Call:
    """A call of a model: reserved, or settled with its usage."""

    call_id: str
    tenant: str
    user: str
    schedule_id: str | None = None
    session_id: str | None = None
    occurrence_id: str | None = None
    whole_id: str | None = None
    """The occurrence of the workflow run that it is made for, if the other one is a step of that."""
    at: Micros
    """When it was reserved or reported; it counts in the periods around that."""
    is_settled: bool
    is_made: bool = True
    """False while it is reserved for an occurrence that has not called a model yet."""
    amount: Amount
    """What is reserved, or what it used."""
    usage: Usage = field(default_factory=Usage)
    """With the model and the provider only, until it is settled."""

    @property
    def owners(self) -> list[Owner]:
        """Whose budgets cover it."""
        return owners(tenant=self.tenant, user=self.user, schedule_id=self.schedule_id, session_id=self.session_id)


@dataclass(slots=True)
class Counter:
    """What is counted against a budget in one period. Changed by the rules."""

    budget: Budget
    period_start: Micros
    settled_tokens: int = 0
    settled_cost: int = 0
    reserved_tokens: int = 0
    reserved_cost: int = 0
    is_warned: bool = False
    """Whether its threshold was crossed before."""

    @property
    def standing(self) -> Standing:
        """The budget, as callers see it."""
        _, end = self.budget.period.bounds(self.period_start)
        return Standing(
            budget=self.budget,
            settled=Amount(tokens=self.settled_tokens, cost=self.settled_cost),
            reserved=Amount(tokens=self.reserved_tokens, cost=self.reserved_cost),
            period_start=self.period_start,
            period_end=end,
        )

    def reserve(self, amount: Amount) -> None:
        """Count what is reserved."""
        self.reserved_tokens += amount.tokens
        self.reserved_cost += amount.cost or 0

    def give_back(self, amount: Amount) -> None:
        """Count what was reserved no more."""
        self.reserved_tokens = max(0, self.reserved_tokens - amount.tokens)
        self.reserved_cost = max(0, self.reserved_cost - (amount.cost or 0))

    def settle(self, amount: Amount) -> None:
        """Count what was used."""
        self.settled_tokens += amount.tokens
        self.settled_cost += amount.cost or 0


class BudgetRecords(ABC):
    """What the rules ask of a store. Nobody else changes the budgets and calls of a tenant meanwhile."""

    @abstractmethod
    def call(self, tenant: str, call_id: str) -> Call | None:
        """A call."""

    @abstractmethod
    def put_call(self, call: Call) -> None:
        """Store a call, in place of the one with its id."""

    @abstractmethod
    def delete_call(self, call: Call) -> None:
        """Delete a call."""

    @abstractmethod
    def calls_not_made(self, tenant: str, occurrence_id: str) -> list[Call]:
        """The calls that are reserved for an occurrence and were not made."""

    @abstractmethod
    def run_spend(self, tenant: str, occurrence_id: str) -> RunSpend:
        """What the calls of an occurrence have spent and reserved, those of its steps included."""

    @abstractmethod
    def fence_holds(self, occurrence_id: str, fence: int) -> bool:
        """Whether an occurrence is delivered with this fence."""

    @abstractmethod
    def budget(self, key: BudgetKey) -> Budget | None:
        """A budget."""

    @abstractmethod
    def put_budget(self, budget: Budget) -> None:
        """Store a budget, in place of the one with its key."""

    @abstractmethod
    def delete_budget(self, key: BudgetKey) -> None:
        """Delete a budget with its counters."""

    @abstractmethod
    def counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        """The counters of these owners' budgets in the periods around an instant, in the order of the owners.

        One that is not stored yet begins at 0.
        """

    @abstractmethod
    def stored_counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        """The same, without those that are not stored."""

    @abstractmethod
    def changed_counter(self, counter: Counter) -> None:
        """Store a counter that was changed."""

    @abstractmethod
    def count(self, budget: Budget, period_start: Micros) -> Counter:
        """A counter of the calls that are stored and that a budget covers, from the beginning of its period on."""

    @abstractmethod
    def breaker(self, tenant: str, user: str) -> Breaker | None:
        """The breaker of a user; None if the last call of a provider succeeded."""

    @abstractmethod
    def put_breaker(self, tenant: str, user: str, breaker: Breaker | None) -> None:
        """Store a breaker, or delete it."""
