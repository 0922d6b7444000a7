"""What callers read of the memory store, and what is remembered of them: each verb in one step."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import open_run, run_id
from noonmark.ports.records import KeyRecord
from noonmark.stores.memory import events as emitted
from noonmark.stores.memory import history, schedule_lists
from noonmark.stores.memory.atomic import atomic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from threading import RLock

    from noonmark.core.audit import AuditEntry
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.secret import Secret
    from noonmark.ports.records import Activity, PageKey, ScheduleFilter, StoredSchedule
    from noonmark.stores.memory.records import Row
    from noonmark.stores.memory.unit_of_work import UnitOfWork


class ReadVerbs:
    """Part of the memory store."""

    _uow: UnitOfWork
    _lock: RLock

    @atomic
    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        """The schedule of that id."""
        uid = self._uow.ids.get((tenant, schedule_id))
        if uid is None and deleted:
            uid = self._uow.last_deleted.get((tenant, schedule_id))
        return None if uid is None else self._uow.states[uid].kept(self._uow.now())

    @atomic
    def find_uid(self, uid: str) -> StoredSchedule | None:
        """The schedule of that uid, deleted or not."""
        state = self._uow.states.get(uid)
        return None if state is None else state.kept(self._uow.now())

    @atomic
    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        """The owner's oldest schedule of that name that is not deleted."""
        same_name = self._uow.names.get((tenant, user, name))
        return self._uow.states[same_name[0][1]].kept(self._uow.now()) if same_name else None

    @atomic
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
        wanted = wanted or schedule_lists.ANY
        return schedule_lists.page(
            self._uow, tenant, wanted, after=after, limit=limit, deleted=deleted, newest_first=newest_first
        )

    @atomic
    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        """How many there are."""
        return schedule_lists.count(self._uow, tenant, wanted or schedule_lists.ANY, deleted=deleted)

    @atomic
    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""
        row = self._uow.rows.get(occurrence_id)
        return None if row is None else row.occurrence

    @atomic
    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first."""
        found = [
            one
            for one in (row.occurrence for row in self._rows(uid))
            if (not phases or one.phase in phases) and (before is None or (one.nominal, one.id) < before)
        ]
        return nlargest(len(found) if limit is None else limit, found, key=lambda one: (one.nominal, one.id))

    @atomic
    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        """A schedule's occurrences that stand for a time."""
        rows = [row.occurrence for row in self._rows(uid)]
        exact = [one for one in rows if one.nominal == time]
        gaps = [one for one in rows if one.missed_last is not None and one.nominal < time <= one.missed_last]
        exact.sort(key=lambda one: (one.origin == TRIGGER, one.due, one.id), reverse=True)
        return [*exact[:limit], *sorted(gaps, key=lambda one: one.missed_last or 0)[:limit]]

    @atomic
    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        """A schedule's runs, newest start first."""
        runs = [run for row in self._rows(uid) for run in self._runs(row)]
        found = [run for run in runs if before is None or (run.started, run.id) < before]
        return nlargest(len(found) if limit is None else limit, found, key=lambda run: (run.started, run.id))

    @atomic
    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        """The runs of one occurrence, newest start first."""
        row = self._uow.rows.get(occurrence_id)
        found = [] if row is None else self._runs(row)
        return sorted(found, key=lambda run: (run.started, run.id), reverse=True)

    @atomic
    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        """The last run of each of some occurrences that has ended or was accepted, without its result."""
        rows = {one: row for one in occurrence_ids if (row := self._uow.rows.get(one)) is not None}
        told = {one: [run for run in row.runs if _is_told(row, run)] for one, row in rows.items()}
        return {one: evolve(runs[-1], result=None) for one, runs in told.items() if runs}

    @atomic
    def run(self, run_id: str) -> tuple[str, Run] | None:
        """One run, and the uid of its schedule."""
        row = self._uow.rows.get(run_id.rpartition("-")[0])
        found = [] if row is None else [(row.occurrence.uid, run) for run in self._runs(row) if run.id == run_id]
        return found[0] if found else None

    @atomic
    def activities(self, uids: Sequence[str]) -> list[Activity]:
        """What each of some schedules does at present."""
        return [history.activity(list(self._rows(uid))) for uid in uids]

    @atomic
    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        """The tenant's events, newest first."""
        return emitted.newest(self._uow, tenant, limit, before, event_type)

    @atomic
    def event(self, tenant: str, event_id: str) -> Event | None:
        """The tenant's event of that id."""
        return emitted.one(self._uow, tenant, event_id)

    @atomic
    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget events that are old, or too many."""
        return emitted.prune(self._uow, before=before, keep=keep, limit=limit)

    @atomic
    def note(self, tenant: str, notes: Sequence[AuditEntry]) -> None:
        """Keep notes that come with no plan."""
        for one in notes:
            self._uow.journal.add(tenant, one)

    @atomic
    def notes(
        self, tenant: str, limit: int, *, before: int | None = None, schedule_id: str | None = None
    ) -> list[AuditEntry]:
        """The tenant's notes, newest first."""
        return self._uow.journal.newest(tenant, limit, before, schedule_id)

    @atomic
    def prune_notes(self, *, before: Micros, limit: int) -> int:
        """Forget notes that are old."""
        return self._uow.journal.prune_notes(before, limit)

    @atomic
    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        """Keep who used a key, unless somebody has lately; tells what is kept."""
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._uow.journal.claim_key(tenant, key, fresh, now - lifetime)

    @atomic
    def prune_keys(self, *, before: Micros, limit: int) -> int:
        """Forget keys that are old."""
        return self._uow.journal.prune_keys(before, limit)

    @atomic
    def keep_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        """Keep a secret, unless there are too many."""
        return self._noted(tenant, self._uow.vault.keep(tenant, secret, most), note)

    @atomic
    def secrets(self, tenant: str) -> list[Secret]:
        """The tenant's secrets, by name."""
        return self._uow.vault.every(tenant)

    @atomic
    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        """Those that have one of the names, by name."""
        return [secret for secret in self._uow.vault.every(tenant) if secret.name in names]

    @atomic
    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        """Remove a secret; what it was."""
        return self._noted(tenant, self._uow.vault.forget(tenant, name), note)

    @atomic
    def own_key(self) -> bytes:
        """The key of the store itself."""
        return self._uow.vault.own_key

    def _noted(self, tenant: str, changed: Secret | None, note: AuditEntry | None) -> Secret | None:
        """What was changed, if anything was; then there is a note of it."""
        if changed is not None and note is not None:
            self._uow.journal.add(tenant, note)
        return changed

    def _rows(self, uid: str) -> Iterable[Row]:
        state = self._uow.states.get(uid)
        return () if state is None else (*state.live.values(), *state.ended.values())

    def _runs(self, row: Row) -> list[Run]:
        """Those that have ended, and the one that goes on, as it was last told of, if it was."""
        one = row.occurrence
        if one.phase is not Phase.DISPATCHING or any(run.id == run_id(one) for run in row.runs):
            return list(row.runs)
        return [*row.runs, open_run(one, now=self._uow.now())]


def _is_told(row: Row, run: Run) -> bool:
    """Whether a run has ended, or was accepted."""
    return run.ended is not None or row.occurrence.phase is Phase.AWAITING_COMPLETION
