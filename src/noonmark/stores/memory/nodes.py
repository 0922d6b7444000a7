"""Nodes: when they were seen, the routes they serve, and the leader."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.ports.records import MISSED, NODE_KEPT, NODE_LISTED, Leadership, node_record
from noonmark.stores.rules.unit_of_work import NodeProcess

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.records import Heartbeat, NodeRecord


@frozen
class SeenNode:
    """The last heartbeat of a node, when it came, and when the node left or its process was found to be gone."""

    beat: Heartbeat
    seen: Micros
    left: Micros | None = None
    gone: Micros | None = None

    def is_listed(self, now: Micros) -> bool:
        """Whether it was seen lately, or its loss is not reported yet."""
        is_settled = self.left is not None or self.beat.lease == MISSED
        return self.seen >= now - (NODE_LISTED if is_settled else NODE_KEPT)


@dataclass(slots=True)
class NodeRegister:
    """The nodes that were seen lately."""

    nodes: dict[str, SeenNode] = field(default_factory=dict)
    served: dict[str, Micros] = field(default_factory=dict)
    """When each route was last served."""
    term: int = 0
    leadership: Leadership | None = None

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Store a heartbeat."""
        self.nodes[beat.node] = SeenNode(beat, now)
        self.served.update(dict.fromkeys(beat.routes, now))
        for name in [name for name, one in self.nodes.items() if not one.is_listed(now)]:
            del self.nodes[name]

    def leave(self, node: str, *, now: Micros) -> None:
        """Store that a node has stopped."""
        if node in self.nodes:
            self.nodes[node] = replace(self.nodes[node], left=now)
        if self.leadership is not None and self.leadership.leader == node:
            self.leadership = None

    def process_of(self, node: str | None) -> NodeProcess:
        """The process of a node, as its last heartbeat says."""
        seen = None if node is None else self.nodes.get(node)
        return NodeProcess() if seen is None else NodeProcess(seen.beat.process_lock, seen.gone is not None)

    def mark_gone(self, node: str, *, now: Micros) -> None:
        """Store that the process of a node is gone."""
        if self.nodes[node].gone is None:
            self.nodes[node] = replace(self.nodes[node], gone=now)
        if self.leadership is not None and self.leadership.leader == node:
            self.leadership = None

    def miss(self, node: str, seen: Micros) -> bool:
        """Mark a node as lost; False if it is marked, has left, or was seen at another time."""
        node_seen = self.nodes.get(node)
        if node_seen is None or (node_seen.seen, node_seen.left) != (seen, None) or node_seen.beat.lease == MISSED:
            return False
        self.nodes[node] = replace(node_seen, beat=replace(node_seen.beat, lease=MISSED))
        return True

    def records(self, *, now: Micros) -> list[NodeRecord]:
        """The nodes that were seen lately, and those whose loss is not reported yet, by name."""
        lately = [self.nodes[name] for name in sorted(self.nodes) if self.nodes[name].is_listed(now)]
        return [
            node_record(
                node.beat,
                seen=node.seen,
                left=node.left,
                gone=node.gone,
                is_leader=self._leads(node.beat.node, now),
                now=now,
            )
            for node in lately
        ]

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take or renew the lease of the leader, unless another node holds it."""
        stored = self.leadership
        if stored is not None and stored.leader != node and now < stored.until:
            return stored
        if not self._leads(node, now):
            self.term += 1
        self.leadership = Leadership(term=self.term, leader=node, until=now + lease)
        return self.leadership

    def _leads(self, node: str, now: Micros) -> bool:
        return self.leadership is not None and self.leadership.is_of(node, now)
