"""What runs, is due, waits, comes next and is overdue. Each query reads a partial index, and a bounded part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.records import OccurrenceGroup, Workload
from noonmark.stores.sql.claims import IS_LEASED, IS_READY, LEASED_ROUTES, READY_ROUTES
from noonmark.stores.sql.reads.history import ALWAYS, DELIVERING, IS_SUSPENDED, to_occurrences
from noonmark.stores.sql.reads.schedules import SHOWS_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.unit_of_work import UnitOfWork

MAX_READ = 1_000
"""How many rows of each kind one call reads at most."""
_COLUMNS = "key, {time} AS time, schedule, phase"
_PART = "SELECT {columns} FROM occurrences WHERE {condition} ORDER BY {order} LIMIT ?"
READY = _PART.format(
    columns=_COLUMNS.format(time="ready"),
    condition=IS_READY.format(route="?") + " AND ready <= ?",
    order="ready",
)
UPCOMING = _PART.format(
    columns=_COLUMNS.format(time="ready"),
    condition=IS_READY.format(route="?") + " AND ready > ? AND waiting_for IS NULL",
    order="ready",
)
LEASED = _PART.format(columns=_COLUMNS.format(time="started"), condition=IS_LEASED.format(route="?"), order="lease_end")
EXPIRED = _PART.format(
    columns=_COLUMNS.format(time="lease_end"),
    condition=IS_LEASED.format(route="?") + " AND lease_end <= ?",
    order="lease_end",
)
WITH_DEADLINE = _PART.format(
    columns=_COLUMNS.format(time="{time}"),
    condition=f"deadline IS NOT NULL AND {DELIVERING} AND {{more}}",
    order="deadline",
)
ACCEPTED = WITH_DEADLINE.format(time="started", more="phase = 'awaiting_completion'")
OVERDUE = WITH_DEADLINE.format(time="deadline", more="deadline <= ?")
QUEUED = _PART.format(
    columns=_COLUMNS.format(time="due"),
    condition="phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL AND held = 0",
    order="schedule",
)
WANTING = _PART.format(columns=_COLUMNS.format(time="due"), condition="wanted IS NOT NULL AND held = 0", order="wanted")
AWAITING = _PART.format(
    columns=_COLUMNS.format(time="due"),
    condition="phase = 'pending' AND waiting_for = 'dependency_pending' AND held = 0 AND coalesce(ready > ?, TRUE)",
    order="schedule",
)
SUSPENDED = _PART.format(
    columns=_COLUMNS.format(time="due"),
    condition=f"{IS_SUSPENDED} AND held = 0 AND coalesce(ready > ?, TRUE)",
    order="schedule",
)
# A value of each row, and not a join: a database could begin a join with all schedules.
_FITS = f"""
    SELECT found.*, (
        SELECT CASE WHEN (CAST(? AS TEXT) IS NULL OR tenant = ?) AND {SHOWS_RUNS} THEN 1 ELSE 0 END
        FROM schedules WHERE schedules.key = found.schedule
    ) AS fits FROM ({{part}}) AS found
"""


class _Group:
    """The rows of one kind."""

    def __init__(self, uow: UnitOfWork, tenant: str | None) -> None:
        self._uow, self._tenant = uow, tenant
        self._found: list[tuple[int, int]] = []
        self._is_complete = True

    def read(self, part: str, *values: object, most: int = MAX_READ, phases: Sequence[str] = ()) -> None:
        """Add the rows of a part, up to `most`; with `phases`, only those in one of them."""
        rows = self._uow.session.query(_FITS.format(part=part), self._tenant, self._tenant, *values, most)
        self._is_complete &= len(rows) < most
        self._found += [
            (time, key)
            for key, time, _, phase, fits in rows
            if fits and isinstance(time, int) and (not phases or phase in phases)
        ]

    def first(self, limit: int) -> OccurrenceGroup:
        """The first ones, and how many were found."""
        timed = sorted(set(self._found))
        rows = self._uow.rows_of([key for _, key in timed[:limit]])
        return OccurrenceGroup(
            occurrences=to_occurrences(self._uow, rows), count=len(timed), is_complete=self._is_complete
        )


def workload(uow: UnitOfWork, *, now: Micros, limit: int, tenant: str | None) -> Workload:
    """The live occurrences, by what they do."""
    running, due, waiting, upcoming, overdue = (_Group(uow, tenant) for _ in range(5))
    ready = _routes(uow, READY_ROUTES)
    for route in ready:
        due.read(READY, route, now)
        # Of another tenant there may be any number in between; of all, no more than are shown are needed.
        upcoming.read(UPCOMING, route, now, most=limit + 1 if tenant is None else MAX_READ)
    for route in _routes(uow, LEASED_ROUTES):
        running.read(LEASED, route, phases=("dispatching",))
        due.read(EXPIRED, route, now, phases=("claimed",))
    running.read(ACCEPTED)
    waiting.read(QUEUED)
    waiting.read(WANTING)
    waiting.read(AWAITING, now)
    waiting.read(SUSPENDED, now)
    overdue.read(OVERDUE, now)
    return Workload(
        running=running.first(limit),
        due=due.first(limit),
        waiting=waiting.first(limit),
        upcoming=upcoming.first(limit),
        overdue=overdue.first(limit),
    )


def _routes(uow: UnitOfWork, query: str) -> list[str]:
    return [route for route, _ in uow.session.query(query, ALWAYS, ALWAYS) if isinstance(route, str)]
