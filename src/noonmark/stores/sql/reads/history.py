"""Occurrences as callers read them, what is overdue, and pruning."""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import LIVE
from noonmark.ports.records import Backlog
from noonmark.stores.rules.backfills import PhaseCount
from noonmark.stores.rules.records import Unreadable, to_occurrence
from noonmark.stores.sql import workflows
from noonmark.stores.sql.claims import (
    FIRST_LEASED,
    FIRST_READY,
    IS_LEASED,
    IS_READY,
    LEASED_ROUTES,
    READY_ROUTES,
    STRAY,
    due_routes,
)
from noonmark.stores.sql.records import from_json
from noonmark.stores.sql.row_checks import FURTHEST

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.stores.rules.records import Row
    from noonmark.stores.sql.session import Session, Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork


ALWAYS = 2**62
"""Later than anything: no route was served after it."""
_SCHEDULES = "SELECT schedule FROM occurrences WHERE {condition} AND {time} <= ? ORDER BY {time} LIMIT ?"
READY = _SCHEDULES.format(condition=IS_READY.format(route="?"), time="ready")
EXPIRED = _SCHEDULES.format(condition=IS_LEASED.format(route="?"), time="lease_end")
# The list is that of the index, to the letter: SQLite finds the index by it.
IS_SUSPENDED = "phase = 'pending' AND waiting_for IN ('approval', 'step_pending')"
WAITING = f"""
    SELECT count(*) FROM (
        SELECT * FROM (
            SELECT 1 FROM occurrences
            WHERE phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL
            ORDER BY schedule LIMIT ?
        ) AS queued
        UNION ALL SELECT * FROM (SELECT 1 FROM occurrences WHERE wanted IS NOT NULL ORDER BY wanted LIMIT ?) AS wanting
        UNION ALL SELECT * FROM (
            SELECT 1 FROM occurrences
            WHERE phase = 'pending' AND waiting_for = 'dependency_pending' AND coalesce(ready > ?, TRUE)
            ORDER BY schedule LIMIT ?
        ) AS awaiting
        UNION ALL SELECT * FROM (
            SELECT 1 FROM occurrences WHERE {IS_SUSPENDED} AND coalesce(ready > ?, TRUE) ORDER BY schedule LIMIT ?
        ) AS suspended
    ) AS waiting
"""


def count(session: Session, now: Micros, limit: int) -> Backlog:
    """Count due, unclaimed occurrences, and waiting ones."""
    routes = {route for query in (READY_ROUTES, LEASED_ROUTES) for route, _ in session.query(query, ALWAYS, ALWAYS)}
    routes = {route for route in routes if isinstance(route, str)}
    schedules: set[int] = set()
    due = 0
    for route in due_routes(session, routes, now=now, until=now):
        for query in (READY, EXPIRED):
            page = session.gather("schedule", f"({query})", route, now, limit - due)
            schedules.update(schedule for (schedule,) in page)
            due += len(page)
    [(waiting,)] = session.query(WAITING, limit, limit, now, limit, now, limit)
    return Backlog(schedules=len(schedules), due=due, waiting=min(waiting, limit))


