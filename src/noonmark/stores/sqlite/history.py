"""What has happened: occurrences and runs as callers read them, what is overdue, and forgetting what is old."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.run import Outcome, Run, Usage
from noonmark.stores.sqlite import batches
from noonmark.stores.sqlite.finding import FIRST_LEASED, FIRST_READY
from noonmark.stores.sqlite.records import Unreadable, from_json, occurrence

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.stores.sqlite.driver import sqlite3
    from noonmark.stores.sqlite.ledger import Ledger
    from noonmark.stores.sqlite.records import Row

ALL = -1
"""The limit that SQLite takes for none."""
CROWDED = 32
"""Schedules with fewer ended occurrences are not in the index of those; to find them, all schedules are read."""
_DELIVERING = "phase IN ('dispatching', 'awaiting_completion')"
NEXT_TIME = f"""
    SELECT min(time) FROM (
        SELECT min(plan_at) AS time FROM schedule_states
        WHERE phase = 'active' AND plan_at IS NOT NULL AND fault IS NULL
        UNION ALL
        SELECT min(deadline) FROM occurrences WHERE deadline IS NOT NULL AND {_DELIVERING}
        UNION ALL SELECT {FIRST_READY} FROM json_each(?) AS j
        UNION ALL SELECT {FIRST_LEASED} FROM json_each(?) AS j
    )
"""  # noqa: S608 - our own text
_OF_SCHEDULE = "schedule = (SELECT schedule FROM schedule_states WHERE uid = ?) ORDER BY nominal DESC, id DESC LIMIT ?"
OVERDUE = f"deadline IS NOT NULL AND {_DELIVERING} AND deadline <= ? ORDER BY deadline, id LIMIT ?"
_RUNS = """
    SELECT id, runs.fence, runs.attempt, runs.node, runs.started, runs.ended, outcome, result, error, tokens, cost_usd
    FROM occurrences CROSS JOIN runs ON runs.occurrence = occurrences.key
    WHERE schedule = (SELECT schedule FROM schedule_states WHERE uid = ?)
    ORDER BY runs.started DESC, id || '-' || runs.fence DESC LIMIT ?
"""
_OLD = "SELECT key, schedule FROM occurrences WHERE ended IS NOT NULL AND ended < ? ORDER BY ended, id LIMIT ?"
_FULLEST = "SELECT schedule, history FROM schedule_states WHERE history > ? {more} ORDER BY history DESC, uid LIMIT 1"
_OLDEST = """
    SELECT key, schedule FROM occurrences WHERE schedule = ? AND ended IS NOT NULL ORDER BY nominal, id LIMIT ?
"""


def one(ledger: Ledger, occurrence_id: str) -> Occurrence | None:
    """One occurrence as it stands."""
    row = ledger.row(occurrence_id)
    return None if row is None else _told(ledger, [row])[0]


def of_schedule(ledger: Ledger, uid: str, limit: int | None) -> list[Occurrence]:
    """A schedule's occurrences, newest nominal time first."""
    return _told(ledger, ledger.find(_OF_SCHEDULE, uid, ALL if limit is None else limit))


def overdue(ledger: Ledger, *, now: Micros, limit: int) -> list[Occurrence]:
    """Deliveries whose deadline has come, earliest first."""
    return _told(ledger, ledger.find(OVERDUE, now, limit))


def runs(connection: sqlite3.Connection, uid: str, limit: int | None) -> list[Run]:
    """A schedule's runs, newest start first."""
    return [
        Run(
            id=f"{occurrence_id}-{fence}",
            occurrence_id=occurrence_id,
            attempt=attempt,
            node=node,
            started=started,
            ended=ended,
            outcome=None if outcome is None else Outcome(outcome),
            result=_shown(result),
            error=error,
            usage=None if tokens is None else Usage(tokens=tokens, cost_usd=cost),
        )
        for occurrence_id, fence, attempt, node, started, ended, outcome, result, error, tokens, cost in (
            connection.execute(_RUNS, (uid, ALL if limit is None else limit))
        )
    ]


def next_time(connection: sqlite3.Connection, routes: Collection[str]) -> Micros | None:
    """When anything can next be planned, is overdue, or can be claimed."""
    named = json.dumps(list(routes))
    time: Micros | None
    [(time,)] = connection.execute(NEXT_TIME, (named, named)).fetchall()
    return time


def prune(connection: sqlite3.Connection, *, before: Micros, keep: int, limit: int) -> int:
    """Forget what is old, and what is too much."""
    count = _forget(connection, connection.execute(_OLD, (before, limit)).fetchall())
    more = f"AND history >= {CROWDED}" if keep >= CROWDED - 1 else ""
    while count < limit:
        fullest = connection.execute(_FULLEST.format(more=more), (keep,)).fetchone()
        if fullest is None:
            break
        schedule, history = fullest
        excess = min(history - keep, limit - count)
        count += _forget(connection, connection.execute(_OLDEST, (schedule, excess)).fetchall())
    return count


def _forget(connection: sqlite3.Connection, found: Sequence[tuple[int, int]]) -> int:
    if found:
        keys = [key for key, _ in found]
        batches.delete(connection, "runs", "occurrence", keys)
        batches.delete(connection, "occurrences", "key", keys)
        fewer: dict[int, int] = {}
        for _, schedule in found:
            fewer[schedule] = fewer.get(schedule, 0) + 1
        connection.execute(
            "UPDATE schedule_states SET history = history - (j.value ->> 1) FROM json_each(?) AS j"
            " WHERE schedule = j.value ->> 0",
            (json.dumps(list(fewer.items())),),
        )
    return len(found)


def _told(ledger: Ledger, rows: Sequence[Row]) -> list[Occurrence]:
    """Rows as callers read them; a payload that cannot be read is left out, since the rest is worth telling."""
    ids = dict(
        batches.select(
            ledger.connection, "schedules.key, schedule_id", "schedules", "key", list({row.schedule for row in rows})
        )
    )
    try:
        return [occurrence(row, ledger.sheet_of(row).uid, ids[row.schedule], _shown(row.payload)) for row in rows]
    except Unreadable as error:
        raise StoreUnavailable(f"the stored record of an occurrence is damaged: {error}") from None


def _shown(text: str | None) -> object:
    try:
        return from_json(text, "value")
    except Unreadable:
        return None
