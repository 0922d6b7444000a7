"""Budgets: what users, schedules, sessions and the whole tenant may spend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from noonmark.core.api_key import Scope
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, WhenExhausted
from noonmark.core.budgets.spend import to_dollars
from noonmark.core.errors import InvalidRequest, MissingScope, NotAllowed, NotFound
from noonmark.core.json_values import shown
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import read_page, text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.budgets.budget import Standing
    from noonmark.core.budgets.spend import Amount
    from noonmark.operations.models.arguments import BudgetDeletion, BudgetQuery, NewBudget
    from noonmark.operations.service import Caller, Service

OF_ADMINS = frozenset({BudgetScope.TENANT, BudgetScope.USER})
"""The scopes of budgets that only an administrator may set."""


def set_budget(service: Service, caller: Caller, arguments: NewBudget) -> dict[str, Any]:
    """Set a budget. It replaces the one of the same period and keeps its spend, which is how to top up a budget."""
    _check_role(caller, arguments.scope, arguments.id_)
    _check_exists(service, caller, arguments.scope, arguments.id_)
    _check_limits(arguments)
    now = service.store.clock()
    budget = Budget(
        tenant=caller.owner.tenant,
        scope=arguments.scope,
        scope_id=arguments.id_,
        period=arguments.period,
        max_cost=arguments.max_cost_usd,
        max_tokens=arguments.max_tokens,
        hard=not arguments.require_approval if arguments.hard is None else arguments.hard,
        warning_threshold=arguments.warning_threshold,
        require_approval=arguments.require_approval,
        when_exhausted=arguments.when_exhausted,
        updated=now,
    )
    words = f"{_limits(budget)} a {budget.period}" if budget.period is not Period.TOTAL else f"{_limits(budget)} in all"
    about = f"{budget.scope} {budget.scope_id}: {words}"
    note = caller.audit(about)(None, None, now=now)
    standing = service.store.put_budget(budget, note=note)
    service.wake(None)
    return budget_document(standing)


def _check_limits(arguments: NewBudget) -> None:
    if arguments.max_cost_usd is None and arguments.max_tokens is None:
        raise InvalidRequest("is required, or max_tokens, or both", field="max_cost_usd")
    if arguments.require_approval and arguments.hard:
        raise InvalidRequest("belongs to a soft limit; set hard to false, or leave it out", field="require_approval")
    if arguments.when_exhausted is WhenExhausted.PAUSE_UNTIL_NEXT_PERIOD and arguments.period is Period.TOTAL:
        raise InvalidRequest(
            "needs a period of day or month; a total has no next one: allowed are skip, pause", field="when_exhausted"
        )


def _limits(budget: Budget) -> str:
    cost = None if budget.max_cost is None else f"{to_dollars(budget.max_cost)} USD"
    tokens = None if budget.max_tokens is None else f"{budget.max_tokens} tokens"
    return " and ".join(limit for limit in (cost, tokens) if limit is not None)


def delete_budget(service: Service, caller: Caller, arguments: BudgetDeletion) -> dict[str, Any]:
    """Delete the budget of a period, or all budgets of an owner. Their spend stays in the reports."""
    scope, scope_id = arguments.scope, arguments.id_
    _check_role(caller, scope, scope_id)
    tenant, now = caller.owner.tenant, service.store.clock()
    periods = list(Period) if arguments.period is None else [arguments.period]
    is_seen = scope in OF_ADMINS or _sees(service, caller, scope, scope_id)
    standings = service.store.budgets(tenant, len(Period), scope=scope, scope_id=scope_id) if is_seen else []
    deleted = []
    for standing in standings:
        period = standing.budget.period
        if period in periods:
            note = caller.audit(f"{scope} {scope_id}: {period}")(None, None, now=now)
            if service.store.delete_budget(tenant, scope, scope_id, period, note=note):
                deleted.append(standing)
    if not deleted:
        which = "" if arguments.period is None else f" for a {arguments.period}"
        raise NotFound(f"there is no budget of {scope} {scope_id!r}{which}", field="id")
    service.wake(None)
    return {"deleted": [budget_document(standing) for standing in deleted]}


def list_budgets(service: Service, caller: Caller, arguments: BudgetQuery) -> dict[str, Any]:
    """List budgets by scope, id and period, each with its spend."""
    start = None
    if arguments.cursor is not None:
        scope, scope_id, period = arguments.cursor
        start = scope, unquote(scope_id), period

    def read(count: int, place: tuple[str, str, str] | None) -> Sequence[Standing]:
        return service.store.budgets(
            caller.owner.tenant, count, scope=arguments.scope, scope_id=arguments.id_, after=place
        )

    def is_seen(standing: Standing) -> bool:
        return _sees(service, caller, standing.budget.scope, standing.budget.scope_id)

    def serialize(page: Sequence[Standing]) -> list[dict[str, Any]]:
        return [budget_document(standing) for standing in page]

    entries, end = read_page(arguments.limit, visible(read, _place, is_seen, start), serialize)
    cursor = None
    if end is not None:
        scope, scope_id, period = _place(end)
        cursor = write_cursor(scope, quote(scope_id), period)
    return {"budgets": entries, "next_cursor": cursor}


def _place(standing: Standing) -> tuple[str, str, str]:
    budget = standing.budget
    return str(budget.scope), budget.scope_id, str(budget.period)


def _check_role(caller: Caller, scope: BudgetScope, scope_id: str) -> None:
    """Refuse to change the budget of somebody whom the caller does not rule."""
    if caller.is_agent:
        raise NotAllowed("a person sets budgets; the key of an agent cannot")
    if scope in OF_ADMINS and not caller.is_admin:
        raise MissingScope(f"the budget of a {scope} needs the scope {Scope.ADMIN}")
    if scope is BudgetScope.TENANT and scope_id != caller.owner.tenant:
        raise NotFound(f"there is no tenant {shown(scope_id)} for this caller", field="id")


def _check_exists(service: Service, caller: Caller, scope: BudgetScope, scope_id: str) -> None:
    """Refuse a schedule or a session that does not exist for the caller."""
    tenant, exists = caller.owner.tenant, True
    if scope is BudgetScope.SCHEDULE:
        exists = service.store.find(tenant, scope_id) is not None
    elif scope is BudgetScope.SESSION:
        exists = service.store.session(tenant, scope_id) is not None
    if not exists or (scope not in OF_ADMINS and not _sees(service, caller, scope, scope_id)):
        raise NotFound(f"there is no {scope} {scope_id!r}", field="id")


def _sees(service: Service, caller: Caller, scope: BudgetScope, scope_id: str) -> bool:
    """Whether a caller sees a budget: that of its own schedules and sessions, or all of its tenant."""
    tenant, user = caller.owner.tenant, caller.owner.user
    if not caller.sees_own_only:
        return True
    if scope is BudgetScope.SCHEDULE:
        stored = service.store.find(tenant, scope_id, deleted=True)
        return stored is not None and caller.sees(stored.schedule)
    if scope is BudgetScope.SESSION:
        session = service.store.session(tenant, scope_id)
        return session is not None and session.user == user
    return scope is BudgetScope.USER and scope_id == user


def budget_document(standing: Standing) -> dict[str, Any]:
    """A budget and its spend."""
    budget = standing.budget
    return {
        "scope": str(budget.scope),
        "id": budget.scope_id,
        "period": str(budget.period),
        "max_cost_usd": None if budget.max_cost is None else to_dollars(budget.max_cost),
        "max_tokens": budget.max_tokens,
        "hard": budget.hard,
        "warning_threshold": budget.warning_threshold,
        "require_approval": budget.require_approval,
        "when_exhausted": str(budget.when_exhausted),
        "spent_usd": _dollars(standing.settled),
        "spent_tokens": standing.settled.tokens,
        "reserved_usd": _dollars(standing.reserved),
        "reserved_tokens": standing.reserved.tokens,
        "period_start_utc": None if standing.period_end is None else text(standing.period_start),
        "period_end_utc": text(standing.period_end),
        "updated_at_utc": text(budget.updated),
    }


def _dollars(amount: Amount) -> float | int | None:
    return None if amount.cost is None else to_dollars(amount.cost)
