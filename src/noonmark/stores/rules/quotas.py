"""Quotas: counted in the transaction that adds a schedule, an occurrence or an event, or reopens a schedule."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from noonmark.core.ids import is_hidden
from noonmark.core.quotas import COUNTED, TASK_ROUTE, Resource, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.planner import Plan
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Owner, Schedule
    from noonmark.stores.rules.records import ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def check(uow: UnitOfWork, plan: Plan, schedule: Schedule, added: Sequence[Schedule] = ()) -> None:
    """QuotaExceeded if a schedule does not fit, with those stored and those added before it in this call."""
    for quota in () if is_hidden(schedule.schedule_id) else plan.quotas:
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


def check_queue(uow: UnitOfWork, quotas: Sequence[Quota], owner: Owner, count: int) -> None:
    """QuotaExceeded if that many more occurrences of the schedules of an owner may not wait."""
    for quota in quotas:
        if quota.resource is Resource.QUEUED:
            user = owner.user if quota.scope is Scope.USER else None
            quota.check(uow.count_waiting(owner.tenant, user), count)


def check_added(uow: UnitOfWork, quotas: Sequence[Quota], states: Sequence[ScheduleState]) -> None:
    """QuotaExceeded if one more occurrence of each of these schedules, some of them repeated, may not wait."""
    schedules = uow.schedules_of({state.schedule: state for state in states}.values())
    owners = [schedule.owner for state in states if not isinstance(schedule := schedules[state.schedule], Exception)]
    of_tenants = Counter(owner.tenant for owner in owners)
    for owner, count in Counter(owners).items():
        check_queue(uow, [one for one in quotas if one.scope is Scope.USER], owner, count)
        check_queue(uow, [one for one in quotas if one.scope is Scope.TENANT], owner, of_tenants[owner.tenant])


def _counts(quota: Quota, schedule: Schedule, other: Schedule) -> bool:
    """Whether another schedule uses the same quota."""
    is_own = other.owner.tenant == schedule.owner.tenant and not is_hidden(other.schedule_id)
    is_counted = other.phase in COUNTED and is_own
    is_same_user = quota.scope is Scope.TENANT or other.owner.user == schedule.owner.user
    is_same_kind = quota.resource is not Resource.TASKS or other.declaration.target.route == TASK_ROUTE
    return is_counted and is_same_user and is_same_kind
