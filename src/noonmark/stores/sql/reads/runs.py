"""Runs as callers read them: stored ones, and those that go on, made from their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.run import Outcome, Run
from noonmark.core.settlement import open_run
from noonmark.ports.records import Activity
from noonmark.stores.sql.reads import history
from noonmark.stores.sql.records import to_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.unit_of_work import UnitOfWork

MOST_DIGITS = 18
"""No fence has more digits."""
_COLUMNS = """
    occurrences.id, runs.fence, runs.attempt, runs.node, runs.started, runs.ended,
    outcome, result, error, tokens, cost, cost_usd, usage
"""
_RUN_ID = "occurrences.id || '-' || runs.fence"
_BEFORE = f"AND runs.started <= ? AND (runs.started < ? OR {_RUN_ID} < ?)"
_OF_SCHEDULE = f"""
    SELECT {_COLUMNS} FROM runs CROSS JOIN occurrences ON occurrences.key = runs.occurrence
    WHERE runs.schedule = (SELECT schedule FROM schedule_states WHERE uid = ?) {{before}}
    ORDER BY runs.started DESC, {_RUN_ID} DESC LIMIT ?
"""
_OF_OCCURRENCE = f"""
    SELECT {_COLUMNS} FROM occurrences CROSS JOIN runs ON runs.occurrence = occurrences.key
    WHERE occurrences.id = ? ORDER BY runs.started DESC, {_RUN_ID} DESC
"""
_ONE = f"""
    SELECT {_COLUMNS} FROM occurrences CROSS JOIN runs ON runs.occurrence = occurrences.key
    WHERE occurrences.id = ? AND runs.fence = ?
"""
LAST_OF = """
    SELECT occurrences.id, runs.fence, runs.attempt, runs.node, runs.started, runs.ended,
        outcome, NULL AS result, error, tokens, cost, cost_usd, usage
    FROM occurrences CROSS JOIN runs ON runs.occurrence = occurrences.key AND runs.fence = (
        SELECT max(last.fence) FROM runs AS last WHERE last.occurrence = occurrences.key
        AND (last.ended IS NOT NULL OR occurrences.phase = 'awaiting_completion')
    ) WHERE occurrences.id IN EACH(text)
"""
LAST_RUNS = f"""
    SELECT {_COLUMNS}, uid FROM schedule_states
    CROSS JOIN occurrences ON occurrences.key = (
        SELECT newest.key FROM occurrences AS newest WHERE newest.schedule = schedule_states.schedule
        AND EXISTS (SELECT 1 FROM runs AS own WHERE own.occurrence = newest.key AND own.ended IS NOT NULL)
        ORDER BY newest.nominal DESC, newest.id DESC LIMIT 1
    )
    CROSS JOIN runs ON runs.occurrence = occurrences.key AND runs.fence = (
        SELECT max(last.fence) FROM runs AS last WHERE last.occurrence = occurrences.key AND last.ended IS NOT NULL
    ) WHERE uid IN EACH(text)
"""
BEING_DELIVERED = f"""
    SELECT uid, occurrences.id FROM schedule_states
    CROSS JOIN occurrences ON occurrences.schedule = schedule_states.schedule AND ended IS NULL
    AND (occurrences.{history.DELIVERING} OR reason = 'suspended' AND occurrences.phase IN ('pending', 'claimed'))
    WHERE uid IN EACH(text) ORDER BY occurrences.id
"""


_UNTOLD = """
    phase = 'dispatching' AND NOT EXISTS (
        SELECT 1 FROM runs WHERE runs.occurrence = occurrences.key AND runs.fence = occurrences.fence
    )
"""
"""Deliveries without a stored run."""
_UNTOLD_OF_SCHEDULE = f"""
    schedule = (SELECT schedule FROM schedule_states WHERE uid = ?) AND ended IS NULL AND {_UNTOLD}
"""
_UNTOLD_OF_ID = f"id = ? AND {_UNTOLD}"


def of_schedule(uow: UnitOfWork, uid: str, limit: int | None, before: tuple[Micros, str] | None) -> list[Run]:
    """A schedule's runs, newest start first."""
    place = () if before is None else (before[0], *before)
    text = _OF_SCHEDULE.format(before=_BEFORE if place else "")
    ended = uow.session.query(text, uid, *place, history.ALL if limit is None else limit)
    runs = [to_run(columns) for columns in ended]
    going_on = _going_on(uow, _UNTOLD_OF_SCHEDULE, uid)
    if going_on:
        runs += [run for run in going_on if before is None or (run.started, run.id) < before]
        runs.sort(key=lambda run: (run.started, run.id), reverse=True)
    return runs[:limit]


def of_occurrence(uow: UnitOfWork, occurrence_id: str) -> list[Run]:
    """An occurrence's runs, newest start first."""
    runs = [to_run(columns) for columns in uow.session.query(_OF_OCCURRENCE, occurrence_id)]
    runs += _going_on(uow, _UNTOLD_OF_ID, occurrence_id)
    return sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def last_of(uow: UnitOfWork, occurrence_ids: Sequence[str]) -> dict[str, Run]:
    """The last run of each of some occurrences that has ended or was accepted, without its result."""
    runs = [to_run(columns) for columns in uow.session.query(LAST_OF, list(occurrence_ids))]
    return {run.occurrence_id: run for run in runs}


def one(uow: UnitOfWork, run_id: str) -> tuple[str, Run] | None:
    """One run, and the uid of its schedule."""
    occurrence_id, _, number = run_id.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
    row = uow.row(occurrence_id) if is_number else None
    if row is None:
        return None
    runs = [to_run(columns) for columns in uow.session.query(_ONE, occurrence_id, int(number))]
    runs += _going_on(uow, _UNTOLD_OF_ID, occurrence_id)
    return next(((uow.state_of(row).uid, run) for run in runs if run.id == run_id), None)


def activities(uow: UnitOfWork, uids: Sequence[str]) -> list[Activity]:
    """What each of some schedules does at present."""
    keys = list(uids)
    last = {columns[-1]: to_run(columns[:-1]) for columns in uow.session.query(LAST_RUNS, keys)}
    delivering: dict[str, list[str]] = {}
    for uid, occurrence_id in uow.session.query(BEING_DELIVERED, keys):
        delivering.setdefault(uid, []).append(occurrence_id)
    return [Activity(delivering=tuple(delivering.get(uid, ())), last_run=last.get(uid)) for uid in uids]


def _going_on(uow: UnitOfWork, condition: str, value: str) -> list[Run]:
    return [open_run(row, now=uow.now()) for row in history.to_occurrences(uow, uow.find(condition, value))]


def to_run(columns: Sequence[Any]) -> Run:
    """The run of columns: that of its occurrence's id, then those of the run."""
    occurrence_id, fence, attempt, node, started, ended, outcome, result, error, *usage = columns
    return Run(
        id=f"{occurrence_id}-{fence}",
        occurrence_id=occurrence_id,
        attempt=attempt,
        node=node,
        started=started,
        ended=ended,
        outcome=None if outcome is None else Outcome(outcome),
        result=history.shown(result),
        error=error,
        usage=to_usage(*usage),
    )
