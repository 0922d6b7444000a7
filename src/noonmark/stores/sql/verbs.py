"""The verbs that every SQL store has alike: what callers read, and what is remembered of them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.ports.records import KeyRecord
from noonmark.stores.sql import (
    audit_log,
    clock_repair,
    history,
    inspection,
    leases,
    runs,
    schedule_lists,
    secret_store,
    snapshots,
)
from noonmark.stores.sql import events as emitted
from noonmark.stores.sql import progress as going_on
from noonmark.stores.sql.backlog import count as count_backlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.audit import AuditEntry
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Snapshot
    from noonmark.core.run import Run
    from noonmark.core.secret import Secret
    from noonmark.core.settlement import Interim
    from noonmark.ports.records import Activity, Backlog, Inspected, PageKey, Position, ScheduleFilter, StoredSchedule
    from noonmark.stores.sql.schedule_documents import ScheduleCache
    from noonmark.stores.sql.unit_of_work import UnitOfWork

T = TypeVar("T")
logger = logging.getLogger("noonmark.store")

_SET_ASIDE = "UPDATE schedule_states SET fault = ? WHERE uid = ? AND fault IS NULL"


class SharedVerbs(ABC):
    """Each is one transaction, of whichever kind the store has for that."""

    _schedule_cache: ScheduleCache

    @abstractmethod
    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        """One moment of everything."""

    @abstractmethod
    def _quick(self, work: Callable[[UnitOfWork], T]) -> T:
        """Change what nobody else is changing."""

    @abstractmethod
    def _careful(self, tenants: Iterable[str], work: Callable[[UnitOfWork], T]) -> T:
        """Change anything of some tenants, one at a time."""

    @abstractmethod
    def _tenants_of(self, key: int) -> Iterable[str]:
        """Whose a row is, for who changes it carefully."""

    def _end_damaged(self, faults: Mapping[int, str], strays: Sequence[int] = ()) -> None:
        """End rows that cannot be read, each by itself, and those that belong to no schedule."""
        for key, problem in faults.items():
            try:
                self._careful(self._tenants_of(key), partial(leases.end_unreadable, faults={key: problem}))
            except NoonmarkError:
                raise
            except Exception:
                # Something about its schedule is damaged as well. It would be found again and again.
                logger.exception("damaged occurrence %s cannot be ended with all that follows, and is ended alone", key)
                self._quick(partial(_end_alone, keys=[key]))
        if strays:
            self._quick(partial(_end_alone, keys=strays))

    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        """The schedule of that id."""

        def find(uow: UnitOfWork) -> StoredSchedule | None:
            found = snapshots.kept(uow, snapshots.BY_ID, tenant, schedule_id)
            if found is None and deleted:
                return snapshots.kept(uow, snapshots.DELETED_BY_ID, tenant, schedule_id)
            return found

        return self._read(find)

    def find_uid(self, uid: str) -> StoredSchedule | None:
        """The schedule of that uid, deleted or not."""
        return self._read(lambda uow: snapshots.kept(uow, snapshots.BY_UID, uid))

    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        """The owner's oldest schedule of that name that is not deleted."""
        return self._read(lambda uow: snapshots.kept(uow, snapshots.BY_NAME, tenant, user, name))

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
        """A page of the tenant's schedules."""
        choice = schedule_lists.choice(tenant, wanted, deleted=deleted)
        if choice is None:
            return []
        return self._read(
            lambda uow: schedule_lists.page(uow, choice, tenant, after=after, limit=limit, newest_first=newest_first)
        )

    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        """How many there are."""
        choice = schedule_lists.choice(tenant, wanted, deleted=deleted)
        return 0 if choice is None else self._read(lambda uow: schedule_lists.count(uow, choice))

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""
        return self._read(lambda uow: history.one(uow, occurrence_id))

    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first."""
        return self._read(lambda uow: history.of_schedule(uow, uid, limit, before, phases))

    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        """A schedule's occurrences that stand for a time."""
        return self._read(lambda uow: history.standing_for(uow, uid, time, limit))

    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        """A schedule's runs, newest start first."""
        return self._read(lambda uow: runs.of_schedule(uow, uid, limit, before))

    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        """The runs of one occurrence, newest start first."""
        return self._read(lambda uow: runs.of_occurrence(uow, occurrence_id))

    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        """The last run of each of some occurrences that has ended or was accepted, without its result."""
        return self._read(lambda uow: runs.last_of(uow, occurrence_ids))

    def run(self, run_id: str) -> tuple[str, Run] | None:
        """One run, and the uid of its schedule."""
        return self._read(lambda uow: runs.one(uow, run_id))

    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        """Keep what deliveries that go on have put out so far."""
        return self._quick(lambda uow: going_on.write(uow.session, interims))

    def activities(self, uids: Sequence[str]) -> list[Activity]:
        """What each of some schedules does at present."""
        return self._read(lambda uow: runs.activities(uow, uids))

    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        """The tenant's events, newest first."""
        return self._read(lambda uow: emitted.newest(uow.session, tenant, limit, before, event_type))

    def event(self, tenant: str, event_id: str) -> Event | None:
        """The tenant's event of that id."""
        return self._read(lambda uow: emitted.one(uow.session, tenant, event_id))

    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and not claimed, and how much waits."""
        return self._read(lambda uow: count_backlog(uow.session, now, limit))

    def newest_time(self, before: Micros | None = None) -> Micros | None:
        """The newest time that something was written."""
        return self._read(lambda uow: clock_repair.newest_time(uow.session, before))

    def due_since(self, routes: Collection[str]) -> Micros | None:
        """Since when the first row can be claimed."""
        return self._read(lambda uow: clock_repair.due_since(uow.session, routes))

    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        """Schedules that are accounted for beyond a time."""
        return self._read(lambda uow: clock_repair.planned_ahead(uow, now=now, until=until, after=after, limit=limit))

    def mend(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        """Set back every time that lies too far ahead."""
        return self._quick(lambda uow: clock_repair.mend(uow.session, now=now, after=after, lease=lease))

    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget events that are old, or too many."""
        return self._quick(lambda uow: emitted.prune(uow.session, before=before, keep=keep, limit=limit))

    def note(self, tenant: str, notes: Sequence[AuditEntry]) -> None:
        """Keep notes that come with no plan."""

        def note(uow: UnitOfWork) -> None:
            for one in notes:
                uow.add_note(tenant, one)

        self._careful({tenant}, note)

    def notes(
        self, tenant: str, limit: int, *, before: int | None = None, schedule_id: str | None = None
    ) -> list[AuditEntry]:
        """The tenant's notes, newest first."""
        return self._read(lambda uow: audit_log.newest(uow.session, tenant, limit, before, schedule_id))

    def prune_notes(self, *, before: Micros, limit: int) -> int:
        """Forget notes that are old."""
        return self._quick(lambda uow: audit_log.prune_notes(uow.session, before=before, limit=limit))

    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        """Keep who used a key, unless somebody has lately; tells what is kept."""
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._careful(
            {tenant}, lambda uow: audit_log.claim_key(uow.session, tenant, key, fresh, since=now - lifetime)
        )

    def prune_keys(self, *, before: Micros, limit: int) -> int:
        """Forget keys that are old."""
        return self._quick(lambda uow: audit_log.prune_keys(uow.session, before=before, limit=limit))

    def keep_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        """Keep a secret, unless there are too many."""

        def keep(uow: UnitOfWork) -> Secret | None:
            kept = secret_store.keep(uow.session, tenant, secret, most=most)
            return _noted(uow, tenant, kept, note)

        return self._careful({tenant}, keep)

    def secrets(self, tenant: str) -> list[Secret]:
        """The tenant's secrets, by name."""
        return self._read(lambda uow: secret_store.every(uow.session, tenant))

    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        """Those that have one of the names, by name."""
        return self._read(lambda uow: secret_store.some(uow.session, tenant, names))

    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        """Remove a secret; what it was."""
        return self._careful(
            {tenant}, lambda uow: _noted(uow, tenant, secret_store.forget(uow.session, tenant, name), note)
        )

    def set_aside(self, uid: str, problem: str) -> None:
        """Plan a schedule no more."""
        self._quick(lambda uow: uow.session.execute(_SET_ASIDE, problem, uid))
        self._schedule_cache.damage.note("schedule_states", uid, problem)

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:
        """Look at so many rows."""
        found = self._read(lambda uow: inspection.inspect(uow, after, limit))
        for one in found.damaged:
            if one.column != "fault":  # that was told when it was set
                self._schedule_cache.damage.note(one.table, one.key, f"{one.column} {one.problem}")
        return found

    def damage(self) -> Mapping[str, int]:
        """How many rows of each table were found damaged."""
        return self._schedule_cache.damage.counts()

    def own_key(self) -> bytes:
        """The key of the store itself."""
        known = self._read(lambda uow: secret_store.find_own_key(uow.session))
        if known is None:
            return self._careful({secret_store.NOBODY}, lambda uow: secret_store.draw_own_key(uow.session))
        return known


def _end_alone(uow: UnitOfWork, keys: Sequence[int]) -> None:
    leases.end_nobodys(uow.session, keys)


def _noted(uow: UnitOfWork, tenant: str, changed: Secret | None, note: AuditEntry | None) -> Secret | None:
    """What was changed, if anything was; then there is a note of it."""
    if changed is not None and note is not None:
        uow.add_note(tenant, note)
    return changed
