"""Quotas: how much an owner may have, and what is refused beyond that.

A quota counts for one user or for a whole tenant. Stores count in the transaction that uses it, so that callers that
race cannot pass it together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule, QuotaExceeded
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.limits import KeyLimit
from noonmark.core.rate_limit import RateLimit
from noonmark.core.reasons import Reason
from noonmark.core.triggers.shortest_gap import shortest_gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Owner

COUNTED = frozenset({SchedulePhase.ACTIVE, SchedulePhase.PAUSED})
"""The phases of schedules that count."""
TASK_ROUTE = "task"
MINUTE: Micros = 60 * SECOND
EVERY_OTHER = "*"
"""As a tenant: every tenant that is not named."""


class Scope(StrEnum):
    """Whose use is counted."""

    USER = "user"
    TENANT = "tenant"


class Resource(StrEnum):
    """What is limited by a count."""

    SCHEDULES = "schedules"
    """Those that are active or paused."""
    TASKS = "tasks"
    """The same, with a target of kind task: those of the routes under `/api/v1`."""
    EVENTS = "events_per_minute"
    """Events that callers emit: a bucket of tokens, which is full after a minute without events."""
    QUEUED = "queued"
    """Occurrences that are due or were requested, and have not started."""
    IN_FLIGHT = "inflight"
    """Occurrences that have started and have not ended. One too many is not refused: it waits."""
    UPLOADS = "uploads"
    UPLOAD_BYTES = "upload_bytes"
    BUNDLE_BYTES = "bundle_bytes"
    """Of all stored bundles, older ones and unfinished pushes included."""


_WORDS = {
    Resource.SCHEDULES: ("schedule", "schedules", "delete one that is no longer needed"),
    Resource.TASKS: ("schedule", "schedules", "delete one that is no longer needed"),
    Resource.EVENTS: ("event a minute", "events a minute", "none are allowed"),
    Resource.QUEUED: ("waiting occurrence", "waiting occurrences", "try again when some have started"),
    Resource.UPLOADS: ("upload", "uploads", "delete some"),
    Resource.UPLOAD_BYTES: ("byte of uploads", "bytes of uploads", "delete some"),
    Resource.BUNDLE_BYTES: ("byte of bundles", "bytes of bundles", "delete some"),
}
"""What a refusal calls one and several of a resource, and what it advises."""


@frozen
class Quota:
    """The most of a resource that a user or a tenant may have."""

    resource: Resource
    scope: Scope
    limit: int

    def check(self, used: int, requested: int = 1, *, field: str = "") -> None:
        """QuotaExceeded, about a field of the request, if there is not room for so many more."""
        if used + requested > self.limit:
            raise self.exceeded(used, requested, field=field)

    @property
    def rate(self) -> RateLimit:
        """The limit of a number per minute as a bucket of tokens; all of them may be taken at once."""
        return RateLimit(max(1, self.limit), MINUTE, self.limit)

    def bucket(self, tenant: str, user: str) -> str:
        """The name of the bucket of tokens that an owner takes from."""
        owner = f"{tenant} {user}" if self.scope is Scope.USER else tenant
        return f"{self.resource} {self.scope} {owner}"

    def exceeded(self, used: int, requested: int = 1, *, wait: Micros = 0, field: str = "") -> QuotaExceeded:
        """The error of a use that does not fit; after `wait` there is room again, if that is known."""
        one, several, advice = _WORDS[self.resource]
        seconds = -(-wait // SECOND)
        advice = f"try again in {seconds:,} s" if seconds else advice
        reached = f"does not allow {requested:,} more" if requested > 1 else "is reached"
        are = "is" if used == 1 else "are"
        noun = one if self.limit == 1 else several
        message = f"the limit of {self.limit:,} {noun} per {self.scope} {reached}, {used:,} {are} used; {advice}"
        facts: dict[str, str | int] = {"name": self.resource, "scope": self.scope, "value": self.limit, "used": used}
        return QuotaExceeded(message, field=field, limit=facts, wait=seconds or None)


@frozen(kw_only=True)
class Limits:
    """The limits of callers that are not administrators of all tenants. None, and an absent tenant, is unlimited."""

    per_user: Mapping[Resource, Mapping[str, int]]
    """By resource and tenant; `*` is every other tenant."""
    per_tenant: Mapping[Resource, Mapping[str, int]]
    min_interval: Micros | None = None
    max_budget_usd: float | None = None

    def quotas(self, tenant: str, *resources: Resource) -> tuple[Quota, ...]:
        """The quotas of a tenant and of each of its users."""
        quotas = []
        for resource in resources:
            for scope, limits in ((Scope.USER, self.per_user), (Scope.TENANT, self.per_tenant)):
                by_tenant = limits.get(resource, {})
                limit = by_tenant.get(tenant, by_tenant.get(EVERY_OTHER))
                if limit is not None:
                    quotas.append(Quota(resource, scope, limit))
        return tuple(quotas)


def inflight_keys(limits: Limits, owner: Owner) -> tuple[KeyLimit, ...]:
    """The concurrency keys that count what is in flight of an owner, that of the user first."""
    return tuple(inflight_key(quota, owner) for quota in limits.quotas(owner.tenant, Resource.IN_FLIGHT))


def inflight_key(quota: Quota, owner: Owner) -> KeyLimit:
    """The concurrency key of a quota of occurrences in flight."""
    if quota.scope is Scope.USER:
        return KeyLimit(f"inflight\n{owner.user}", quota.limit, Reason.INFLIGHT_LIMIT)
    return KeyLimit("inflight\n", quota.limit, Reason.TENANT_INFLIGHT_LIMIT)


UNLIMITED = Limits(per_user={}, per_tenant={})


def check_declaration(limits: Limits, declaration: Declaration, before: Declaration | None) -> None:
    """Refuse a trigger that fires too often, or too large a budget, unless it was declared before."""
    min_interval, max_budget_usd = limits.min_interval, limits.max_budget_usd
    if min_interval and (before is None or before.trigger != declaration.trigger):
        gap = shortest_gap(declaration.trigger)
        if gap is not None and gap < min_interval:
            raise InvalidSchedule(
                f"can fire {_span(gap)} apart; the limit min_interval is {_span(min_interval)}", field="trigger"
            )
    budget = None if declaration.budget is None else declaration.budget.max_cost_usd
    known = None if before is None or before.budget is None else before.budget.max_cost_usd
    if max_budget_usd is not None and budget is not None and budget != known and budget > max_budget_usd:
        raise InvalidSchedule(
            f"must be at most {max_budget_usd:g}, the limit of a budget per run, not {budget:g}",
            field="budget.max_cost_usd",
        )


def _span(length: Micros) -> str:
    """A length of time in the largest unit that fits."""
    seconds = micros_to_seconds(length)
    if seconds and seconds % 60 == 0:
        return f"{seconds // 60:,} min"
    return f"{seconds:,} s"
