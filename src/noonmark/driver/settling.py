"""Settling: how deliveries ended is decided and written, many in one transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.instants import to_text
from noonmark.core.policies.overlap import Allow, Skip
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.driver.reports import SettleReport
from noonmark.ports.sink import Abandoned, LeaseLost, Settled

if TYPE_CHECKING:
    from noonmark.core.settlement import Settlement
    from noonmark.driver.node import Node
    from noonmark.ports.sink import Happening
    from noonmark.ports.target import Assignment


logger = logging.getLogger("noonmark.jobs")

QUIET = frozenset({Outcome.COMPLETED, Outcome.LEASE_LOST, Outcome.CANCELLED})
"""Outcomes that are no news to whoever reads a log."""


async def settle_once(node: Node) -> SettleReport:
    """Write the ends of one batch of deliveries. What cannot be written now is kept, and tried again."""
    count = min(len(node.finished), node.timing.batch)
    batch = [node.finished.popleft() for _ in range(count)]
    if not batch:
        return SettleReport()
    was_full = node.load >= node.timing.capacity
    try:
        settlements = [
            settle(assignment.occurrence, assignment.schedule.declaration, delivered, node=node.id)
            for assignment, delivered in batch
        ]
        written = await node.ask(node.store.settle(settlements))
    except Exception:
        node.finished.extendleft(reversed(batch))
        raise
    happenings: list[Happening] = []
    deliveries, frees_others, tells = node.deliveries, was_full, node.tells
    for (assignment, _), settlement, done in zip(batch, settlements, written, strict=True):
        occurrence = assignment.occurrence
        if deliveries.get(occurrence.id) is assignment:
            del deliveries[occurrence.id]
        if not done:
            happenings.append(LeaseLost(occurrence.id, settlement.run))
            continue
        if settlement.retry_at is None:
            node.ended(occurrence, assignment)
        frees_others = frees_others or _frees_others(assignment, settlement)
        if settlement.run.outcome not in QUIET:
            _log(assignment, settlement)
        if tells:
            happenings.append(_settled(settlement))
        if assignment.abandoned:
            happenings.append(Abandoned(occurrence, assignment.abandoned))
    node.tell(happenings)
    settled = sum(written)
    return SettleReport(settled=settled, lost=count - settled, frees_others=frees_others)


def _log(assignment: Assignment, settlement: Settlement) -> None:
    """Say that a run failed, where nobody may be looking at the store."""
    occurrence, run = settlement.occurrence, settlement.run
    called = assignment.schedule.declaration.name or occurrence.schedule_id
    then = settlement.phase if settlement.retry_at is None else f"again at {to_text(settlement.retry_at)}"
    text = f"\n{run.error.rstrip()}" if run.error else ""
    logger.warning("%s: run of %s %s (%s)%s", called, to_text(occurrence.nominal), run.outcome, then, text)


def hand_back(node: Node) -> int:
    """Report everything that is still being delivered as not finished; it is asked to stop."""
    now = node.now
    running = [one for one in node.deliveries.values() if not one.is_closed]
    for assignment in running:
        assignment.is_closed = True
        assignment.stop(Reason.LEASE_LOST)
        started = now if assignment.started is None else assignment.started
        delivered = Delivered(outcome=Outcome.LEASE_LOST, started=started, ended=now)
        node.finished.append((assignment, delivered))
    return len(running)


def _frees_others(assignment: Assignment, settlement: Settlement) -> bool:
    declared = assignment.schedule.declaration
    alone = isinstance(declared.overlap_policy, Skip | Allow) and declared.concurrency is None
    return settlement.retry_at is not None or not alone or assignment.occurrence.caught_up is not None


def _settled(settlement: Settlement) -> Settled:
    return Settled(settlement.occurrence, settlement.phase, settlement.reason, settlement.run, settlement.retry_at)
