"""What stores decide about bundles: which schedules use one, and what fits a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import is_hidden
from noonmark.core.quotas import Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.quotas import Quota

MAX_USERS = 100
"""How many schedules that use a bundle are named."""
KIND = "bundle"


def check_bytes(limits: Sequence[Quota], used: int, wanted: int) -> None:
    """QuotaExceeded if a tenant may not store so many more bytes."""
    for quota in limits:
        if quota.resource is Resource.BUNDLE_BYTES:
            quota.check(used, wanted)


def users(
    targets: Iterable[tuple[str, Mapping[str, Any]]], bundle_id: str | None, digests: Collection[str]
) -> list[str]:
    """The ids of schedules, given with the documents of their targets, that name a bundle or one of its archives.

    The one that carries the runs without a schedule is none of them.
    """
    found = (
        schedule_id
        for schedule_id, target in targets
        if not is_hidden(schedule_id)
        and target.get("target_kind") == KIND
        and ((bundle_id is not None and target.get("bundle_id") == bundle_id) or target.get("digest") in digests)
    )
    return sorted(found)[:MAX_USERS]
