"""Whether a call of a model may be made, by the budgets that cover it and the limits of its run."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING

from noonmark.core.budgets.budget import BudgetScope, Refused, Reserved, WhenExhausted
from noonmark.core.budgets.spend import Amount, to_dollars
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.budgets.budget import Reservation, RunLimits, Standing
    from noonmark.core.instants import Micros

Owner = tuple[BudgetScope, str]
"""Whose budget covers a call: a scope, and the id within it."""
_UNITS = {"tokens": "tokens", "model_calls": "model calls"}

BACKPRESSURE: tuple[tuple[Fraction, Micros], ...] = (
    (Fraction(100, 100), 5 * SECOND),
    (Fraction(95, 100), 1_500_000),
    (Fraction(90, 100), 750_000),
    (Fraction(85, 100), 300_000),
    (Fraction(80, 100), 50_000),
)
"""How long a call waits when this much of a budget is used, the call included."""


@frozen(kw_only=True)
class RunSpend:
    """What the calls of one occurrence have spent and reserved so far."""

    settled: Amount = field(default_factory=Amount)
    reserved: Amount = field(default_factory=Amount)
    model_calls: int = 0


@frozen
class _Check:
    """One limit, and what counts against it."""

    what: str
    limit: int
    settled: int
    reserved: int
    requested: int

    @property
    def used(self) -> int:
        return self.settled + self.reserved + self.requested

    @property
    def share(self) -> Fraction:
        """How much of the limit is used with this call; more than all of it, if nothing may be used."""
        return Fraction(self.used, self.limit) if self.limit else Fraction(2 * (self.used > 0))


def owners(*, tenant: str, user: str, schedule_id: str | None, session_id: str | None) -> list[Owner]:
    """Whose budgets cover a call, the narrowest first."""
    named = [(BudgetScope.SESSION, session_id), (BudgetScope.SCHEDULE, schedule_id)]
    covering = [(scope, name) for scope, name in named if name is not None]
    return [*covering, (BudgetScope.USER, user), (BudgetScope.TENANT, tenant)]


def decide(
    reservation: Reservation, standings: Sequence[Standing], run: RunSpend, whole: RunSpend | None = None
) -> Reserved | Refused:
    """Reserve a call or refuse it. Of several refusals, one that no approval can lift comes first.

    `whole` is what the run has spent that the occurrence is a step of.
    """
    most = reservation.most
    refusals = list(_beyond_run(most, reservation.limits, run, reservation.occurrence_id))
    if whole is not None and reservation.whole is not None:
        refusals += _beyond_run(most, reservation.whole.limits, whole, reservation.whole.occurrence_id)
    refusals += _beyond_budgets(reservation, standings)
    if refusals:
        return next((one for one in refusals if not one.needs_approval), refusals[0])
    shares = [check.share for one in standings for check in _checks(one, reservation)]
    fullest = max(shares, default=Fraction(0))
    delay = next((delay for share, delay in BACKPRESSURE if fullest >= share), 0)
    return Reserved(delay=delay, warnings=tuple(one for one in standings if is_beyond_threshold(one, reservation)))


def is_beyond_threshold(standing: Standing, reservation: Reservation | None = None) -> bool:
    """Whether a budget is used as far as its threshold, with a call that is reserved now."""
    threshold = standing.budget.warning_threshold
    if threshold is None:
        return False
    shares = [check.share for check in _checks(standing, reservation)]
    return max(shares, default=Fraction(0)) >= Fraction(str(threshold))


def _beyond_run(most: Amount, limits: RunLimits, run: RunSpend, occurrence_id: str) -> Iterator[Refused]:
    checks = []
    if limits.max_model_calls is not None:
        checks.append(_Check("model_calls", limits.max_model_calls, run.model_calls, 0, 1))
    if limits.max_tokens is not None:
        checks.append(_Check("tokens", limits.max_tokens, run.settled.tokens, run.reserved.tokens, most.tokens))
    if limits.max_cost is not None:
        checks.append(_cost(limits.max_cost, run.settled, run.reserved, most, limits.max_tokens))
    for check in checks:
        if check.what == "price" or check.used > check.limit:
            yield _refused(check, BudgetScope.RUN, occurrence_id)


def _beyond_budgets(reservation: Reservation, standings: Sequence[Standing]) -> Iterator[Refused]:
    for standing in standings:
        budget = standing.budget
        needs_approval = not budget.hard and budget.require_approval and not reservation.is_approved
        if not budget.hard and not needs_approval:
            continue
        for check in _checks(standing, reservation):
            if check.used > check.limit or (check.what == "price" and budget.hard):
                yield _refused(check, budget.scope, budget.scope_id, standing, needs_approval=needs_approval)


def _refused(
    check: _Check,
    scope: BudgetScope,
    scope_id: str,
    standing: Standing | None = None,
    *,
    needs_approval: bool = False,
) -> Refused:
    return Refused(
        scope=scope,
        scope_id=scope_id,
        what=check.what,
        limit=check.limit,
        settled=check.settled,
        reserved=check.reserved,
        requested=check.requested,
        resets_at=None if standing is None else standing.period_end,
        needs_approval=needs_approval,
        when_exhausted=WhenExhausted.SKIP if standing is None else standing.budget.when_exhausted,
    )


def _checks(standing: Standing, reservation: Reservation | None) -> Iterator[_Check]:
    """The limits of a budget, with a call that is reserved now."""
    budget, most = standing.budget, Amount() if reservation is None else reservation.most
    times = reservation.limits.multiplier if reservation is not None and budget.scope is BudgetScope.USER else 1
    max_tokens = None if budget.max_tokens is None else int(budget.max_tokens * times)
    if max_tokens is not None:
        yield _Check("tokens", max_tokens, standing.settled.tokens, standing.reserved.tokens, most.tokens)
    if budget.max_cost is not None:
        yield _cost(int(budget.max_cost * times), standing.settled, standing.reserved, most, max_tokens)


def _cost(limit: int, settled: Amount, reserved: Amount, most: Amount, max_tokens: int | None) -> _Check:
    """A limit on cost. A price that is unknown counts by its tokens, where those are limited too."""
    what = "price" if most.cost is None and max_tokens is None else "cost"
    return _Check(what, limit, settled.cost or 0, reserved.cost or 0, most.cost or 0)


def refusal_text(refused: Refused) -> str:
    """Whose limit it is, how much of it is used, and what the call needs."""
    owner_text = "of the run" if refused.scope is BudgetScope.RUN else f"of {refused.scope} {refused.scope_id}"
    if refused.what == "price":
        return (
            f"the price of the model is unknown, and the budget {owner_text} limits its cost alone;"
            " set its price (`prices`), or limit tokens (max_tokens)"
        )
    if refused.what == "breaker":
        return "the provider failed too often in a row, so it is not asked for a while"
    resets = "" if refused.resets_at is None else f"; a new period begins at {to_text(refused.resets_at)}"
    needs = f"up to {_shown(refused.what, refused.requested)}" if refused.what != "model_calls" else "one more"
    return (
        f"the budget {owner_text} is {_shown(refused.what, refused.limit)};"
        f" used {_shown(refused.what, refused.settled)}, reserved {_shown(refused.what, refused.reserved)},"
        f" and this call needs {needs}{resets}"
    )


def _shown(what: str, amount: int) -> str:
    return f"{amount:,} {_UNITS[what]}" if what in _UNITS else f"${to_dollars(amount)}"