ALL = 2**62
"""No limit."""
CROWDED = 32
"""Schedules with fewer ended occurrences are not in the index of those; to find them, all schedules are read."""
BUCKET = 25
"""How many ended occurrences make a bucket; a schedule in the first one is not in that index."""
DELIVERING = "phase IN ('dispatching', 'awaiting_completion')"
NEXT_TIME = f"""
    SELECT (SELECT min(time) FROM (
        SELECT min(plan_at) AS time FROM schedule_states
        WHERE phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL
        UNION ALL
        SELECT min(deadline) FROM occurrences WHERE deadline IS NOT NULL AND {DELIVERING}
        UNION ALL SELECT {FIRST_LEASED} FROM EACH(text) AS j
    ) AS times WHERE time <= {FURTHEST}),
    (SELECT min(time) FROM (SELECT {FIRST_READY} AS time FROM EACH(text) AS j) AS times WHERE time <= {FURTHEST}),
    (SELECT tenant FROM event_streams WHERE newest > matched_until ORDER BY matched_until, tenant LIMIT 1) IS NOT NULL
"""
_OF_UID = "schedule = (SELECT schedule FROM schedule_states WHERE uid = ?)"
_OF_TIME = "AND nominal = ? ORDER BY CASE WHEN origin = 'trigger' THEN 0 ELSE 1 END, due DESC, id DESC LIMIT ?"
_OVER_TIME = "AND missed_last IS NOT NULL AND missed_last >= ? AND nominal < ? ORDER BY missed_last LIMIT ?"
OVERDUE = f"deadline IS NOT NULL AND {DELIVERING} AND deadline <= ? ORDER BY deadline, id LIMIT ?"
OVERDUE_STRAYS = f"""
    SELECT key FROM occurrences WHERE deadline IS NOT NULL AND {DELIVERING} AND deadline <= ?
    AND {STRAY} LIMIT ?
"""
_OLD = """
    SELECT key, schedule FROM occurrences CROSS JOIN schedule_states AS s USING (schedule)
    WHERE ended IS NOT NULL AND ended < ? ORDER BY ended, id LIMIT ? /* quick: s, occurrences */
"""
_FULLEST = """
    SELECT schedule, history FROM schedule_states AS s WHERE history > ? {among}
    ORDER BY {order}history DESC, uid LIMIT ? /* quick: s */
"""
# One constraint checks all counts: a negative one beside it would refuse every change.
_COUNTS = "live = CASE WHEN live >= 0 THEN live ELSE 0 END, queued = CASE WHEN queued >= 0 THEN queued ELSE 0 END"
_FEWER = f"""
    UPDATE schedule_states SET history = CASE WHEN history BETWEEN j.c1 AND {FURTHEST} THEN history - j.c1 ELSE 0 END,
    {_COUNTS} FROM ROWS(bigint, bigint) AS j WHERE schedule = j.c0
"""
_RECOUNT = f"""
    UPDATE schedule_states SET history = (
        SELECT count(*) FROM occurrences WHERE occurrences.schedule = schedule_states.schedule AND ended IS NOT NULL
    ), {_COUNTS} WHERE schedule IN EACH(bigint)
"""
_NAMES = "schedules WHERE schedules.key IN EACH(bigint)"
# Up to the time of the last one to delete; others may have the same time.
OLDEST = """
    SELECT old.key, schedule FROM EACH(bigint) AS j
    CROSS JOIN occurrences AS old ON schedule = j.value AND ended IS NOT NULL AND nominal <= (
        SELECT last.nominal FROM occurrences AS last WHERE last.schedule = j.value AND last.ended IS NOT NULL
        ORDER BY last.nominal LIMIT 1 OFFSET ?
    ) ORDER BY schedule, nominal, old.id /* quick: old */
"""


def one(uow: UnitOfWork, occurrence_id: str) -> Occurrence | None:
    """Get an occurrence."""
    row = uow.row(occurrence_id)
    if row is None:
        return None
    occurrences = to_occurrences(uow, [row])
    if not occurrences:
        raise StoreUnavailable(f"the stored record of occurrence {row.id} is damaged; noonmark doctor says more")
    return occurrences[0]


def standing_for(uow: UnitOfWork, uid: str, time: Micros, limit: int) -> list[Occurrence]:
    """A schedule's occurrences of a time, and of gaps that reach over it."""
    exact = uow.find(f"{_OF_UID} {_OF_TIME}", uid, time, limit)
    return to_occurrences(uow, [*exact, *uow.find(f"{_OF_UID} {_OVER_TIME}", uid, time, time, limit)])


def of_schedule(
    uow: UnitOfWork, uid: str, limit: int | None, before: tuple[Micros, str] | None, phases: Collection[Phase]
) -> list[Occurrence]:
    """A schedule's occurrences, newest nominal time first."""
    where, values = _OF_UID, [uid, *(before or ())]
    if before is not None:
        where += " AND (nominal, id) < (?, ?)"
    order = "nominal"
    if phases:
        where += " AND phase IN EACH(text)"
        values.append(sorted(phases))
        if LIVE.issuperset(phases):
            # The sum keeps the query on the index of live rows, which are few.
            where, order = f"{where} AND ended IS NULL", "nominal + 0"
    text = f"{where} ORDER BY {order} DESC, id DESC LIMIT ?"
    return to_occurrences(uow, uow.find(text, *values, ALL if limit is None else limit))


def overdue(uow: UnitOfWork, *, now: Micros, limit: int) -> tuple[list[Occurrence], dict[int, str], list[int]]:
    """Deliveries whose deadline has come, earliest first, what is wrong with those that cannot be read, and strays."""
    sound: list[Row] = []
    faults: dict[int, str] = {}
    strays = [key for (key,) in uow.session.query(OVERDUE_STRAYS, now, limit)]
    for row in uow.find(OVERDUE, now, limit):
        if problem := row.damage or _problem(uow, row):
            faults[row.key] = problem
        else:
            sound.append(row)
    return to_occurrences(uow, sound), faults, strays


