"""Repair: the newest time that is stored, and putting right what a clock that was ahead has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.stores.sql import snapshots
from noonmark.stores.sql.finding import FIRST_LEASED, FIRST_READY

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.session import Session

_ANY = 2**62
"""Later than any time. In SQLite, damaged text is later still, and stays out."""
NEWEST = """
    SELECT max(time) FROM (
        SELECT max(seen) AS time FROM nodes WHERE seen < ? UNION ALL
        SELECT max(ended) FROM occurrences WHERE ended IS NOT NULL AND ended < ? UNION ALL
        SELECT max(lease_end) FROM occurrences WHERE lease_end IS NOT NULL AND lease_end < ? UNION ALL
        SELECT max(noted) FROM notes WHERE noted < ?
    ) AS times
"""
_DUE_SINCE = f"""
    SELECT min(time) FROM (
        SELECT {FIRST_READY} AS time FROM EACH(text) AS j UNION ALL SELECT {FIRST_LEASED} FROM EACH(text) AS j
    ) AS times
"""  # noqa: S608 - our own text
_AHEAD = """
    FROM schedule_states
    WHERE watermark > ? AND uid > ? AND phase <> 'deleted' AND fault IS NULL ORDER BY uid LIMIT ?
"""
PLANNED_AHEAD, _UIDS_AHEAD = f"SELECT * {_AHEAD}", f"SELECT uid {_AHEAD}"
_LEASED = "SELECT key FROM occurrences WHERE lease_end IS NOT NULL AND lease_end > ? /* quick: occurrences */"
_ENDED = "SELECT key FROM occurrences WHERE ended IS NOT NULL AND ended > ? /* quick: occurrences */"
# Rows that would wait: which, by how much later than anything, and what of them becomes now.
_WAITING: tuple[tuple[str, Micros, tuple[str, ...]], ...] = (
    ("phase = 'pending' AND ready IS NOT NULL AND ready > due AND ready > ?", 0, ("ready",)),
    (
        "phase = 'pending' AND ready IS NOT NULL AND origin <> 'trigger' AND attempt = 0 AND due > ?",
        0,
        ("due", "ready"),
    ),
    ("phase = 'pending' AND ready IS NOT NULL AND attempt > 0 AND due > ?", LONGEST_RETRY, ("due", "ready")),
    ("lease_end IS NOT NULL AND due > ?", 0, ("due",)),
)
_PLANNED = """
    SELECT schedule FROM schedule_states WHERE plan_at IS NOT NULL AND plan_at > ? AND plan_at > watermark
    /* quick: schedule_states */
"""
_LEAD = "UPDATE leadership SET until = ? WHERE until > ? AND node IS NOT NULL RETURNING key"
_TIMES = (
    ("nodes", "name", "seen"),
    ("served_routes", "route", "seen"),
    ("notes", "key", "noted"),
    ("idempotency_keys", "key", "created"),
)


def newest_time(session: Session, before: Micros | None) -> Micros | None:
    """The newest time that something was written, or the newest before another."""
    until = _ANY if before is None else before
    [(time,)] = session.query(NEWEST, until, until, until, until)
    return time if isinstance(time, int) else None


def due_since(session: Session, routes: Collection[str]) -> Micros | None:
    """Since when the first row can be claimed."""
    named = list(routes)
    [(time,)] = session.query(_DUE_SINCE, named, named)
    return time if isinstance(time, int) else None


def planned_ahead(ledger: Ledger, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
    """Schedules that are accounted for beyond a time. A page has as many as were asked for, if there are."""
    found: list[Snapshot] = []
    while len(found) < limit:
        uids = ledger.session.query(_UIDS_AHEAD, until, after, limit)
        found += snapshots.since(ledger, ledger.sheets_in(PLANNED_AHEAD, until, after, limit), now)
        if len(uids) < limit:
            break
        [after] = uids[-1]  # of which some may be damaged, and left out
    return found


def mend(session: Session, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back every time that lies too far ahead."""
    count = 0
    for query, column, time in ((_LEASED, "lease_end", now + lease), (_ENDED, "ended", now)):
        keys = [key for (key,) in session.query(query, after)]
        if keys:
            session.update("occurrences", ("key", column), [(key, time) for key in keys])
        count += len(keys)
    for condition, margin, columns in _WAITING:
        query = f"SELECT key FROM occurrences WHERE ended IS NULL AND {condition} /* quick: occurrences */"  # noqa: S608
        keys = [key for (key,) in session.query(query, after + margin)]
        if keys:
            session.update("occurrences", ("key", *columns), [(key, *(now for _ in columns)) for key in keys])
        count += len(keys)
    planned = session.query(_PLANNED, after)
    if planned:
        session.update("schedule_states", ("schedule", "plan_at"), [(key, now) for (key,) in planned])
    count += len(planned)
    for table, key, column in _TIMES:
        found = session.query(
            f"UPDATE {table} SET {column} = ? WHERE {column} > ? RETURNING {key}",  # noqa: S608 - our own names
            now,
            after,
        )
        count += len(found)
    found = session.query(_LEAD, now + lease, after)
    return count + len(found)
