"""Quotas: counted in the transaction that adds a schedule, reopens one that has completed, or stores an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.quotas import COUNTED, TASK_ROUTE, Resource, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.planner import Plan
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def check(uow: UnitOfWork, plan: Plan, schedule: Schedule, added: Sequence[Schedule] = ()) -> None:
    """QuotaExceeded if a schedule does not fit, with those stored and those added before it in this call."""
    for quota in plan.quotas:
        user = schedule.owner.user if quota.scope is Scope.USER else None
        route = TASK_ROUTE if quota.resource is Resource.TASKS else None
        if schedule.phase not in COUNTED or route not in (None, schedule.declaration.target.route):
            continue
        used = uow.count_schedules(schedule.owner.tenant, user, route)
        quota.check(used + sum(_counts(quota, schedule, one) for one in added))


def take_events(uow: UnitOfWork, quotas: Sequence[Quota], tenant: str, user: str, count: int) -> None:
    """Take the tokens of some events from every bucket; QuotaExceeded, and none taken, if one has too few."""
    limits = [one for one in quotas if one.resource is Resource.EVENTS]
    for quota in limits:
        there = uow.take_tokens(quota.bucket(tenant, user), quota.rate, 0)
        if there.left < count:
            raise quota.exceeded(quota.limit - there.left, wait=there.wait if quota.limit else 0)
    for quota in limits:
        uow.take_tokens(quota.bucket(tenant, user), quota.rate, count)


def _counts(quota: Quota, schedule: Schedule, other: Schedule) -> bool:
    """Whether another schedule uses the same quota."""
    is_counted = other.phase in COUNTED and other.owner.tenant == schedule.owner.tenant
    is_same_user = quota.scope is Scope.TENANT or other.owner.user == schedule.owner.user
    is_same_kind = quota.resource is not Resource.TASKS or other.declaration.target.route == TASK_ROUTE
    return is_counted and is_same_user and is_same_kind
