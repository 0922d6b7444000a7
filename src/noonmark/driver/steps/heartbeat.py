"""Nodes among themselves: each says that it is alive, and one of them leads.

The leader has a lease in the store, like that of an occurrence, and renews it as often; whoever finds it free takes it,
under a new term. It leads until the lease ends by its own reckoning, which is never ahead of the store's time by more
than its clock has gained since the last renewal. Before each pass of housekeeping it reads the store's time again, so
one that stood still, even with its clock, finds that its lease is over. One that stands still between that look and
what follows may still make this one pass beside the next leader; so what the leader does, two may do at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.system_events import of_lost_node
from noonmark.driver import logs
from noonmark.driver.steps.reports import LeadReport
from noonmark.ports.events import LeaderChanged
from noonmark.ports.records import Heartbeat

if TYPE_CHECKING:
    from noonmark.driver.node import Node


async def beat_once(node: Node) -> None:
    """Tell that this node is alive, and what it serves."""
    now = await node.time()
    if node.started is None:
        node.started = now
    beat = Heartbeat(
        node=node.id,
        routes=tuple(node.runtime.target.routes()),
        capacity=node.timing.capacity,
        load=node.load,
        version=node.runtime.version,
        started=node.started,
        lease=node.timing.lease,
    )
    await node.executor.call(node.store.beat, beat, now=now)


async def lead_once(node: Node) -> LeadReport:
    """Take the lead, or keep it, or learn who has it. Whoever leads tells which nodes were lost."""
    # By the store's time as it is now: by a false one, every other node is lost.
    await node.read_clock()
    if node.is_in_doubt:
        return LeadReport()
    before, now = node.leadership, node.now
    after = node.leadership = await node.executor.call(node.store.lead, node.id, now=now, lease=node.timing.lease)
    led, leads = before is not None and before.leader == node.id, after.leader == node.id
    gained = leads and (before is None or not led or before.term != after.term)
    if gained or (led and not leads):
        logs.leader(node.id, after.leader, after.term)
        node.tell([LeaderChanged(node.id, after.term, after.leader)])
    lost = await _miss_the_lost(node) if leads and node.hears_others else 0
    return LeadReport(leads=leads, gained=gained, term=after.term, lost=lost)


async def _miss_the_lost(node: Node) -> int:
    """Tell of every node that fell silent; of two that take each other for the leader, one does."""
    count = 0
    for one in await node.executor.call(node.store.nodes):
        # This one is here; if it was silent for so long, its next beat will tell.
        if one.is_lost and one.name != node.id:
            event = of_lost_node(
                one.name,
                seen=one.seen,
                started=one.started,
                version=one.version,
                load=one.load,
                routes=one.routes,
            )
            if await node.executor.call(node.store.lose, one.name, one.seen, event):
                logs.lost(one.name, one.seen)
                count += 1
    return count


async def still_leads(node: Node) -> bool:
    """Whether this node leads, by the store's time as it is now."""
    if node.leadership is None or node.leadership.leader != node.id:
        return False
    await node.read_clock()
    return node.leads and not node.is_in_doubt


async def leave(node: Node) -> None:
    """Tell that this node has stopped, and give up the lead."""
    await node.executor.call(node.store.leave, node.id)
    led, node.leadership = node.leadership, None
    if led is not None and led.leader == node.id:
        logs.leader(node.id, None, led.term)
        node.tell([LeaderChanged(node.id, led.term, None)])
