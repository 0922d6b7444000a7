"""Limits: how much the caller may have, and how much of it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.instants import HOUR, SECOND, micros_to_seconds
from noonmark.core.quotas import COUNTED, TASK_ROUTE, Quota, Resource, Scope, inflight_key
from noonmark.operations.service import has_key_rate, limits_of
from noonmark.ports.records import ScheduleFilter

if TYPE_CHECKING:
    from noonmark.core.quotas import Limits
    from noonmark.core.rate_limit import RateLimit
    from noonmark.operations.models.arguments import NoArguments
    from noonmark.operations.service import Caller, Service


def get_limits(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Get the limits of the caller, and how much of each is used. Anything not listed is unlimited."""
    quotas = list(service.task_limits.quotas(caller.owner.tenant, Resource.TASKS))
    limit_documents: list[dict[str, Any]] = []
    for limits in limits_of(service, caller):
        quotas += limits.quotas(caller.owner.tenant, Resource.SCHEDULES, Resource.EVENTS, Resource.QUEUED)
        limit_documents += _fixed(limits, "")
    quotas += service.limits.quotas(caller.owner.tenant, Resource.IN_FLIGHT)
    limit_documents += _fixed(service.task_limits, "task_")
    limit_documents += [_rate(of, limit) for of, limit in service.rates.items() if of != "key" or has_key_rate(caller)]
    usage = [(quota, _used(service, caller, quota)) for quota in quotas]
    if service.uploads is not None:
        usage += service.uploads.usage(caller.owner.tenant)
    if service.bundle_limits is not None:
        quota = Quota(Resource.BUNDLE_BYTES, Scope.TENANT, service.bundle_limits.quota_bytes)
        usage.append((quota, service.store.bundle_bytes(caller.owner.tenant)))
    return {"limits": [*(_counted(quota, used) for quota, used in usage), *limit_documents]}


def _counted(quota: Quota, used: int) -> dict[str, Any]:
    return {"name": str(quota.resource), "scope": str(quota.scope), "value": quota.limit, "used": used}


def _used(service: Service, caller: Caller, quota: Quota) -> int:
    if quota.resource is Resource.EVENTS:
        bucket = quota.bucket(caller.owner.tenant, caller.owner.user)
        return quota.limit - service.store.take_tokens(bucket, quota.rate, 0).left
    user = caller.owner.user if quota.scope is Scope.USER else None
    if quota.resource is Resource.QUEUED:
        return service.store.count_waiting(caller.owner.tenant, user)
    if quota.resource is Resource.IN_FLIGHT:
        return service.store.count_places(caller.owner.tenant, inflight_key(quota, caller.owner).name)
    wanted = ScheduleFilter(
        user=user,
        phases=COUNTED,
        target=TASK_ROUTE if quota.resource is Resource.TASKS else None,
    )
    return service.store.count_schedules(caller.owner.tenant, wanted)


def _rate(scope: str, limit: RateLimit) -> dict[str, Any]:
    """A rate of requests; the headers of each answer say how much of it is left."""
    unit = {SECOND: "second", 60 * SECOND: "minute", HOUR: "hour"}[limit.per]
    return {"name": f"requests_per_{unit}", "scope": scope, "value": limit.quantity, "used": None}


def _fixed(limits: Limits, prefix: str) -> list[dict[str, Any]]:
    """The limits of each schedule, which nothing uses up."""
    interval = micros_to_seconds(limits.min_interval) if limits.min_interval else None
    values = {"min_interval_seconds": interval, "max_budget_usd": limits.max_budget_usd}
    return [
        {"name": f"{prefix}{name}", "scope": "schedule", "value": value, "used": None}
        for name, value in values.items()
        if value is not None
    ]
