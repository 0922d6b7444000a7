"""Maintenance: end what would stay open forever, delete old history, repair what a wrong clock left.

Every node ends deliveries past their deadline and occurrences that no node can serve: others may wait for the slot they
hold, and must not wait longer because the leader was lost. Only the leader prunes, and guards what schedules spend.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import unserved
from noonmark.core.clock_rewind import rewind
from noonmark.core.clock_trust import LEAP
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import is_hidden
from noonmark.core.occurrence import in_force
from noonmark.core.pipeline_ownership import is_abandoned, owner_key, owner_of
from noonmark.core.policies.runaway import HOUR, PAST, SPEND_FLOOR, judge_spend
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import expire
from noonmark.core.signatures import MAIN_TENANT
from noonmark.core.targets.ping import MOMENTS
from noonmark.driver import logs
from noonmark.driver.steps.heartbeat import beat_once, still_leads
from noonmark.driver.steps.plan import commit
from noonmark.driver.steps.reports import PruneReport, ReapReport, RewindReport
from noonmark.driver.steps.settle import log_pauses
from noonmark.ports.events import Ended, Planned, Pruned, RanAway, Settled
from noonmark.ports.records import KEY_LIFETIME, PUSH_LIFETIME, Admitted, Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.driver.node import Node

logger = logging.getLogger("noonmark.driver")

MAX_PRUNED_BUNDLES = 10
"""How many archives are deleted at a time: each may have thousands of large rows."""
INSPECTED = 500
"""How many rows the leader inspects in each pass, over and over, to report damaged ones."""
ATTENDED = 32
"""Up to this many deliveries are checked one by one; with more, stop requests arrive with the next renewal."""


async def is_asked_to_stop(node: Node) -> bool:
    """Whether a delivery of this node has a new stop request. Changes nothing."""
    delivered = [one for one in node.deliveries.values() if one.stop_reason is None]
    for delivery in delivered if len(delivered) <= ATTENDED else ():
        stored = await node.executor.call(node.store.occurrence, delivery.occurrence.id)
        if stored is not None and stored.stop is not None:
            return True
    return False


async def adopt_once(node: Node) -> bool:
    """Serve functions that other processes registered since the last call; whether there are any."""
    routes = set(await node.executor.call(node.store.routes, TRUSTED))
    fresh, node.routes_seen = routes - node.routes_seen, routes
    return node.runtime.target.adopt(fresh)


async def reap_once(node: Node) -> ReapReport:
    """Send a heartbeat, then end deliveries past their deadline, and occurrences that no node can serve."""
    # All of them: what could not be imported a while ago may be there by now.
    node.routes_seen = set(await node.executor.call(node.store.routes, TRUSTED))
    adopted = node.runtime.target.adopt(node.routes_seen)
    if not await node.trusts_time():
        return ReapReport(adopted=adopted)
    await beat_once(node)
    # Right after a leap of the clock, no route seems to be served.
    orphans = await _end_orphans(node) if node.all_nodes_reported else 0
    abandoned = await _delete_abandoned(node) if node.all_nodes_reported else 0
    return ReapReport(adopted=adopted, overdue=await _end_overdue(node), orphans=orphans, abandoned=abandoned)


async def prune_once(node: Node) -> PruneReport:
    """Delete old and surplus history and deny expired proposals, one batch of each, if this node leads.

    It also inspects some rows for damage.
    """
    if not await still_leads(node) or not node.trust.may_forget:
        return PruneReport()
    timing = node.timing
    # No query finds a row whose time is damaged, so only an inspection notices it.
    node.inspected = (await node.executor.call(node.store.inspect, node.inspected, limit=INSPECTED)).after
    before, limit = node.now - timing.keep_for, timing.batch
    expired = await node.executor.call(node.store.expire_proposals, now=node.now, limit=limit)
    forgotten = await node.executor.call(node.store.prune, before=before, keep=timing.keep_count, limit=limit)
    events = await node.executor.call(node.store.prune_events, before=before, keep=timing.keep_events, limit=limit)
    notes = await node.executor.call(node.store.prune_audit_entries, before=before, limit=limit)
    keys = await node.executor.call(node.store.prune_keys, before=node.now - KEY_LIFETIME, limit=limit)
    unfinished = node.now - PUSH_LIFETIME
    bundles = await node.executor.call(
        node.store.prune_bundles, before=before, unfinished_before=unfinished, limit=MAX_PRUNED_BUNDLES
    )
    messages = await node.executor.call(
        node.store.prune_sessions,
        before=node.now - timing.keep_messages_for,
        max_bytes=timing.session_bytes,
        limit=limit,
    )
    calls = await node.executor.call(node.store.prune_usage, before=node.now - timing.keep_usage_for, limit=limit)
    counts = (forgotten, events, notes, keys)
    if any(counts):
        node.report([Pruned(*counts)])
    return PruneReport(
        forgotten=forgotten,
        events=events,
        notes=notes,
        keys=keys,
        more=limit in (*counts, messages, calls, expired) or bundles == MAX_PRUNED_BUNDLES,
    )


async def guard_once(node: Node) -> int:
    """Pause schedules whose last hour cost far more than their past ones, if this node leads; returns how many."""
    if not await still_leads(node) or node.is_in_doubt:
        return 0
    since, limit = node.now - HOUR, node.timing.batch
    spenders = await node.executor.call(node.store.spenders, since=since, above=SPEND_FLOOR, limit=limit)
    return sum([await _guard_spend(node, tenant, schedule_id) for tenant, schedule_id in spenders])


async def _guard_spend(node: Node, tenant: str, schedule_id: str) -> bool:
    store, now = node.store, node.now
    stored = await node.executor.call(store.find, tenant, schedule_id)
    guard = None if stored is None or is_hidden(schedule_id) else stored.schedule.declaration.guard
    snapshot = None if stored is None else await node.executor.call(store.snapshot, stored.schedule.uid)
    if guard is None or guard.factor is None or snapshot is None:
        return False
    schedule, counted = snapshot.schedule, snapshot.runaway
    begins = schedule.created if counted is None else max(schedule.created, counted.since)
    recent, past = [
        await node.executor.call(store.spend_by_hour, tenant, schedule_id, since=since, until=until)
        for since, until in ((max(now - HOUR, begins), now), (max(now - PAST, schedule.created), now - HOUR))
    ]
    breach = judge_spend(guard, sum(recent), past, now=now)
    if breach is None or not await node.executor.call(store.change, schedule.uid, _stop_for(breach)):
        return False
    logs.runaway(schedule, breach, reach=node.runtime.reach)
    node.report([RanAway(schedule_id, breach.rule)])
    return True


def _stop_for(breach: Breach) -> Callable[[Snapshot, Micros], Plan | None]:
    return lambda snapshot, now: edits.stop_runaway(snapshot, breach, now=now)


async def rewind_once(node: Node) -> RewindReport:
    """Plan again what a fast clock had planned too far, and set back the false times it wrote.

    Only once no such time was written for a lease: to a node whose own clock is slow, all others seem fast. Several
    nodes may do it at once: each plan is written once, by watermark.
    """
    if not await node.trusts_time():
        return RewindReport()
    now, timing = node.now, node.timing
    newest = await node.executor.call(node.store.newest_time)
    is_ahead = newest is not None and newest > now + LEAP
    if not is_ahead and not node.must_rewind:
        node.remembers_ahead = None
        return RewindReport()
    last, moment = node.remembers_ahead, node.runtime.clock.boot()
    if last is None or (is_ahead and newest is not None and newest > last[0]):
        node.remembers_ahead = (now if newest is None else newest, moment)
        return RewindReport()
    if moment - last[1] < timing.lease:
        return RewindReport()
    rewound = await _rewind_all(node)
    mended = await node.executor.call(node.store.repair, now=node.now, after=node.now + LEAP, lease=timing.lease)
    await _release_far(node)
    node.must_rewind, node.remembers_ahead = False, None
    return RewindReport(rewound=rewound, mended=mended)


async def _release_far(node: Node) -> None:
    """Release what was claimed by a false time; it is claimed again when it is due."""
    far = [claim for claim in node.held.values() if claim.occurrence.due > node.now + LEAP]
    if far:
        holds = [Lease(occurrence_id=one.occurrence.id, fence=one.occurrence.fence) for one in far]
        await node.executor.call(node.store.release, holds)
        for claim in far:
            node.drop(claim)


async def _rewind_all(node: Node) -> int:
    count, after, limit = 0, "", node.timing.batch
    while True:
        now = node.now
        page = await node.executor.call(node.store.planned_ahead, now=now, until=now + LEAP, after=after, limit=limit)
        rewinds = [_rewind(snapshot, now=now, lookahead=node.timing.lookahead) for snapshot in page]
        plans = [plan for plan in rewinds if plan is not None]
        written = await commit(node, plans) if plans else []
        done = [plan for plan, is_written in zip(plans, written, strict=True) if is_written]
        for plan in done:
            logs.rewound(plan.snapshot.schedule, plan)
        node.report([Planned(plan) for plan in done])
        count += len(done)
        if len(page) < limit:
            return count
        after = page[-1].schedule.uid


def _rewind(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan | None:
    """Rewind one schedule. A record that cannot be rewound does not block the others."""
    try:
        return rewind(snapshot, now=now, lookahead=lookahead)
    except Exception:
        logger.exception("could not rewind schedule %s", snapshot.schedule.schedule_id)
        return None


async def _end_overdue(node: Node) -> int:
    """End a delivery past its deadline. Its node may be gone or stuck; it loses, since the phase has changed."""
    settlements: list[Settlement] = []
    schedules: dict[str, Schedule] = {}
    for occurrence in await node.executor.call(node.store.overdue, now=node.now, limit=node.timing.batch):
        snapshot = await node.executor.call(node.store.snapshot, occurrence.uid)
        if snapshot is not None:
            schedule = schedules[occurrence.id] = in_force(snapshot.schedule, occurrence)
            settlements.append(expire(occurrence, schedule, now=node.now))
    if not settlements:
        return 0
    written = await _settle(node, settlements)
    ended = [one for one, done in zip(settlements, written, strict=True) if done]
    for settled in ended:
        if settled.is_overdue:
            logs.overdue(schedules[settled.occurrence.id], settled.occurrence)
            continue
        logs.failed(schedules[settled.occurrence.id], settled, reach=node.runtime.reach)
        node.ping(schedules[settled.occurrence.id], settled.occurrence, MOMENTS.get(settled.phase))
    node.report(
        [Settled(one.occurrence, one.phase, one.reason, one.run, one.retry_at) for one in ended if not one.is_overdue]
    )
    await log_pauses(node, ended)
    return len(ended)


async def _settle(node: Node, settlements: Sequence[Settlement]) -> list[bool]:
    """Write ends together. If the store cannot write one of them, write each alone."""
    try:
        written: list[bool] = await node.executor.call(node.store.settle, settlements)
    except NoonmarkError:
        raise
    except Exception:
        if len(settlements) > 1:
            return [done for one in settlements for done in await _settle(node, [one])]
        logger.exception("could not write the end of occurrence %s", settlements[0].occurrence.id)
        return [False]
    return written


async def _delete_abandoned(node: Node) -> int:
    """Delete the schedules of pipelines whose node is gone."""
    if not node.store.traits.is_durable:  # then a pipeline and its schedules end with the process
        return 0
    schedules = await node.executor.call(node.store.pipeline_schedules, MAIN_TENANT, node.timing.batch)
    if not schedules:
        return 0
    now, deleted = node.now, 0
    nodes = {owner_key(one.name): one for one in await node.executor.call(node.store.nodes)}
    for schedule in schedules:
        if (key := owner_of(schedule)) is None:
            continue
        owner = nodes.get(key)
        is_alive, left = (False, None) if owner is None else (owner.is_alive, owner.left)
        if is_abandoned(schedule, is_alive=is_alive, left=left, is_known=owner is not None, now=now):
            deleted += await node.executor.call(node.store.change, schedule.uid, _deletion)
    if deleted:
        logger.info("deleted %d schedules of pipelines whose process is gone", deleted)
    return deleted


def _deletion(snapshot: Snapshot, now: Micros) -> Plan:
    return edits.delete(snapshot, now=now)


async def _end_orphans(node: Node) -> int:
    now, timing = node.now, node.timing
    claims = await node.executor.call(node.store.orphans, node.id, now=now, limit=timing.batch, lease=timing.lease)
    if not claims:
        return 0
    decisions = [unserved(claim) for claim in claims]
    answers = await node.executor.call(node.store.admit, decisions, now=node.now, lease=timing.lease)
    ended = []
    for claim, answer in zip(claims, answers, strict=True):
        if isinstance(answer, Admitted):
            ended.append(answer.occurrence)
            logs.unserved(node.warned, claim.schedule, answer.occurrence, now=now, reach=node.runtime.reach)
    node.report([Ended(one) for one in ended])
    done = {one.id for one in ended}
    left = [claim.occurrence for claim in claims if claim.occurrence.id not in done]
    if left:
        # If only the revision changed, this node still holds them, and they would wait for the end of their lease.
        await node.executor.call(node.store.release, [Lease(occurrence_id=one.id, fence=one.fence) for one in left])
    return len(ended)
