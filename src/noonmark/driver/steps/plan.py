"""Plan: schedules whose time has come get their next occurrences."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.edits import plan_or_resume
from noonmark.core.errors import NoonmarkError
from noonmark.core.policies.misfire import judge
from noonmark.core.reasons import Reason
from noonmark.driver import logs
from noonmark.driver.steps.reports import PlanReport
from noonmark.ports.events import Planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.driver.node import Node


logger = logging.getLogger("noonmark.driver")


async def plan_once(node: Node) -> PlanReport:
    """Plan one batch of schedules. If several nodes plan the same one, the first to commit wins."""
    if not await node.trusts_time():
        return PlanReport()
    limit = node.timing.batch
    snapshots = await node.executor.call(node.store.plannable, await node.time(), limit)
    if not snapshots:
        return PlanReport()
    now = node.now
    decided = [await _plan(node, snapshot, now=now) for snapshot in snapshots]
    plans = [one for one in decided if one is not None and not _splits_a_gap(one, now=now)]
    if not plans:
        return PlanReport(more=len(snapshots) == limit)
    written = await commit(node, plans)
    for plan, done in zip(plans, written, strict=True):
        if done and plan.rate_alert is not None:
            logs.rate(plan.snapshot.schedule, plan.rate_alert)
        for row in plan.closed if done else ():
            if row.reason is Reason.TARGET_MISSING:
                logs.unserved(node.warned, plan.snapshot.schedule, row, now=now, reach=node.runtime.reach)
            else:
                logs.ended(plan.snapshot.schedule, row, reach=node.runtime.reach)
    node.report([Planned(one) for one, done in zip(plans, written, strict=True) if done])
    planned = sum(written)
    return PlanReport(planned=planned, outrun=len(plans) - planned, more=len(snapshots) == limit)


async def _plan(node: Node, snapshot: Snapshot, *, now: Micros) -> Plan | None:
    """Plan one schedule. One that cannot be planned is set aside and does not block the others."""
    try:
        return plan_or_resume(snapshot, now=now, lookahead=node.timing.lookahead)
    except Exception as error:
        logger.exception("could not plan schedule %s; it is set aside", snapshot.schedule.schedule_id)
        await node.executor.call(node.store.set_aside, snapshot.schedule.uid, f"it cannot be planned: {error!r}")
        return None


async def commit(node: Node, plans: Sequence[Plan]) -> list[bool]:
    """Write plans together. If the store cannot write one of them, write each alone."""
    try:
        written: list[bool] = await node.executor.call(node.store.commit_plans, plans)
    except NoonmarkError:
        raise
    except Exception as error:
        if len(plans) > 1:
            return [done for one in plans for done in await commit(node, [one])]
        schedule = plans[0].snapshot.schedule
        logger.exception("could not write the plan of schedule %s; it is set aside", schedule.schedule_id)
        await node.executor.call(node.store.set_aside, schedule.uid, f"its plan cannot be written: {error!r}")
        return [False]
    return written


def _splits_a_gap(plan: Plan, *, now: Micros) -> bool:
    """Whether a plan closes late fires while an earlier late one is still claimed: together they are one gap.

    Every node was down for a while. The node that takes over the claim sends it back, and then the gap is decided as a
    whole.
    """
    policy = plan.snapshot.schedule.declaration.misfire_policy
    if plan.catch_up is None or plan.catch_up.late_by <= policy.grace:
        return False
    claimed = (one for one in plan.snapshot.projections if one.is_claimed and one.caught_up is None)
    return any(not judge(policy, due=one.due, now=now).runs for one in claimed)
