"""What callers read of a store: schedules, occurrences, runs and events, in pages. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.ports.records import Activity, Backlog, ScheduleFilter, StoredSchedule

    Place = tuple[Micros, str]
    """Where something stands in a list: its time, and its id."""


class Reads(Protocol):
    """A reader who goes on after the last of a page misses nothing that was there all the while."""

    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        """The schedule of that id that is not deleted; with `deleted`, if there is none, the one deleted last."""

    def find_uid(self, uid: str) -> StoredSchedule | None:
        """The schedule of that uid, deleted or not."""

    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        """The owner's oldest schedule of that name that is not deleted."""

    def schedules(
        self,
        tenant: str,
        *,
        after: str | None = None,
        limit: int,
        deleted: bool = False,
        wanted: ScheduleFilter | None = None,
        newest_first: bool = False,
    ) -> list[StoredSchedule]:
        """The tenant's schedules that are not deleted, in the order of their creation, then of their ids.

        With `deleted`, those that are, instead; with `wanted`, those that fit it; `newest_first` turns the order
        around. With `after`, the uid of any schedule of the tenant, wanted or not, those that follow it: it keeps its
        place when it is deleted. After an unknown uid nothing follows. One whose record cannot be read is left out.
        Fewer than `limit` are the last ones.
        """

    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        """How many schedules a list of all pages has, those included whose record cannot be read."""

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""

    def occurrences(
        self, uid: str, limit: int | None = None, *, before: Place | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first, then by id, the highest first.

        With `before`, a nominal time and an id, those that come after that place in this order, whether or not there
        is such an occurrence. With `phases`, those in one of them.
        """

    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        """A schedule's occurrences that stand for a time: of that nominal time, or of a gap that reaches over it.

        A gap reaches over the times after its nominal time up to that of its last fire. Of each kind at most `limit`:
        of those of the time itself what the trigger named and then the latest due, of gaps those that end first. In no
        order.
        """

    def runs(self, uid: str, limit: int | None = None, *, before: Place | None = None) -> list[Run]:
        """A schedule's runs, newest start first, then by id, the highest first.

        A delivery that has not ended is a run without an end: as its progress was last told, or else as
        `core.settlement.open_run` makes it of its row. With `before`, a start and an id, those that come after that
        place in this order.
        """

    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        """The runs of one occurrence, in the same order; none of an unknown one."""

    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        """The last run of each of some occurrences that has ended or was accepted, by their ids.

        Runs are told without their results, which may be large, so that they can be read for a whole page.
        """

    def run(self, run_id: str) -> tuple[str, Run] | None:
        """One run, also while it goes on, and the uid of its schedule."""

    def activities(self, uids: Sequence[str]) -> list[Activity]:
        """What each of some schedules does at present, deleted or not, in one consistent read."""

    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        """The tenant's events, matched or not, newest first. A payload that cannot be read is told as None.

        With `before`, those that were emitted before that moment; with `event_type`, those of that type.
        """

    def event(self, tenant: str, event_id: str) -> Event | None:
        """The tenant's event of that id, while it is kept. A payload that cannot be read is told as None."""

    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits, of all tenants and routes; each counted up to a limit.

        Due is what a claim could take by now, on whichever route: what a pause holds is not. What waits may have a
        time, after now, at which it is looked at again. The cost follows what is counted, not what is stored.
        """
