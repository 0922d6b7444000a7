"""Finding what can be claimed owner by owner: whoever has something due gets some of it, however much others have.

The index is stepped through from owner to owner, and never row by row: first the stretches of time in which anything is
due, then in each of them the owners. So the cost follows the owners who have something due and the time since, neither
what each of them has nor what is stored for later. The number of steps has a limit; where that is too few, the next
claim begins with another owner.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import MAX_OWNER
from noonmark.core.turns import rounds
from noonmark.stores.sql.finding import COLUMNS, GATHERED, due_routes, turn

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.ports.records import Shares
    from noonmark.stores.sql.finding import Found
    from noonmark.stores.sql.session import Session, Values

STEPS = 10_000
STRETCH = "(ready >> 25)"
"""The stretch of time, of about half a minute, in which a row can first be claimed; as the index has it."""

_IS_READY = "occurrences.phase = 'pending' AND held = 0 AND ready IS NOT NULL AND occurrences.route = :route"
_IN_STRETCH = f"SELECT {{}} FROM occurrences WHERE {_IS_READY} AND {STRETCH} = "  # noqa: S608 - our own text
_OWNER, _READY, _KEY = (_IN_STRETCH.format(column) for column in ("owner", "ready", "key"))
_LAST = "CAST(:until AS bigint) >> 25"
OWNERS = f"""
    WITH RECURSIVE stretches(stretch, step) AS (
        SELECT (SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} ORDER BY {STRETCH} LIMIT 1), 1
        UNION ALL
        SELECT (
            SELECT {STRETCH} FROM occurrences WHERE {_IS_READY} AND {STRETCH} > stretches.stretch
            ORDER BY {STRETCH} LIMIT 1
        ), step + 1
        FROM stretches WHERE stretch < {_LAST} AND step < :steps
    ),
    owners(stretch, owner, step) AS (
        SELECT stretch, ({_OWNER} stretch AND owner BETWEEN :first AND :last ORDER BY owner LIMIT 1), 1
        FROM stretches WHERE stretch <= {_LAST}
        UNION ALL
        SELECT stretch, ({_OWNER} stretch AND owner > owners.owner AND owner <= :last ORDER BY owner LIMIT 1), step + 1
        FROM owners WHERE owner IS NOT NULL AND step < :steps
    )
    SELECT owner, min(stretch) AS stretch FROM owners
    WHERE owner IS NOT NULL AND NOT owner IN EACH(bigint)
    AND (stretch < {_LAST} OR :until >= ({_READY} stretch AND owner = owners.owner ORDER BY ready LIMIT 1))
    GROUP BY owner ORDER BY owner LIMIT :limit
"""  # noqa: S608 - likewise
READY = f"""
    SELECT (SELECT group_concat(key) FROM (
        {_KEY} j.c1 AND owner = j.c0 AND ready <= :until ORDER BY ready, nominal, key LIMIT :each
    ) AS first_ones) FROM ROWS(bigint, bigint) AS j
"""  # noqa: S608 - likewise
EXPIRED = f"""
    SELECT key FROM (
        SELECT key, row_number() OVER (PARTITION BY owner ORDER BY lease_end, nominal, key) AS place
        FROM occurrences WHERE lease_end IS NOT NULL AND route = :route AND lease_end <= :now
        AND owner BETWEEN 0 AND {MAX_OWNER} AND NOT owner IN EACH(bigint)
    ) AS expired WHERE place <= :each
"""  # noqa: S608 - likewise
# By now another node may have taken one of them.
TAKEN = f"""
    SELECT coalesce(lease_end, ready) AS time, {COLUMNS}, occurrences.owner AS owner
    FROM occurrences CROSS JOIN schedule_states USING (schedule)
    WHERE key IN EACH(bigint) AND (
        (occurrences.phase = 'pending' AND held = 0 AND ready <= :until) OR lease_end <= :now
    ) /* quick: occurrences */
"""  # noqa: S608 - likewise
_PARAMETERS = re.compile(r":(?P<name>\w+)|EACH\(|ROWS\(")


def due_in_turn(
    session: Session, routes: Collection[str], shares: Shares, *, now: Micros, until: Micros, limit: int
) -> list[Found]:
    """The rows that a claim may take of each owner, in its order."""
    after = -1 if shares.after is None else shares.after.number
    besides = [one.number for one in shares.besides]
    known = {"now": now, "until": until, "each": shares.each, "limit": limit, "steps": STEPS}
    keys: list[int] = []
    for route in due_routes(session, routes, now=now, until=until):
        asked = {**known, "route": route}
        keys += [key for (key,) in _ask(session, EXPIRED, asked, besides)]
        owners: list[Values] = []
        for first, last in ((after + 1, MAX_OWNER), (0, after)):
            if len(owners) < limit and first <= last:
                owners += _ask(session, OWNERS, {**asked, "first": first, "last": last}, besides)
        for (listed,) in _ask(session, READY, asked, owners) if owners else ():
            keys += [int(key) for key in str(listed).split(",")] if listed else []
    lines: dict[int, list[Found]] = {}
    for *columns, owner in _ask(session, TAKEN, known, keys, f"{GATHERED}, owner") if keys else ():
        lines.setdefault(owner, []).append(columns)
    ring = sorted(lines, key=lambda owner: (owner <= after, owner))
    return rounds([sorted(lines[owner], key=turn)[: shares.each] for owner in ring], limit)


def _ask(
    session: Session, text: str, known: dict[str, Any], listed: list[Any], columns: str | None = None
) -> list[Values]:
    """Ask with parameters by name, and the one that is a list; with columns, many rows at once."""
    parameters: list[Any] = []

    def put(found: re.Match[str]) -> str:
        parameters.append(known[found["name"]] if found["name"] else listed)
        return "?" if found["name"] else found[0]

    numbered = _PARAMETERS.sub(put, text)
    if columns is None:
        return session.query(numbered, *parameters)
    return session.gather(columns, f"({numbered})", *parameters)
