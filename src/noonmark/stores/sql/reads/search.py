"""Occurrences across schedules, by their time.

The time of an ended occurrence is its end, and that of a live one its due time. Failures have an index of their own.
Other ended rows are read in the order of their ends, a bounded number of them in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.lifecycle import FAILURES, FINAL, LIVE, Phase
from noonmark.ports.records import FoundOccurrences
from noonmark.stores.sql.reads.history import to_occurrences
from noonmark.stores.sql.reads.schedules import SHOWS_RUNS
from noonmark.stores.sql.row_checks import FURTHEST
from noonmark.stores.sql.schedule_documents import label_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.ports.records import OccurrenceFilter, PageKey
    from noonmark.stores.sql.session import Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork

MAX_READ = 10_000
"""How many ended rows one call reads at most."""
MAX_STEP = 2_500
KNOWN = "SELECT id FROM occurrences WHERE id IN EACH(text)"
# The list is that of the index, to the letter: SQLite finds the index by it.
_FAILED = "phase IN ('delivery_failed', 'failed', 'misfired', 'timed_out') AND phase = ? AND ended IS NOT NULL"
_ENDED = "ended IS NOT NULL"
_LIVE = "ended IS NULL"
_OF_UID = "schedule = (SELECT schedule FROM schedule_states WHERE uid = ?)"
_HAS_LABELS = "NOT EXISTS (SELECT 1 FROM EACH(text) AS j WHERE coalesce(replace(labels, j.value, '') = labels, TRUE))"
# A value of one schedule, and not a join: a database could begin a join with all schedules.
_OF_TENANT = f"""(
    SELECT CASE WHEN tenant = ? AND {SHOWS_RUNS}{{more}} THEN 1 ELSE 0 END
    FROM schedules WHERE schedules.key = schedule
) = 1"""


def search(
    uow: UnitOfWork, tenant: str, wanted: OccurrenceFilter, limit: int, before: PageKey | None
) -> FoundOccurrences:
    """A page of the occurrences of a tenant that fit, latest time first."""
    phases = wanted.phases or frozenset(Phase)
    scan = _Scan(uow, tenant, wanted, limit, before)
    if phases <= FAILURES:
        for phase in sorted(phases):
            scan.read(_FAILED, (phase,), "ended", most=MAX_READ)
    elif phases & FINAL:
        scan.read(_ENDED, (), "ended", most=MAX_READ)
    if phases & LIVE:
        scan.read(_LIVE, (), "due", most=FURTHEST)
    return scan.page()


def known(uow: UnitOfWork, occurrence_ids: Collection[str]) -> set[str]:
    """Those of the ids that occurrences have."""
    return {occurrence_id for (occurrence_id,) in uow.session.query(KNOWN, list(occurrence_ids))}


class _Scan:
    """Reads of several parts of the occurrences, and what fits among all of them."""

    def __init__(
        self, uow: UnitOfWork, tenant: str, wanted: OccurrenceFilter, limit: int, before: PageKey | None
    ) -> None:
        self._uow = uow
        self._limit = limit
        self._wanted = wanted
        self._before = before
        lines = [label_line(name, value) for name, value in wanted.labels.items()]
        of_schedule: list[tuple[str, Any]] = [] if wanted.user is None else [("username = ?", wanted.user)]
        of_schedule += [(_HAS_LABELS, lines)] if lines else []
        more = "".join(f" AND {condition}" for condition, _ in of_schedule)
        conditions: list[tuple[str, tuple[Any, ...]]] = [
            (_OF_TENANT.format(more=more), (tenant, *(value for _, value in of_schedule)))
        ]
        if wanted.phases:
            conditions.append(("phase IN EACH(text)", (sorted(wanted.phases),)))
        if wanted.reasons:
            conditions.append(("reason IN EACH(text)", (sorted(wanted.reasons),)))
        self._fits = " AND ".join(condition for condition, _ in conditions)
        self._values = [value for _, values in conditions for value in values]
        self._found: list[tuple[PageKey, int]] = []
        self._end: PageKey | None = None
        """Up to here every part was read; None if all of them were read to the end."""

    def read(self, part: str, values: tuple[object, ...], time: str, *, most: int) -> None:
        """Read a part of the occurrences in the order of a column, until enough fit or `most` are read."""
        wanted, place = self._wanted, self._before
        if wanted.uid is not None:
            part, values = f"{part} AND {_OF_UID}", (*values, wanted.uid)
        since = -FURTHEST if wanted.since is None else wanted.since
        until = FURTHEST if wanted.until is None else wanted.until
        fitting, read, step = 0, 0, min(self._limit, MAX_STEP)
        while True:
            more, position = (f" AND ({time}, id) < (?, ?)", place) if place else ("", ())
            rows: list[Values] = self._uow.session.query(
                f"SELECT key, {time}, id, CASE WHEN {self._fits} THEN 1 ELSE 0 END FROM occurrences"
                f" WHERE {part} AND {time} >= ? AND {time} <= ?{more} ORDER BY {time} DESC, id DESC LIMIT ?",
                *self._values,
                *values,
                since,
                until,
                *position,
                step,
            )
            self._found += [((at, row_id), key) for key, at, row_id, fits in rows if fits]
            fitting += sum(fits for *_, fits in rows)
            read += len(rows)
            if len(rows) < step:
                return
            place = rows[-1][1:3]
            if fitting >= self._limit or read >= most:
                self._end = place if self._end is None else max(self._end, place)
                return
            step = min(step * 4, MAX_STEP)

    def page(self) -> FoundOccurrences:
        """The latest of what fits, as far as every part was read."""
        matches = sorted((one for one in self._found if self._end is None or one[0] >= self._end), reverse=True)
        page = matches[: self._limit]
        rows = self._uow.rows_of([key for _, key in page])
        return FoundOccurrences(
            occurrences=to_occurrences(self._uow, rows), after=page[-1][0] if len(matches) > len(page) else self._end
        )
