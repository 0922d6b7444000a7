"""Nodes: who was heard of, which routes they serve, and who of them leads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.ports.records import Beat, Leadership, heard_of
from noonmark.stores.sqlite import batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import NodeRecord
    from noonmark.stores.sqlite.driver import sqlite3

DAY: Micros = DAY_SECONDS * SECOND
"""A node that was not heard of for so long is forgotten; its name never comes back."""
_SAID = ("name", "routes", "capacity", "load", "version", "started", "lease", "seen")
_HEARD = f"SELECT {', '.join(_SAID)}, left_at FROM nodes WHERE seen >= ? ORDER BY name"  # noqa: S608 - our own names
_LEADER = "SELECT term, node, until FROM leadership"
_LEAD = """
    INSERT INTO leadership (key, term, node, until) VALUES (1, 1, :node, :until)
    ON CONFLICT (key) DO UPDATE SET
        term = leadership.term + CASE WHEN leadership.node = :node AND leadership.until > :now THEN 0 ELSE 1 END,
        node = :node,
        until = :until
    WHERE leadership.node IS NULL OR leadership.node = :node OR leadership.until <= :now
"""


def beat(connection: sqlite3.Connection, told: Beat, *, now: Micros) -> None:
    """A node is alive."""
    routes = json.dumps(told.routes)
    said = (told.node, routes, told.capacity, told.load, told.version, told.started, told.lease, now)
    batches.put(connection, "nodes", _SAID, [said])
    connection.execute("DELETE FROM nodes WHERE seen < ?", (now - DAY,))
    if told.routes:
        batches.put(connection, "served_routes", ("route", "seen"), [(route, now) for route in told.routes])


def leave(connection: sqlite3.Connection, node: str, *, now: Micros) -> None:
    """A node has stopped."""
    connection.execute("UPDATE nodes SET left_at = ? WHERE name = ?", (now, node))
    connection.execute("UPDATE leadership SET node = NULL WHERE node = ?", (node,))


def lead(connection: sqlite3.Connection, node: str, *, now: Micros, lease: Micros) -> Leadership:
    """Take the lease of the leader, or renew it, unless it is somebody else's."""
    connection.execute(_LEAD, {"node": node, "now": now, "until": now + lease})
    term, leader, until = connection.execute(_LEADER).fetchone()
    return Leadership(term=term, leader=leader, until=until)


def told(connection: sqlite3.Connection, *, now: Micros) -> list[NodeRecord]:
    """Those that were heard of within a day, by name."""
    leader = None
    for _, node, until in connection.execute(_LEADER).fetchall():
        leader = node if isinstance(until, int) and now < until else None
    return list(_read(connection.execute(_HEARD, (now - DAY,)).fetchall(), leader, now))


def _read(rows: Sequence[Sequence[Any]], leader: str | None, now: Micros) -> Iterator[NodeRecord]:
    """The records that can be read; the others are worth no more than nodes that were never heard of."""
    for name, routes, capacity, load, version, started, lease, seen, left in rows:
        numbers = (capacity, load, started, lease, seen, 0 if left is None else left)
        try:
            served = tuple(json.loads(routes))
        except (TypeError, ValueError):
            continue
        if all(isinstance(one, int) for one in numbers) and all(isinstance(one, str) for one in served):
            said = Beat(
                node=name,
                routes=served,
                capacity=capacity,
                load=load,
                version=version,
                started=started,
                lease=lease,
            )
            yield heard_of(said, seen=seen, left=left, is_leader=name == leader, now=now)
