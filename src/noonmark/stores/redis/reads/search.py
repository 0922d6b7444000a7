"""Occurrences across schedules, by their time.

The time of an ended occurrence is its end, and that of a live one its due time. Failures have an index of their own.
Others are read in the order of their times, a bounded number of them in one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.lifecycle import FAILURES, FINAL, LIVE, Phase
from noonmark.ports.records import FoundOccurrences, ScheduleFilter
from noonmark.stores.redis.reads.schedule_filter import matching
from noonmark.stores.redis.schema.schedules import CARRIES_STEPS, OCCURRENCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.ports.records import OccurrenceFilter, PageKey
    from noonmark.stores.redis.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

MAX_READ = 10_000
"""How many rows of each kind one call reads at most."""
MAX_STEP = 2_500
_TENANT, _IS_HIDDEN = OCCURRENCES.columns.index("tenant"), OCCURRENCES.columns.index("is_hidden")


def search(
    uow: UnitOfWork, tenant: str, wanted: OccurrenceFilter, limit: int, before: PageKey | None
) -> FoundOccurrences:
    """A page of the occurrences of a tenant that fit, latest time first."""
    phases = wanted.phases or frozenset(Phase)
    scan = _Scan(uow, tenant, wanted, limit, before)
    if wanted.uid is not None:
        scan.read_schedule(wanted.uid, phases)
        return scan.page()
    if phases <= FAILURES:
        for phase in sorted(phases):
            scan.read("failed", (tenant, str(phase)))
    elif phases & FINAL:
        scan.read("by_end", (tenant,))
    if phases & LIVE:
        scan.read("live_of_tenant", (tenant,))
    return scan.page()


class _Scan:
    """Reads of several parts of the occurrences, and what fits among all of them."""

    def __init__(
        self, uow: UnitOfWork, tenant: str, wanted: OccurrenceFilter, limit: int, before: PageKey | None
    ) -> None:
        self._uow, self._tenant, self._wanted, self._limit, self._before = uow, tenant, wanted, limit, before
        self._schedules = ScheduleFilter(user=wanted.user, labels=wanted.labels)
        self._found: list[tuple[PageKey, Row]] = []
        self._end: PageKey | None = None
        """Up to here every part was read; None if all of them were read to the end."""

    def read(self, index: str, partition: tuple[str | int, ...]) -> None:
        """Read an index, whose members begin with a time and an id, until enough fit or too many are read."""
        wanted = self._wanted
        since = None if wanted.since is None else (wanted.since,)
        place: dict[str, Any] = {"before": self._before}
        if wanted.until is not None and (self._before is None or wanted.until < self._before[0]):
            place = {"until": (wanted.until,)}
        fitting, read, step = 0, 0, min(max(self._limit, 1), MAX_STEP)
        while True:
            entries = self._uow.rows.entries(
                index, partition, since=since, limit=step, newest_first=True, hint=True, **place
            )
            fitting += self._add([entry[-1] for entry in entries])
            read += len(entries)
            if len(entries) < step:
                return
            end = (entries[-1][0], entries[-1][1])
            if fitting >= self._limit or read >= MAX_READ:
                self._end = end if self._end is None else max(self._end, end)
                return
            place, step = {"before": end}, min(step * 4, MAX_STEP)

    def read_schedule(self, uid: str, phases: frozenset[Phase]) -> None:
        """Read the occurrences of a schedule; those that have not ended are few."""
        state = self._uow.load_states([uid]).get(uid)
        if state is None:
            return
        if phases & FINAL:
            self.read("by_end_of_schedule", (state.schedule,))
        if phases & LIVE:
            self._add([key for (key,) in self._uow.rows.find_keys("live", (state.schedule,), hint=True)])

    def page(self) -> FoundOccurrences:
        """The latest of what fits, as far as every part was read."""
        matches = [one for one in self._found if self._end is None or one[0] >= self._end]
        matches.sort(key=lambda one: one[0], reverse=True)
        page = matches[: self._limit]
        return FoundOccurrences(
            occurrences=self._uow.occurrences_of([row for _, row in page]),
            after=page[-1][0] if page and len(matches) > len(page) else self._end,
        )

    def _add(self, keys: Sequence[int]) -> int:
        uow = self._uow
        uow.rows.read(((key,) for key in keys), hint=True)
        shown = [
            key
            for (key,), values in uow.rows.get_many((key,) for key in keys).items()
            if values[_TENANT] == self._tenant and values[_IS_HIDDEN] != CARRIES_STEPS
        ]
        rows = [row for row in uow.rows_of(shown) if self._fits(row)]
        schedules = set(matching(uow, {row.schedule for row in rows}, self._filter))
        fitting = [(_place(row), row) for row in rows if row.schedule in schedules]
        self._found += fitting
        return len(fitting)

    @property
    def _filter(self) -> ScheduleFilter | None:
        return None if self._schedules == ScheduleFilter() else self._schedules

    def _fits(self, row: Row) -> bool:
        wanted, place = self._wanted, _place(row)
        return (
            (not wanted.phases or row.phase in wanted.phases)
            and (not wanted.reasons or row.reason in wanted.reasons)
            and (wanted.since is None or place[0] >= wanted.since)
            and (wanted.until is None or place[0] <= wanted.until)
            and (self._before is None or place < self._before)
        )


def _place(row: Row) -> PageKey:
    return (row.due if row.ended is None else row.ended, row.id)
