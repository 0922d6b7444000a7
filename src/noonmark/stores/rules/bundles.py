"""What stores decide about bundles: which archive an occurrence runs, what uses one, and what fits a quota."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.occurrence import Overrides, PinnedBundle
from noonmark.core.quotas import Resource
from noonmark.core.targets import BundleTarget
from noonmark.ports.workflows import UsedKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import UnitOfWork

    Users = Callable[[str, str | None, Collection[str]], list[str]]
    """Finds what needs a bundle of a tenant, or one of some archives of it."""

MAX_USERS = 100
"""How many schedules and occurrences that use a bundle are named."""


def check_bytes(limits: Sequence[Quota], used: int, wanted: int) -> None:
    """QuotaExceeded if a tenant may not store that many more bytes."""
    for quota in limits:
        if quota.resource is Resource.BUNDLE_BYTES:
            quota.check(used, wanted)


def pin(uow: UnitOfWork, row: Row, schedule: Schedule) -> None:
    """Record the archive that a row which starts is to run, so that its other attempts run the same one.

    `schedule` is as it applies to the row. If it names no archive that there is, the delivery will say so.
    """
    target, own = schedule.declaration.target, uow.overrides(row)
    if not isinstance(target, BundleTarget):
        return
    if own is not None and own.bundle is not None and own.bundle.applies_to(target):
        return
    bundle = uow.find_bundle(schedule.owner.tenant, target.bundle_id, target.digest)
    if bundle is not None:
        is_workflow = bundle.workflow_version is not None
        pinned = PinnedBundle(bundle_id=bundle.bundle_id, digest=bundle.digest, is_workflow=is_workflow)
        row.own = uow.pack(replace(own or Overrides(), bundle=pinned).to_document())


def users(uow: UnitOfWork, tenant: str, bundle_id: str | None, digests: Collection[str]) -> list[str]:
    """The ids of what needs a bundle, or one of its archives: schedules that name it, and then occurrences.

    The schedule that carries runs without a schedule is none of them, but its occurrences are.
    """
    named = [*([] if bundle_id is None else [bundle_id]), *sorted(digests)]
    ids = {
        schedule_id
        for name in named
        for schedule_id in uow.workflows.schedules_using(tenant, UsedKind.BUNDLE, name, MAX_USERS)
    }
    if ids:
        return sorted(ids)[:MAX_USERS]
    pinned = ((one, uow.read_overrides(own)) for one, own in uow.overrides_of_bundles(tenant))
    rows = [one for one, own in pinned if own is not None and own.bundle is not None and own.bundle.digest in digests]
    return sorted(rows)[:MAX_USERS]
