"""Clock repair by statements; `stores.rules.clock_repair` states the rule for one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import FINAL
from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.stores.rules import snapshots
from noonmark.stores.sql.claims import FIRST_LEASED, FIRST_READY

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Snapshot
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

_ANY = 2**62
"""Later than any time. In SQLite, damaged text is later still, and is left out."""
# Only consistent rows: the constraints of the database refuse to write a damaged one.
_COUNTED = "attempt >= 0 AND losses >= 0 AND missed_count >= 0 AND fence >= 0"
_IS_LEASED = f"lease_end IS NOT NULL AND phase IN ('claimed', 'dispatching') AND ended IS NULL AND {_COUNTED}"
_HAS_ENDED = f"""
    ended IS NOT NULL AND phase IN ({", ".join(f"'{one}'" for one in sorted(FINAL))}) AND reason IS NOT NULL
    AND lease_end IS NULL AND {_COUNTED}
"""
_IS_PENDING = f"phase = 'pending' AND ready IS NOT NULL AND ended IS NULL AND lease_end IS NULL AND {_COUNTED}"
NEWEST = f"""
    SELECT max(time) FROM (
        SELECT max(seen) AS time FROM nodes WHERE seen < ? UNION ALL
        SELECT max(ended) FROM occurrences WHERE {_HAS_ENDED} AND ended < ? UNION ALL
        SELECT max(lease_end) FROM occurrences WHERE {_IS_LEASED} AND lease_end < ? UNION ALL
        SELECT max(noted) FROM notes WHERE noted < ?
    ) AS times
"""
_DUE_SINCE = f"""
    SELECT min(time) FROM (
        SELECT {FIRST_READY} AS time FROM EACH(text) AS j UNION ALL SELECT {FIRST_LEASED} FROM EACH(text) AS j
    ) AS times
"""
_AHEAD = """
    FROM schedule_states
    WHERE watermark > ? AND uid > ? AND phase <> 'deleted' AND fault IS NULL ORDER BY uid LIMIT ?
"""
PLANNED_AHEAD, _UIDS_AHEAD = f"SELECT * {_AHEAD}", f"SELECT uid {_AHEAD}"
_LEASED = f"{_IS_LEASED} AND lease_end > ?"
_ENDED = f"{_HAS_ENDED} AND ended > ?"
# Rows that would wait: a condition, a margin, and the columns that become now.
_WAITING: tuple[tuple[str, Micros, tuple[str, ...]], ...] = (
    (f"{_IS_PENDING} AND ready > due AND ready > ?", 0, ("ready",)),
    (f"{_IS_PENDING} AND origin <> 'trigger' AND attempt = 0 AND due > ?", 0, ("due", "ready")),
    (f"{_IS_PENDING} AND attempt > 0 AND due > ?", LONGEST_RETRY, ("due", "ready")),
    (f"{_IS_LEASED} AND due > ?", 0, ("due",)),
)
_PLANNED = """
    SELECT schedule FROM schedule_states WHERE plan_at IS NOT NULL AND plan_at > ? AND plan_at > watermark
    AND phase IN ('active', 'paused', 'completed', 'deleted') AND live >= 0 AND history >= 0 AND queued >= 0
    /* quick: schedule_states */
"""
_LEAD = "UPDATE leadership SET until = ? WHERE until > ? AND node IS NOT NULL AND term >= 1 RETURNING key"
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


def planned_ahead(uow: UnitOfWork, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
    """Schedules that are accounted for beyond a time; a page is full unless it is the last."""
    snapshots_ahead: list[Snapshot] = []
    while len(snapshots_ahead) < limit:
        uids = uow.session.query(_UIDS_AHEAD, until, after, limit)
        ahead = uow.states_in(PLANNED_AHEAD, until, after, limit)
        snapshots_ahead += snapshots.of_sound(uow, ahead, since=now)[0]
        if len(uids) < limit:
            break
        [after] = uids[-1]  # some of them may be damaged, and left out
    return snapshots_ahead


def repair(session: Session, *, now: Micros, after: Micros, lease: Micros) -> int:
    """Set back every time that is too far ahead; returns how many."""
    count = 0
    for condition, column, time in ((_LEASED, "lease_end", now + lease), (_ENDED, "ended", now)):
        count += _set(session, condition, after, {column: time})
    for condition, margin, columns in _WAITING:
        count += _set(session, condition, after + margin, dict.fromkeys(columns, now))
    planned = session.query(_PLANNED, after)
    if planned:
        session.update("schedule_states", ("schedule", "plan_at"), [(key, now) for (key,) in planned])
    count += len(planned)
    for table, key, column in _TIMES:
        rows = session.query(
            f"UPDATE {table} SET {column} = ? WHERE {column} > ? RETURNING {key}",
            now,
            after,
        )
        count += len(rows)
    rows = session.query(_LEAD, now + lease, after)
    return count + len(rows)


def _set(session: Session, condition: str, after: Micros, times: dict[str, Micros]) -> int:
    """Set times of the occurrences that meet a condition; returns how many."""
    query = f"SELECT key FROM occurrences WHERE {condition} /* quick: occurrences */"
    keys = [key for (key,) in session.query(query, after)]
    if keys:
        session.update("occurrences", ("key", *times), [(key, *times.values()) for key in keys])
    return len(keys)
