"""Nodes: when they were seen, the routes they serve, and the leader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.ports.records import MISSED, NODE_KEPT, NODE_LISTED, Heartbeat, Leadership, node_record
from noonmark.stores.rules.unit_of_work import NodeProcess
from noonmark.stores.sql.row_checks import FURTHEST, RowCheck
from noonmark.stores.sql.schema.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import NodeRecord
    from noonmark.stores.sql.session import Session, Values

COLUMNS = (
    *("name", "routes", "capacity", "load", "version", "zone_data", "started", "lease", "seen", "left_at"),
    *("process_lock", "gone_at"),
)
_JUDGE = RowCheck("nodes", COLUMNS)
_HEARD = f"""
    SELECT {", ".join(COLUMNS)} FROM nodes
    WHERE seen >= ? AND (seen >= ? OR (left_at IS NULL AND lease <> ?))
    ORDER BY name
"""
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
"""
"""No lease is longer than a day: one that ends later is damaged, and would keep every node from leading."""


# Versions before 0030 leave the column empty.
_OLD = "SELECT 1 FROM nodes WHERE schema_version IS NULL AND left_at IS NULL AND seen >= ? LIMIT 1"
_GIVE_UP_LEADERSHIP = "UPDATE leadership SET node = NULL WHERE node = ?"
_MISS = """
    UPDATE nodes SET lease = ? WHERE name = ? AND seen = ? AND left_at IS NULL AND lease <> ? RETURNING name
"""
_HEARTBEATS = """
    SELECT NULL AS route, max(seen) AS seen FROM nodes WHERE seen <= ? UNION ALL
    SELECT route, seen FROM served_routes WHERE route IN EACH(text)
"""


def beat(session: Session, heartbeat: Heartbeat, *, now: Micros) -> None:
    """Store a heartbeat."""
    session.put("nodes", (*COLUMNS, "schema_version"), [(*beat_values(heartbeat, now), VERSION)])
    session.execute(_FORGET, now - NODE_LISTED, now - NODE_KEPT, MISSED)
    if heartbeat.routes:
        # In the same order everywhere, so that no two nodes deadlock.
        session.put("served_routes", ("route", "seen"), [(route, now) for route in sorted(heartbeat.routes)])


def beat_values(heartbeat: Heartbeat, now: Micros) -> Values:
    """The columns of a node that is seen now."""
    return (
        heartbeat.node,
        json.dumps(heartbeat.routes),
        heartbeat.capacity,
        heartbeat.load,
        heartbeat.version,
        heartbeat.zone_data,
        heartbeat.started,
        heartbeat.lease,
        now,
        None,
        heartbeat.process_lock or None,
        None,
    )


def leave(session: Session, node: str, *, now: Micros) -> None:
    """Store that a node has stopped."""
    session.execute("UPDATE nodes SET left_at = ? WHERE name = ?", now, node)
    session.execute(_GIVE_UP_LEADERSHIP, node)


def has_old(session: Session, *, now: Micros) -> bool:
    """Whether a node may run that does not know timed uids."""
    return bool(session.query(_OLD, now - NODE_LISTED))


def process_of(session: Session, node: str | None) -> NodeProcess:
    """The process of a node, as its last heartbeat says."""
    for lock, gone in session.query("SELECT process_lock, gone_at FROM nodes WHERE name = ?", node):
        return NodeProcess(lock if isinstance(lock, str) else "", gone is not None)
    return NodeProcess()


def mark_gone(session: Session, node: str, *, now: Micros) -> None:
    """Store that the process of a node is gone."""
    session.execute("UPDATE nodes SET gone_at = ? WHERE name = ? AND gone_at IS NULL", now, node)
    session.execute(_GIVE_UP_LEADERSHIP, node)


def miss(session: Session, node: str, seen: Micros) -> bool:
    """Mark a node as lost; False if it is marked, has left, or was seen at another time."""
    return bool(session.query(_MISS, MISSED, node, seen, MISSED))


def lead(session: Session, node: str, *, now: Micros, lease: Micros) -> Leadership:
    """Take or renew the lease of the leader, unless another node holds it."""
    until = now + lease
    session.execute(_LEAD, node, until, node, now, node, until, node, now, until + NODE_LISTED)
    [(term, leader, until)] = session.query(_LEADER)
    return Leadership(term=term, leader=leader, until=until)


def records(session: Session, *, now: Micros) -> list[NodeRecord]:
    """The nodes that were seen lately, and those whose loss is not reported yet, by name."""
    leader = None
    for _, node, until in session.query(_LEADER):
        leader = node if isinstance(until, int) and now < until else None
    return list(to_records(session.query(_HEARD, now - NODE_KEPT, now - NODE_LISTED, MISSED), leader, now))


def to_records(rows: Sequence[Sequence[Any]], leader: str | None, now: Micros) -> Iterator[NodeRecord]:
    """The nodes of the records that can be read; damaged ones are left out."""
    for columns in rows:
        name, routes, capacity, load, version, zone_data, started, lease, seen, left, process_lock, gone = columns
        if _JUDGE.problems(columns) or seen > now + NODE_LISTED:
            continue
        try:
            served = tuple(json.loads(routes))
        except (TypeError, ValueError, RecursionError):
            continue
        if all(isinstance(one, str) for one in served):
            heartbeat = Heartbeat(
                node=name,
                routes=served,
                capacity=capacity,
                load=load,
                version=version,
                zone_data=zone_data,
                started=started,
                lease=lease,
                process_lock=process_lock or "",
            )
            yield node_record(heartbeat, seen=seen, left=left, gone=gone, is_leader=name == leader, now=now)


def last_heartbeats(
    session: Session, routes: Collection[str], latest: Micros
) -> tuple[Micros | None, dict[str, Micros]]:
    """When any node was last seen up to a time, and when each route was last served."""
    rows = session.gather("route, seen", f"({_HEARTBEATS})", latest, list(routes))
    seen: dict[str | None, Micros] = {route: seen for route, seen in rows if type(seen) is int and seen <= latest}
    newest = seen.pop(None, None)
    return newest, {route: time for route, time in seen.items() if route is not None}
