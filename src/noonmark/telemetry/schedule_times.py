"""Last success, last failure and next fire of the schedules that ask for metrics of their own, by a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import FAILURES, Phase
from noonmark.ports.records import ScheduleFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.core.instants import Micros
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

METRICS_LABEL = ("metrics", "true")
"""The label of schedules that have metrics of their own. Others have none: each series costs memory in Prometheus."""
MAX_SCHEDULES = 500
"""At most this many have metrics of their own: those that were created first."""


@dataclass(frozen=True, slots=True)
class ScheduleTimes:
    """When a schedule last succeeded and failed, and when it fires next; None if it never did, or will not."""

    schedule_id: str
    name: str
    last_success: Micros | None = None
    """When the newest of its occurrences that completed ended."""
    last_failure: Micros | None = None
    """The same of those that failed, timed out, could not be delivered or were missed."""
    next_fire: Micros | None = None


@dataclass(frozen=True, slots=True)
class LabelledSchedules:
    """The times of the schedules with the label, and how many more have it."""

    times: tuple[ScheduleTimes, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _LastEnd:
    """The last end of a kind, and how many of that kind had been counted when it was read."""

    count: int = 0
    ended: Micros | None = None


_NONE = (_LastEnd(), _LastEnd())


class ScheduleTimesReader:
    """Reads the times from a store. The history of a schedule is read only if its counters have changed."""

    def __init__(self, store: Store, tenant: str, next_fire: Callable[[StoredSchedule, Micros], Micros | None]) -> None:
        """`next_fire` computes when a schedule is next due after a time."""
        self._store, self._tenant, self._next_fire = store, tenant, next_fire
        self._ends: dict[str, tuple[_LastEnd, _LastEnd]] = {}
        """The last success and failure, by uid."""

    def read(self) -> LabelledSchedules:
        """Return the times of all schedules with the label, up to the limit."""
        wanted = ScheduleFilter(labels=dict([METRICS_LABEL]))
        page = self._store.schedules(self._tenant, limit=MAX_SCHEDULES, wanted=wanted)
        known, now = self._ends, self._store.clock()
        ends = {one.schedule.uid: self._last_ends(one, known.get(one.schedule.uid, _NONE)) for one in page}
        self._ends = ends
        total = self._store.count_schedules(self._tenant, wanted) if len(page) == MAX_SCHEDULES else len(page)
        return LabelledSchedules(
            tuple(self._times(one, ends[one.schedule.uid], now) for one in page), total - len(page)
        )

    def _times(self, stored: StoredSchedule, ends: tuple[_LastEnd, _LastEnd], now: Micros) -> ScheduleTimes:
        schedule, (success, failure) = stored.schedule, ends
        name = schedule.declaration.name or ""
        return ScheduleTimes(schedule.schedule_id, name, success.ended, failure.ended, self._next_fire(stored, now))

    def _last_ends(self, stored: StoredSchedule, known: tuple[_LastEnd, _LastEnd]) -> tuple[_LastEnd, _LastEnd]:
        uid, counters, (success, failure) = stored.schedule.uid, stored.counters, known
        return (
            self._last_end(uid, {Phase.COMPLETED}, counters.successful, success),
            self._last_end(uid, FAILURES, counters.failed + counters.missed, failure),
        )

    def _last_end(self, uid: str, phases: Collection[Phase], count: int, known: _LastEnd) -> _LastEnd:
        if count == known.count:
            return known
        newest = self._store.occurrences(uid, 1, phases=phases)
        # None are left if all of them have been pruned: the last known time remains true.
        return _LastEnd(count, newest[0].ended if newest else known.ended)
