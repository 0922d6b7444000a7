"""Planning: schedules whose time has come get their next occurrences."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.planner import plan
from noonmark.core.policies.misfire import judge
from noonmark.driver import logs
from noonmark.driver.reports import PlanReport
from noonmark.ports.sink import Planned

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.driver.node import Node


logger = logging.getLogger("noonmark.driver")


async def plan_once(node: Node) -> PlanReport:
    """Plan one batch of schedules. Several nodes may plan the same one; the first to commit wins."""
    if not await node.trusts_time():
        return PlanReport()
    limit = node.timing.batch
    snapshots = await node.ask(node.store.plannable(await node.time(), limit))
    if not snapshots:
        return PlanReport()
    now = node.now
    made = [_plan(snapshot, now=now, lookahead=node.timing.lookahead) for snapshot in snapshots]
    plans = [one for one in made if one is not None and not _splits_a_gap(one, now=now)]
    if not plans:
        return PlanReport(more=len(snapshots) == limit)
    written = await node.ask(node.store.commit_plans(plans))
    for one, done in zip(plans, written, strict=True):
        for row in one.closed if done else ():
            logs.ended(one.snapshot.schedule, row)
    node.tell([Planned(one) for one, done in zip(plans, written, strict=True) if done])
    planned = sum(written)
    return PlanReport(planned=planned, outrun=len(plans) - planned, more=len(snapshots) == limit)


def _plan(snapshot: Snapshot, *, now: Micros, lookahead: Micros) -> Plan | None:
    """Plan one schedule; a record that makes no sense keeps nobody from the others."""
    try:
        return plan(snapshot, now=now, lookahead=lookahead)
    except Exception:
        logger.exception("schedule %s cannot be planned", snapshot.schedule.schedule_id)
        return None


def _splits_a_gap(made: Plan, *, now: Micros) -> bool:
    """Whether a plan closes late fires while an earlier one, late as well, is still claimed: together they are one gap.

    Every node was down for a while. Whoever takes over the claim sends it back, and then the gap is decided as a whole.
    """
    policy = made.snapshot.schedule.declaration.misfire_policy
    if made.catch_up is None or made.catch_up.late_by <= policy.grace:
        return False
    claimed = (one for one in made.snapshot.projections if one.is_claimed and one.caught_up is None)
    return any(not judge(policy, due=one.due, now=now).runs for one in claimed)
