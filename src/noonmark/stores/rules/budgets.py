"""Budgets: calls are reserved, settled, given back and reported, and counted against the budgets that cover them.

A call counts in the periods around the time at which it was reserved. A budget that is new counts what is stored of its
current period, and from then on its counters are changed with each call. So a counter of the current period that is
missing is 0, and one of an earlier period that is missing belongs to a budget that did not exist then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.budgets.breaker import Breaker
from noonmark.core.budgets.budget import BudgetScope, Refused, Reserved, approval_id
from noonmark.core.budgets.reservation import RunSpend, decide, is_beyond_threshold
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.ids import stored_id
from noonmark.ports.workflows import ApprovalState
from noonmark.stores.rules.budget_records import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.budgets.budget import Budget, Reservation, Standing
    from noonmark.ports.budgets import Settled, UsageRecord
    from noonmark.stores.rules.budget_records import BudgetKey, Counter
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def key_of(budget: Budget) -> BudgetKey:
    """What identifies a budget."""
    return (budget.tenant, budget.scope, budget.scope_id, budget.period)


def put(uow: UnitOfWork, budget: Budget) -> Standing:
    """Set a budget. A new one counts what is stored of its current period."""
    records, now = uow.budgets, uow.now()
    stored = replace(budget, updated=now)
    is_new = records.budget(key_of(budget)) is None
    records.put_budget(stored)
    start, _ = budget.period.bounds(now)
    if is_new:
        counter = records.count(stored, start)
    else:
        covering = [(budget.scope, budget.scope_id)]
        counters = records.counters(budget.tenant, covering, now)
        counter = next(one for one in counters if one.budget.period is budget.period)
        counter.budget = stored
    counter.is_warned = is_beyond_threshold(counter.standing)
    records.changed_counter(counter)
    return counter.standing


def delete(uow: UnitOfWork, key: BudgetKey) -> bool:
    """Delete a budget; False if there is none."""
    if uow.budgets.budget(key) is None:
        return False
    uow.budgets.delete_budget(key)
    return True


def reserve_all(uow: UnitOfWork, reservations: Sequence[Reservation]) -> list[Reserved | Refused]:
    """Reserve calls, in their order, each seeing the ones before it."""
    return [reserve(uow, one) for one in reservations]


def reserve(uow: UnitOfWork, reservation: Reservation) -> Reserved | Refused:
    """Reserve one call against every budget that covers it and the limits of its run, or refuse it."""
    records, now, tenant = uow.budgets, uow.now(), reservation.tenant
    occurrence_id, is_made = reservation.occurrence_id, reservation.fence is not None
    if reservation.fence is not None and not records.fence_holds(stored_id(occurrence_id), reservation.fence):
        return Refused(scope=None)
    stored = records.call(tenant, reservation.call_id)
    if stored is not None and stored.is_settled:
        # An admission may ask again; a call that was answered must not be made once more under its id.
        return Refused(scope=BudgetScope.RUN, scope_id=occurrence_id, what="settled") if is_made else Reserved()
    breaker = records.breaker(tenant, reservation.user) if is_made else None
    if breaker is not None and (opens_at := breaker.opens_at(now)) is not None:
        return Refused(scope=BudgetScope.USER, scope_id=reservation.user, what="breaker", resets_at=opens_at)
    whole_id = None if reservation.whole is None else reservation.whole.occurrence_id
    call = Call(
        call_id=reservation.call_id,
        tenant=tenant,
        user=reservation.user,
        schedule_id=reservation.schedule_id,
        session_id=reservation.session_id,
        occurrence_id=occurrence_id,
        whole_id=whole_id,
        at=now,
        is_settled=False,
        is_made=is_made,
        amount=reservation.most,
        usage=Usage(model=reservation.model, provider=reservation.provider),
    )
    run = records.run_spend(tenant, occurrence_id)
    whole = None if whole_id is None else records.run_spend(tenant, whole_id)
    if stored is not None:
        run = _without(run, stored)
        whole = _without(whole, stored) if whole is not None and stored.whole_id == whole_id else whole
        _count(uow, stored, give_back=stored.amount)
    counters = records.counters(tenant, call.owners, now)
    answer = decide(reservation, [one.standing for one in counters], run, whole)
    if isinstance(answer, Refused) and answer.needs_approval and _is_approved(uow, tenant, occurrence_id):
        answer = decide(replace(reservation, is_approved=True), [one.standing for one in counters], run, whole)
    if isinstance(answer, Refused):
        if stored is not None:
            _count(uow, stored, reserve=stored.amount)
        return answer
    records.put_call(call)
    if breaker is not None:
        records.put_breaker(tenant, reservation.user, breaker.tried(now))
    for counter in counters:
        counter.reserve(call.amount)
        records.changed_counter(counter)
    beyond = {key_of(one.budget) for one in answer.warnings}
    return replace(answer, warnings=_warn(uow, [one for one in counters if key_of(one.budget) in beyond]))


def settle_all(uow: UnitOfWork, settled: Sequence[Settled]) -> list[bool]:
    """Record what calls used, and give the rest back; False where a call is unknown or was settled before."""
    return [_settle(uow, one) for one in settled]


def give_back(uow: UnitOfWork, tenant: str, call_ids: Sequence[str]) -> None:
    """Give back what is reserved for calls that were not made."""
    calls = [uow.budgets.call(tenant, one) for one in call_ids]
    _give_back(uow, [one for one in calls if one is not None and not one.is_settled])


def give_back_unused(uow: UnitOfWork, tenant: str, occurrence_id: str) -> None:
    """An occurrence has ended: give back what its admission reserved, if it never called a model."""
    _give_back(uow, uow.budgets.calls_not_made(tenant, occurrence_id))


def record_all(uow: UnitOfWork, records: Sequence[UsageRecord]) -> list[bool]:
    """Record reported usage; False for a known id of a call."""
    return [_record(uow, one) for one in records]


def provider_failed(uow: UnitOfWork, tenant: str, user: str) -> None:
    """Count a failure of a provider for the breaker of a user."""
    breaker = uow.budgets.breaker(tenant, user) or Breaker()
    uow.budgets.put_breaker(tenant, user, breaker.failed(uow.now()))


def _is_approved(uow: UnitOfWork, tenant: str, occurrence_id: str) -> bool:
    """Whether somebody has approved that an occurrence goes beyond its soft budgets."""
    approval = uow.workflows.approval(tenant, approval_id(stored_id(occurrence_id)))
    return approval is not None and approval.state is ApprovalState.APPROVED


def _settle(uow: UnitOfWork, settled: Settled) -> bool:
    records = uow.budgets
    call = records.call(settled.tenant, settled.call_id)
    if call is None or call.is_settled:
        return False
    usage = replace(
        settled.usage,
        model=settled.usage.model or call.usage.model,
        provider=settled.usage.provider or call.usage.provider,
        model_calls=max(1, settled.usage.model_calls),
    )
    used = Amount(tokens=usage.total_tokens, cost=usage.cost)
    _count(uow, call, give_back=call.amount, settle=used)
    records.put_call(replace(call, is_settled=True, is_made=True, amount=used, usage=usage))
    if records.breaker(call.tenant, call.user) is not None:
        records.put_breaker(call.tenant, call.user, None)
    return True


def _give_back(uow: UnitOfWork, calls: Sequence[Call]) -> None:
    for call in calls:
        _count(uow, call, give_back=call.amount)
        uow.budgets.delete_call(call)


def _record(uow: UnitOfWork, record: UsageRecord) -> bool:
    records, now = uow.budgets, uow.now()
    if records.call(record.tenant, record.call_id) is not None:
        return False
    used = Amount(tokens=record.usage.total_tokens, cost=record.usage.cost)
    call = Call(
        call_id=record.call_id,
        tenant=record.tenant,
        user=record.user,
        schedule_id=record.schedule_id,
        session_id=record.session_id,
        occurrence_id=record.occurrence_id,
        at=min(record.at or now, now),
        is_settled=True,
        amount=used,
        usage=record.usage,
    )
    counters = {key_of(one.budget): one for one in records.stored_counters(call.tenant, call.owners, call.at)}
    for counter in records.counters(call.tenant, call.owners, now):
        if counter.period_start <= call.at:
            counters.setdefault(key_of(counter.budget), counter)
    for counter in counters.values():
        counter.settle(used)
        records.changed_counter(counter)
    records.put_call(call)
    _warn(uow, [one for one in counters.values() if is_beyond_threshold(one.standing)])
    return True


def _without(run: RunSpend, call: Call) -> RunSpend:
    """What a run has spent, without a call that is reserved."""
    left = Amount(
        tokens=run.reserved.tokens - call.amount.tokens, cost=(run.reserved.cost or 0) - (call.amount.cost or 0)
    )
    return replace(run, reserved=left, model_calls=run.model_calls - 1)


_NOTHING = Amount()


def _count(
    uow: UnitOfWork,
    call: Call,
    *,
    reserve: Amount = _NOTHING,
    give_back: Amount = _NOTHING,
    settle: Amount = _NOTHING,
) -> None:
    """Change the counters of the periods in which a call was reserved."""
    for counter in uow.budgets.stored_counters(call.tenant, call.owners, call.at):
        counter.reserve(reserve)
        counter.give_back(give_back)
        counter.settle(settle)
        uow.budgets.changed_counter(counter)


def _warn(uow: UnitOfWork, counters: Sequence[Counter]) -> tuple[Standing, ...]:
    """Note the thresholds that were not crossed before in their periods; returns these budgets."""
    crossed = [one for one in counters if not one.is_warned]
    for counter in crossed:
        counter.is_warned = True
        uow.budgets.changed_counter(counter)
    standings = tuple(one.standing for one in crossed)
    uow.crossed += standings
    return standings
