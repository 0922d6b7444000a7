"""Nodes: who was heard of, which routes they serve, and who of them leads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.ports.records import MISSED, NODE_KEPT, NODE_LISTED, Heartbeat, Leadership, node_record
from noonmark.stores.sql.row_checks import FURTHEST, RowCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import NodeRecord
    from noonmark.stores.sql.session import Session

_SAID = ("name", "routes", "capacity", "load", "version", "started", "lease", "seen", "left_at")
_JUDGE = RowCheck("nodes", _SAID)
_HEARD = f"""
    SELECT {", ".join(_SAID)} FROM nodes
    WHERE seen >= ? AND (seen >= ? OR (left_at IS NULL AND lease <> ?))
    ORDER BY name
"""  # noqa: S608 - our own names
_FORGET = "DELETE FROM nodes WHERE seen < ? AND (seen < ? OR left_at IS NOT NULL OR lease = ?)"
_LEADER = "SELECT term, node, until FROM leadership WHERE key = 1"
_LEAD = f"""
    INSERT INTO leadership (key, term, node, until) VALUES (1, 1, ?, ?)
    ON CONFLICT (key) DO UPDATE SET
        term = CASE WHEN leadership.term BETWEEN 1 AND {FURTHEST} THEN leadership.term ELSE 1 END
            + CASE WHEN leadership.node = ? AND leadership.until > ? THEN 0 ELSE 1 END,
        node = ?,
        until = ?
    WHERE leadership.node IS NULL OR leadership.node = ? OR leadership.until <= ? OR leadership.until > ?
"""  # noqa: S608 - likewise
"""No lease is longer than a day: one that ends later is damaged, and nobody would ever lead again."""


_MISS = """
    UPDATE nodes SET lease = ? WHERE name = ? AND seen = ? AND left_at IS NULL AND lease <> ? RETURNING name
"""


def beat(session: Session, told: Heartbeat, *, now: Micros) -> None:
    """A node is alive."""
    routes = json.dumps(told.routes)
    said = (told.node, routes, told.capacity, told.load, told.version, told.started, told.lease, now, None)
    session.put("nodes", _SAID, [said])
    session.execute(_FORGET, now - NODE_LISTED, now - NODE_KEPT, MISSED)
    if told.routes:
        # In one order everywhere: no two nodes may wait for each other.
        session.put("served_routes", ("route", "seen"), [(route, now) for route in sorted(told.routes)])


def leave(session: Session, node: str, *, now: Micros) -> None:
    """A node has stopped."""
    session.execute("UPDATE nodes SET left_at = ? WHERE name = ?", now, node)
    session.execute("UPDATE leadership SET node = NULL WHERE node = ?", node)


def miss(session: Session, node: str, seen: Micros) -> bool:
    """A node was lost; False unless it is the one that was last heard of then, and that is news."""
    return bool(session.query(_MISS, MISSED, node, seen, MISSED))


def lead(session: Session, node: str, *, now: Micros, lease: Micros) -> Leadership:
    """Take the lease of the leader, or renew it, unless it is somebody else's."""
    until = now + lease
    session.execute(_LEAD, node, until, node, now, node, until, node, now, until + NODE_LISTED)
    [(term, leader, until)] = session.query(_LEADER)
    return Leadership(term=term, leader=leader, until=until)


def told(session: Session, *, now: Micros) -> list[NodeRecord]:
    """Those that were heard of lately, and those of whose loss nobody was told yet, by name."""
    leader = None
    for _, node, until in session.query(_LEADER):
        leader = node if isinstance(until, int) and now < until else None
    return list(_read(session.query(_HEARD, now - NODE_KEPT, now - NODE_LISTED, MISSED), leader, now))


def _read(rows: Sequence[Sequence[Any]], leader: str | None, now: Micros) -> Iterator[NodeRecord]:
    """The records that can be read; the others are worth no more than nodes that were never heard of."""
    for columns in rows:
        name, routes, capacity, load, version, started, lease, seen, left = columns
        if _JUDGE.problems(columns) or seen > now + NODE_LISTED:
            continue
        try:
            served = tuple(json.loads(routes))
        except (TypeError, ValueError, RecursionError):
            continue
        if all(isinstance(one, str) for one in served):
            said = Heartbeat(
                node=name,
                routes=served,
                capacity=capacity,
                load=load,
                version=version,
                started=started,
                lease=lease,
            )
            yield node_record(said, seen=seen, left=left, is_leader=name == leader, now=now)
