"""Nodes: when they were seen, the routes they serve, and the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.records import MISSED, NODE_KEPT, NODE_LISTED, Leadership
from noonmark.stores.redis.schema.schedules import LEADERSHIP, NODES, SERVED_ROUTES
from noonmark.stores.rules.unit_of_work import NodeProcess
from noonmark.stores.sql.nodes import beat_values, to_records
from noonmark.stores.sql.row_checks import number

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.ports.records import Heartbeat, NodeRecord
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Transaction

_LEASE, _SEEN, _LEFT = (NODES.columns.index(name) for name in ("lease", "seen", "left_at"))
_LOCK, _GONE = (NODES.columns.index(name) for name in ("process_lock", "gone_at"))
_LEADER = 1
"""The key of the one record of the leader."""


def beat(transaction: Transaction, heartbeat: Heartbeat, *, now: Micros) -> None:
    """Store a heartbeat, and forget nodes that were not seen for long."""
    nodes, served = transaction.records(NODES), transaction.records(SERVED_ROUTES)
    for values in nodes.find("by_seen", before=(now - NODE_LISTED,), hint=True):
        is_reported = values[_LEFT] is not None or values[_LEASE] == MISSED
        if is_reported or number(values[_SEEN], 0) < now - NODE_KEPT:
            nodes.delete(values[0])
    nodes.put(beat_values(heartbeat, now))
    served.put_many([(route, now) for route in sorted(heartbeat.routes)])


def leave(transaction: Transaction, node: str, *, now: Micros) -> None:
    """Store that a node has stopped."""
    nodes = transaction.records(NODES)
    record = nodes.get(node)
    if record is not None:
        nodes.put((*record[:_LEFT], now, *record[_LEFT + 1 :]))
    _give_up_leadership(transaction, node)


def process_of(transaction: Transaction, node: str | None) -> NodeProcess:
    """The process of a node, as its last heartbeat says."""
    record = None if node is None else transaction.records(NODES).get(node)
    if record is None:
        return NodeProcess()
    return NodeProcess(record[_LOCK] if isinstance(record[_LOCK], str) else "", record[_GONE] is not None)


def mark_gone(transaction: Transaction, node: str, *, now: Micros) -> None:
    """Store that the process of a node is gone."""
    nodes = transaction.records(NODES)
    record = nodes.get(node)
    if record is not None and record[_GONE] is None:
        nodes.put((*record[:_GONE], now, *record[_GONE + 1 :]))
    _give_up_leadership(transaction, node)


def _give_up_leadership(transaction: Transaction, node: str) -> None:
    leadership = transaction.records(LEADERSHIP)
    leader = leadership.get(_LEADER)
    if leader is not None and leader[2] == node:
        leadership.put((_LEADER, leader[1], None, leader[3]))


def miss(transaction: Transaction, node: str, seen: Micros) -> bool:
    """Mark a node as lost; False if it is marked, has left, or was seen at another time."""
    nodes = transaction.records(NODES)
    record = nodes.get(node)
    if record is None or record[_SEEN] != seen or record[_LEFT] is not None or record[_LEASE] == MISSED:
        return False
    nodes.put((*record[:_LEASE], MISSED, *record[_LEASE + 1 :]))
    return True


def lead(transaction: Transaction, node: str, *, now: Micros, lease: Micros) -> Leadership:
    """Take or renew the lease of the leader, unless another node holds it."""
    leadership, until = transaction.records(LEADERSHIP), now + lease
    leadership_record = leadership.get(_LEADER)
    if leadership_record is None:
        record: Values = (_LEADER, 1, node, until)
    else:
        _, term, leader, ends = leadership_record
        is_held = type(ends) is int and ends > now
        # No lease is longer than a day: one that ends later is damaged, and would keep every node from leading.
        if leader not in (None, node) and is_held and ends <= until + NODE_LISTED:
            return Leadership(term=term, leader=leader, until=ends)
        is_renewed = leader == node and is_held
        record = (_LEADER, number(term, 1, low=1) + (not is_renewed), node, until)
    leadership.put(record)
    return Leadership(term=record[1], leader=node, until=until)


def records(transaction: Transaction, *, now: Micros) -> list[NodeRecord]:
    """The nodes that were seen lately, and those whose loss is not reported yet, by name."""
    leadership_record = transaction.records(LEADERSHIP).get(_LEADER)
    leader = (
        leadership_record[2]
        if leadership_record is not None and isinstance(leadership_record[3], int) and now < leadership_record[3]
        else None
    )
    listed = [
        values
        for values in transaction.records(NODES).find("by_name")
        if type(values[_SEEN]) is int
        and values[_SEEN] >= now - NODE_KEPT
        and (values[_SEEN] >= now - NODE_LISTED or (values[_LEFT] is None and values[_LEASE] != MISSED))
    ]
    return list(to_records(listed, leader, now))


def last_heartbeats(
    transaction: Transaction, routes: Collection[str], latest: Micros
) -> tuple[Micros | None, dict[str, Micros]]:
    """When any node was last seen up to a time, and when each route was last served."""
    newest = transaction.records(NODES).entries("by_seen", until=(latest,), limit=1, newest_first=True, hint=True)
    seen = newest[0][0] if newest else None
    served = transaction.records(SERVED_ROUTES)
    keys = [(route,) for route in routes]
    served.read(keys, hint=True)
    heartbeats = served.get_many(keys)
    times = {route: time for (route,), (_, time) in heartbeats.items() if type(time) is int and time <= latest}
    return (seen if isinstance(seen, int) else None), times
