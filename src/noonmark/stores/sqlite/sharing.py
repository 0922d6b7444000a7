"""Finding what can be claimed owner by owner: whoever has something due gets some of it, however much others have.

The index is stepped through from owner to owner, and never row by row: first the stretches of time in which anything is
due, then in each of them the owners. So the cost follows the owners who have something due and the time since, neither
what each of them has nor what is stored for later. The number of steps has a limit; where that is too few, the next
claim begins with another owner.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.ids import MAX_OWNER
from noonmark.core.turns import rounds
from noonmark.stores.sqlite import batches
from noonmark.stores.sqlite.finding import COLUMNS, GATHERED, due_routes, turn

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.ports.records import Shares
    from noonmark.stores.sqlite.driver import sqlite3
    from noonmark.stores.sqlite.finding import Found

STEPS = 10_000
STRETCH = "(ready >> 25)"
"""The stretch of time, of about half a minute, in which a row can first be claimed; as the index has it."""

_IS_READY = "occurrences.phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = :route"
_IN_STRETCH = f"SELECT {{}} FROM occurrences WHERE {_IS_READY} AND {STRETCH} = "  # noqa: S608 - our own text
_OWNER, _READY, _KEY = (_IN_STRETCH.format(column) for column in ("owner", "ready", "key"))
OWNERS = f"""
    WITH RECURSIVE stretches(stretch) AS (
        SELECT (SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} ORDER BY {STRETCH} LIMIT 1)
        UNION ALL
        SELECT (
            SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} AND {STRETCH} > stretches.stretch
            ORDER BY {STRETCH} LIMIT 1
        )
        FROM stretches WHERE stretch < :until >> 25 LIMIT :steps
    ),
    owners(stretch, owner) AS (
        SELECT stretch, ({_OWNER} stretch AND owner BETWEEN :first AND :last ORDER BY owner LIMIT 1)
        FROM stretches WHERE stretch <= :until >> 25
        UNION ALL
        SELECT stretch, ({_OWNER} stretch AND owner > owners.owner AND owner <= :last ORDER BY owner LIMIT 1)
        FROM owners WHERE owner IS NOT NULL LIMIT :steps
    )
    SELECT owner, min(stretch) AS stretch FROM owners
    WHERE owner IS NOT NULL AND owner NOT IN (SELECT value FROM json_each(:besides))
    AND (stretch < :until >> 25 OR :until >= ({_READY} stretch AND owner = owners.owner ORDER BY ready LIMIT 1))
    GROUP BY owner ORDER BY owner LIMIT :limit
"""  # noqa: S608 - likewise
READY = f"""
    WITH found(whose, stretch) AS (SELECT value ->> 0, value ->> 1 FROM json_each(:found))
    SELECT ready AS time, {COLUMNS}, occurrences.owner AS owner
    FROM found CROSS JOIN occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE key IN ({_KEY} stretch AND owner = whose AND ready <= :until ORDER BY ready, nominal, key LIMIT :each)
"""  # noqa: S608 - likewise
EXPIRED = f"""
    SELECT * FROM (
        SELECT lease_end AS time, {COLUMNS}, occurrences.owner AS owner,
        row_number() OVER (PARTITION BY occurrences.owner ORDER BY lease_end, nominal, key) AS place
        FROM occurrences CROSS JOIN schedule_states USING (schedule)
        WHERE lease_end IS NOT NULL AND occurrences.route = :route AND lease_end <= :now
        AND occurrences.owner BETWEEN 0 AND {MAX_OWNER}
        AND occurrences.owner NOT IN (SELECT value FROM json_each(:besides))
    ) WHERE place <= :each
"""  # noqa: S608 - likewise


def due_in_turn(
    connection: sqlite3.Connection,
    routes: Collection[str],
    shares: Shares,
    *,
    now: Micros,
    until: Micros,
    limit: int,
) -> list[Found]:
    """The rows that a claim may take of each owner, in its order."""
    after = -1 if shares.after is None else shares.after.number
    besides = json.dumps([one.number for one in shares.besides])
    known = {"now": now, "until": until, "each": shares.each, "besides": besides, "limit": limit, "steps": STEPS}
    lines: dict[int, list[Found]] = {}
    for route in due_routes(connection, routes, now=now, until=until):
        found = batches.gather(connection, f"{GATHERED}, owner", f"({EXPIRED})", {**known, "route": route})
        owners: list[tuple[int, int]] = []
        for first, last in ((after + 1, MAX_OWNER), (0, after)):
            if len(owners) < limit and first <= last:
                asked = {**known, "route": route, "first": first, "last": last}
                owners += batches.gather(connection, "owner, stretch", f"({OWNERS})", asked)
        if owners:
            asked = {**known, "route": route, "found": json.dumps(owners)}
            found += batches.gather(connection, f"{GATHERED}, owner", f"({READY})", asked)
        for *columns, owner in found:
            lines.setdefault(owner, []).append(columns)
    ring = sorted(lines, key=lambda owner: (owner <= after, owner))
    return rounds([sorted(lines[owner], key=turn)[: shares.each] for owner in ring], limit)