def _problem(uow: UnitOfWork, row: Row) -> str | None:
    """What keeps a row, or its schedule, from being read."""
    try:
        uow.schedule_of(uow.state_of(row))
        to_occurrence(row, "", "", None, from_json)
    except Unreadable as error:
        return str(error)
    return None


def next_time(uow: UnitOfWork, routes: Collection[str], lookahead: Micros) -> Micros | None:
    """When anything can next be matched, planned, is overdue, or can be claimed."""
    named = list(routes)
    [(time, ready, is_unmatched)] = uow.session.query(NEXT_TIME, named, named)
    times = [time, None if ready is None else ready - lookahead, MIN_INSTANT if is_unmatched else None]
    return min((one for one in times if one is not None), default=None)


def prune(session: Session, *, before: Micros, keep: int, limit: int) -> int:
    """Delete old occurrences, then the excess of each schedule."""
    count = _forget(session, session.query(_OLD, before, limit))
    workflows.prune(session, before=before, limit=limit)
    return count + _forget(session, _too_many(session, keep, limit - count))


def _too_many(session: Session, keep: int, limit: int) -> list[Values]:
    """The oldest rows of schedules with too many, the fullest schedule first."""
    among = order = ""
    if session.has_buckets and keep >= BUCKET:
        # If `keep` is a multiple, these are exactly those with more; otherwise some are read that have not more.
        among, order = f"AND history_bucket >= {keep // BUCKET}", "history_bucket DESC, "
    elif not session.has_buckets and keep >= CROWDED - 1:
        among = f"AND history >= {CROWDED}"
    by_excess: dict[int, list[int]] = {}
    for schedule, history in session.query(_FULLEST.format(among=among, order=order), keep, limit):
        if type(history) is not int:
            session.execute(_RECOUNT, [schedule])
            continue
        excess = min(history - keep, limit)
        if not excess:
            break
        limit -= excess
        by_excess.setdefault(excess, []).append(schedule)
    # Few statements for any number of schedules: a thousand is the sum of at most 44 different numbers.
    oldest: list[Values] = []
    miscounted: list[int] = []
    for excess, schedules in by_excess.items():
        rows = session.query(OLDEST, schedules, excess - 1)
        for _, of_one in groupby(rows, itemgetter(1)):
            oldest += islice(of_one, excess)
        miscounted += {*schedules} - {schedule for _, schedule in rows}
    if miscounted:  # a damaged count would be found again and again, and leave no room for others
        session.execute(_RECOUNT, miscounted)
    return oldest


def _forget(session: Session, rows: Sequence[Values]) -> int:
    if rows:
        keys = [key for key, _ in rows]
        workflows.forget(session, keys)
        session.delete("runs", "occurrence", keys)
        session.delete("occurrences", "key", keys)
        fewer: dict[int, int] = {}
        for _, schedule in rows:
            fewer[schedule] = fewer.get(schedule, 0) + 1
        session.execute(
            _FEWER,
            list(fewer.items()),
        )
    return len(rows)


def to_occurrences(uow: UnitOfWork, rows: Sequence[Row]) -> list[Occurrence]:
    """Rows as callers read them; a damaged payload is left out."""
    ids: dict[int, str] = dict(
        uow.session.gather("schedules.key, schedule_id", _NAMES, list({row.schedule for row in rows}))
    )
    occurrences = []
    for row in rows:
        try:
            schedule_id = str(ids.get(row.schedule, ""))
            occurrence = to_occurrence(row, uow.state_of(row).uid, schedule_id, shown(row.payload), from_json)
        except Unreadable as error:
            uow.schedule_cache.damage.note("occurrences", row.key, str(error))
        else:
            occurrences.append(occurrence)
    return occurrences


def shown(text: str | None) -> object:
    """The value of JSON text; None if it is damaged."""
    try:
        return from_json(text, "value")
    except Unreadable:
        return None


BACKFILLS = """
    SELECT origin, phase, count(*), min(nominal), max(nominal), min(first_due), sum(held) FROM occurrences
    WHERE schedule = (SELECT schedule FROM schedule_states WHERE uid = ?) AND substr(origin, 1, 9) = 'backfill:'
    GROUP BY origin, phase
"""


def backfill_counts(session: Session, uid: str) -> list[PhaseCount]:
    """How many occurrences of each backfill of a schedule are in each phase."""
    rows = session.query(BACKFILLS, uid)
    return [PhaseCount(origin, phase, *(int(number) for number in numbers)) for origin, phase, *numbers in rows]
