"""Nodes: who was heard of, which routes they serve, and who of them leads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from noonmark.ports.records import MISSED, NODE_KEPT, NODE_LISTED, Leadership, node_record

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.records import Heartbeat, NodeRecord


@dataclass(frozen=True, slots=True)
class Heard:
    """The last beat of a node, when it came, and when the node left."""

    beat: Heartbeat
    seen: Micros
    left: Micros | None = None

    def is_listed(self, now: Micros) -> bool:
        """Whether it was heard of lately, or nobody was told of its loss yet."""
        is_settled = self.left is not None or self.beat.lease == MISSED
        return self.seen >= now - (NODE_LISTED if is_settled else NODE_KEPT)


@dataclass(slots=True)
class Register:
    """Every node that was heard of lately."""

    heard: dict[str, Heard] = field(default_factory=dict)
    served: dict[str, Micros] = field(default_factory=dict)
    """When each route was last served."""
    term: int = 0
    leadership: Leadership | None = None

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """A node is alive."""
        self.heard[beat.node] = Heard(beat, now)
        self.served.update(dict.fromkeys(beat.routes, now))
        for name in [name for name, one in self.heard.items() if not one.is_listed(now)]:
            del self.heard[name]

    def is_any_alive(self, since: Micros) -> bool:
        """Whether anybody was heard of after an instant."""
        return any(one.seen > since for one in self.heard.values())

    def leave(self, node: str, *, now: Micros) -> None:
        """A node has stopped."""
        if node in self.heard:
            self.heard[node] = replace(self.heard[node], left=now)
        if self.leadership is not None and self.leadership.leader == node:
            self.leadership = None

    def miss(self, node: str, seen: Micros) -> bool:
        """A node was lost; False unless it is the one that was last heard of then, and that is news."""
        heard = self.heard.get(node)
        if heard is None or (heard.seen, heard.left) != (seen, None) or heard.beat.lease == MISSED:
            return False
        self.heard[node] = replace(heard, beat=replace(heard.beat, lease=MISSED))
        return True

    def told(self, *, now: Micros) -> list[NodeRecord]:
        """Those that were heard of lately, and those of whose loss nobody was told yet, by name."""
        lately = [self.heard[name] for name in sorted(self.heard) if self.heard[name].is_listed(now)]
        return [
            node_record(one.beat, seen=one.seen, left=one.left, is_leader=self._leads(one.beat.node, now), now=now)
            for one in lately
        ]

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it, unless it is somebody else's."""
        stored = self.leadership
        if stored is not None and stored.leader != node and now < stored.until:
            return stored
        if not self._leads(node, now):
            self.term += 1
        self.leadership = Leadership(term=self.term, leader=node, until=now + lease)
        return self.leadership

    def _leads(self, node: str, now: Micros) -> bool:
        return self.leadership is not None and self.leadership.is_of(node, now)
