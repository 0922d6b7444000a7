"""Claim: lease what is due soon ahead of its time, so that its start waits for a timer, not for a query."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.driver.steps.heartbeat import beat_once
from noonmark.driver.steps.reports import ClaimReport, RenewReport
from noonmark.driver.store_executor import Priority
from noonmark.ports.events import Claimed
from noonmark.ports.records import Lease, Renewal, Shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.admission import Claim
    from noonmark.core.schedule import Owner
    from noonmark.driver.node import Node


logger = logging.getLogger("noonmark.driver")


EACH = 10
"""The share of each owner when more is due than fits; smaller if there is little room."""


async def claim_once(node: Node, *, only: str | None = None) -> ClaimReport:
    """Lease one batch of what this node can serve, expired leases included.

    If more is due, or the node is full, owners that would have to wait get a share.
    """
    if not await node.trusts_time():
        return ClaimReport()  # a lease that expires only because the clock leapt still has a live holder
    batch = node.timing.batch
    if only is not None:
        return ClaimReport(claimed=len(await _claim(node, min(batch, node.room_for_others), only=only)))
    room = min(batch, node.room)
    claims = await _claim(node, room)
    more = room > 0 and len(claims) == room
    shared: list[Claim] = []
    if more or room <= 0:
        each = max(1, min(EACH, node.timing.capacity // 100))
        besides = _owners_of_most(claims) if claims else node.holding(each)
        shares = Shares(each=each, after=node.served_last, besides=besides)
        shared = await _claim(node, min(batch, node.room_for_others), shares=shares)
        if shared:
            node.served_last = shared[-1].schedule.owner
    return ClaimReport(claimed=len(claims) + len(shared), more=more)


def _owners_of_most(claims: Sequence[Claim]) -> frozenset[Owner]:
    """The owners that already got an equal part; they need no share."""
    counts = Counter(claim.schedule.owner for claim in claims)
    return frozenset(owner for owner, count in counts.items() if count * len(counts) >= len(claims))


async def _claim(node: Node, limit: int, *, only: str | None = None, shares: Shares | None = None) -> list[Claim]:
    """Lease up to `limit` occurrences and hold them."""
    if limit <= 0:
        node.last_claimed = node.store_clock.monotonic()
        return []
    if node.runtime.locks is not None and node.routes_reported is None:
        await beat_once(node)  # without a heartbeat, no neighbour can know whose lock it finds free
    timing = node.timing
    now = await node.time()
    claims: list[Claim] = await node.executor.call(
        node.store.claim,
        node.id,
        node.runtime.target.routes(),
        now=now,
        until=now + timing.lookahead,
        limit=limit,
        lease=timing.lease,
        only=only,
        shares=shares,
    )
    for claim in claims:
        node.hold(claim)
    if claims:
        node.last_claimed = node.store_clock.monotonic()
    if node.has_sink:
        node.report([Claimed(claim.occurrence, claim.found_in) for claim in claims])
    return claims


async def renew_once(node: Node) -> RenewReport:
    """Extend every lease; drop the lost ones, and stop runs that are asked to stop."""
    await node.read_clock(node.lease_executor)
    holds, asked_at = node.holds(), node.now
    if not holds:
        node.holds_until = asked_at + node.timing.lease
        return RenewReport()
    renewal = await _renew(node, holds)
    node.holds_until = asked_at + node.timing.lease
    # Only what is still held as it was when the call began: it may have ended since, or be claimed again.
    fences = {hold.occurrence_id: hold.fence for hold in holds}
    lost_ids = [one for one in renewal.lost if _fence(node, one) == fences[one] and not _has_ended(node, one)]
    lost = sum(node.lose(one) for one in lost_ids)
    stopped = 0
    for occurrence_id, reason in renewal.stop.items():
        if (
            _fence(node, occurrence_id) == fences[occurrence_id]
            and (assignment := node.deliveries.get(occurrence_id)) is not None
        ):
            assignment.stop(reason)
            stopped += 1
    return RenewReport(renewed=len(holds) - len(renewal.lost), lost=lost, stopped=stopped)


async def _renew(node: Node, holds: Sequence[Lease]) -> Renewal:
    """Extend leases together. If the store cannot extend one of them, extend each alone."""
    try:
        renewal: Renewal = await node.lease_executor.call(
            node.store.renew, holds, now=node.now, lease=node.timing.lease, priority=Priority.URGENT
        )
    except NoonmarkError:
        raise
    except Exception:
        if len(holds) == 1:
            logger.exception("could not renew the lease of occurrence %s", holds[0].occurrence_id)
            return Renewal(lost=frozenset({holds[0].occurrence_id}), stop={})
        each = [await _renew(node, [hold]) for hold in holds]
        lost = frozenset(one for renewal in each for one in renewal.lost)
        return Renewal(lost=lost, stop={one: reason for renewal in each for one, reason in renewal.stop.items()})
    return renewal


async def release(node: Node) -> int:
    """Release every claim that has not started; returns how many."""
    claims = list(node.held.values())
    if claims:
        # Dropped only once it is written, so that a failure can be retried.
        await node.executor.call(
            node.store.release, [Lease(occurrence_id=one.occurrence.id, fence=one.occurrence.fence) for one in claims]
        )
    for claim in claims:
        node.drop(claim)
    return len(claims)


def _has_ended(node: Node, occurrence_id: str) -> bool:
    """Whether its end is being written; the answer of that call says whether the lease was lost."""
    assignment = node.deliveries.get(occurrence_id)
    return assignment is not None and assignment.is_closed


def _fence(node: Node, occurrence_id: str) -> int | None:
    delivery = node.held.get(occurrence_id) or node.deliveries.get(occurrence_id)
    return None if delivery is None else delivery.occurrence.fence
