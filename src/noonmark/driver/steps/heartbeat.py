"""Heartbeat: each node reports that it is alive, and one of them leads.

The leader has a lease in the store, like that of an occurrence, and renews it as often. A node that finds it free takes
it under a new term. The leader leads until the lease ends by its own estimate of the store's time, which is ahead of
that time by no more than its clock has gained since the last renewal. Before each pass of maintenance it reads the
store's clock again, so a node that was frozen notices that its lease is over. A node that freezes between that reading
and the pass may still make this one pass beside the next leader, so maintenance must be safe for two at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.system_events import of_lost_node
from noonmark.driver import logs
from noonmark.driver.steps.reports import LeadReport
from noonmark.driver.steps.takeover import lock_process, unlock_process
from noonmark.ports.events import LeaderChanged
from noonmark.ports.records import Heartbeat

if TYPE_CHECKING:
    from noonmark.driver.node import Node


async def beat_once(node: Node) -> None:
    """Record that this node is alive, and the routes it serves."""
    await lock_process(node)
    now = await node.time()
    if node.started is None:
        node.started = now
    routes = tuple(node.runtime.target.routes())
    beat = Heartbeat(
        node=node.id,
        routes=routes,
        capacity=node.timing.capacity,
        load=node.load,
        version=node.runtime.version,
        zone_data=node.runtime.zone_data,
        started=node.started,
        lease=node.timing.lease,
        process_lock=node.process_lock or "",
    )
    await node.executor.call(node.store.beat, beat, now=now)
    node.routes_reported = routes


async def beat_if_routes_changed(node: Node) -> None:
    """Send a heartbeat now if a function was registered since the last one: until then, no node seems to serve it."""
    if node.routes_reported not in (None, tuple(node.runtime.target.routes())):
        await beat_once(node)


async def lead_once(node: Node) -> LeadReport:
    """Take or renew leadership, or learn who has it. The leader reports lost nodes."""
    # By a fresh reading of the store's clock: by a false time, every other node is lost.
    await node.read_clock()
    if node.is_in_doubt:
        return LeadReport()
    before, now = node.leadership, node.now
    after = node.leadership = await node.executor.call(node.store.lead, node.id, now=now, lease=node.timing.lease)
    led, leads = before is not None and before.leader == node.id, after.leader == node.id
    gained = leads and (before is None or not led or before.term != after.term)
    if gained or (led and not leads):
        logs.leader(node.id, after.leader, after.term)
        node.report([LeaderChanged(node.id, after.term, after.leader)])
    lost = await _report_lost_nodes(node) if leads and node.all_nodes_reported else 0
    return LeadReport(leads=leads, gained=gained, term=after.term, lost=lost)


async def _report_lost_nodes(node: Node) -> int:
    """Report every node that fell silent. If two nodes believe that they lead, one of them reports."""
    count = 0
    for record in await node.executor.call(node.store.nodes):
        # Not this node itself, however long it was silent: its next heartbeat follows.
        if record.is_lost and record.name != node.id:
            event = of_lost_node(
                record.name,
                seen=record.seen,
                started=record.started,
                version=record.version,
                load=record.load,
                routes=record.routes,
            )
            if await node.executor.call(node.store.lose, record.name, record.seen, event):
                logs.lost(record.name, record.seen)
                count += 1
    return count


async def still_leads(node: Node) -> bool:
    """Whether this node leads, by a fresh reading of the store's clock."""
    if node.leadership is None or node.leadership.leader != node.id:
        return False
    await node.read_clock()
    return node.leads and not node.is_in_doubt


async def leave(node: Node) -> None:
    """Record that this node has stopped, give up leadership, and remove its lock file."""
    await node.executor.call(node.store.leave, node.id)
    unlock_process(node)
    led, node.leadership = node.leadership, None
    if led is not None and led.leader == node.id:
        logs.leader(node.id, None, led.term)
        node.report([LeaderChanged(node.id, led.term, None)])
