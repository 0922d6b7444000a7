"""What callers read of the memory store, and what is remembered of them: each verb in one step."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import open_run, run_id
from noonmark.core.values import altered
from noonmark.ports.records import KeyRecord
from noonmark.stores.memory import events as emitted
from noonmark.stores.memory import history, listing
from noonmark.stores.memory.atomic import atomic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from threading import RLock

    from noonmark.core.audit import Note
    from noonmark.core.events import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.secret import Secret
    from noonmark.ports.reading import Place
    from noonmark.ports.records import Activity, Kept, Wanted
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Row


class CallersVerbs:
    """Part of the memory store."""

    _ledger: Ledger
    _lock: RLock

    @atomic
    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> Kept | None:
        """The schedule of that id."""
        uid = self._ledger.ids.get((tenant, schedule_id))
        if uid is None and deleted:
            uid = self._ledger.last_deleted.get((tenant, schedule_id))
        return None if uid is None else self._ledger.sheets[uid].kept(self._ledger.now())

    @atomic
    def find_uid(self, uid: str) -> Kept | None:
        """The schedule of that uid, deleted or not."""
        sheet = self._ledger.sheets.get(uid)
        return None if sheet is None else sheet.kept(self._ledger.now())

    @atomic
    def find_named(self, tenant: str, user: str, name: str) -> Kept | None:
        """The owner's oldest schedule of that name that is not deleted."""
        same_name = self._ledger.names.get((tenant, user, name))
        return self._ledger.sheets[same_name[0][1]].kept(self._ledger.now()) if same_name else None

    @atomic
    def schedules(
        self,
        tenant: str,
        *,
        after: str | None = None,
        limit: int,
        deleted: bool = False,
        wanted: Wanted | None = None,
        newest_first: bool = False,
    ) -> list[Kept]:
        """A page of the tenant's schedules."""
        wanted = wanted or listing.ANY
        return listing.page(
            self._ledger, tenant, wanted, after=after, limit=limit, deleted=deleted, newest_first=newest_first
        )

    @atomic
    def count_schedules(self, tenant: str, wanted: Wanted | None = None, *, deleted: bool = False) -> int:
        """How many there are."""
        return listing.count(self._ledger, tenant, wanted or listing.ANY, deleted=deleted)

    @atomic
    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""
        row = self._ledger.rows.get(occurrence_id)
        return None if row is None else row.occurrence

    @atomic
    def occurrences(
        self, uid: str, limit: int | None = None, *, before: Place | None = None, phases: Collection[Phase] = ()
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
    def runs(self, uid: str, limit: int | None = None, *, before: Place | None = None) -> list[Run]:
        """A schedule's runs, newest start first."""
        runs = [run for row in self._rows(uid) for run in self._runs(row)]
        found = [run for run in runs if before is None or (run.started, run.id) < before]
        return nlargest(len(found) if limit is None else limit, found, key=lambda run: (run.started, run.id))

    @atomic
    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        """The runs of one occurrence, newest start first."""
        row = self._ledger.rows.get(occurrence_id)
        found = [] if row is None else self._runs(row)
        return sorted(found, key=lambda run: (run.started, run.id), reverse=True)

    @atomic
    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        """The last run of each of some occurrences that has ended or was accepted, without its result."""
        rows = {one: row for one in occurrence_ids if (row := self._ledger.rows.get(one)) is not None}
        told = {one: [run for run in row.runs if _is_told(row, run)] for one, row in rows.items()}
        return {one: altered(runs[-1], result=None) for one, runs in told.items() if runs}

    @atomic
    def run(self, run_id: str) -> tuple[str, Run] | None:
        """One run, and the uid of its schedule."""
        row = self._ledger.rows.get(run_id.rpartition("-")[0])
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
        return emitted.newest(self._ledger, tenant, limit, before, event_type)

    @atomic
    def event(self, tenant: str, event_id: str) -> Event | None:
        """The tenant's event of that id."""
        return emitted.one(self._ledger, tenant, event_id)

    @atomic
    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget events that are old, or too many."""
        return emitted.prune(self._ledger, before=before, keep=keep, limit=limit)

    @atomic
    def note(self, tenant: str, notes: Sequence[Note]) -> None:
        """Keep notes that come with no plan."""
        for one in notes:
            self._ledger.journal.add(tenant, one)

    @atomic
    def notes(
        self, tenant: str, limit: int, *, before: int | None = None, schedule_id: str | None = None
    ) -> list[Note]:
        """The tenant's notes, newest first."""
        return self._ledger.journal.newest(tenant, limit, before, schedule_id)

    @atomic
    def prune_notes(self, *, before: Micros, limit: int) -> int:
        """Forget notes that are old."""
        return self._ledger.journal.prune_notes(before, limit)

    @atomic
    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        """Keep who used a key, unless somebody has lately; tells what is kept."""
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._ledger.journal.claim_key(tenant, key, fresh, now - lifetime)

    @atomic
    def prune_keys(self, *, before: Micros, limit: int) -> int:
        """Forget keys that are old."""
        return self._ledger.journal.prune_keys(before, limit)

    @atomic
    def keep_secret(self, tenant: str, secret: Secret, *, most: int, note: Note | None = None) -> Secret | None:
        """Keep a secret, unless there are too many."""
        return self._noted(tenant, self._ledger.vault.keep(tenant, secret, most), note)

    @atomic
    def secrets(self, tenant: str) -> list[Secret]:
        """The tenant's secrets, by name."""
        return self._ledger.vault.every(tenant)

    @atomic
    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        """Those that have one of the names, by name."""
        return [secret for secret in self._ledger.vault.every(tenant) if secret.name in names]

    @atomic
    def forget_secret(self, tenant: str, name: str, *, note: Note | None = None) -> Secret | None:
        """Remove a secret; what it was."""
        return self._noted(tenant, self._ledger.vault.forget(tenant, name), note)

    @atomic
    def own_key(self) -> bytes:
        """The key of the store itself."""
        return self._ledger.vault.own_key

    def _noted(self, tenant: str, changed: Secret | None, note: Note | None) -> Secret | None:
        """What was changed, if anything was; then there is a note of it."""
        if changed is not None and note is not None:
            self._ledger.journal.add(tenant, note)
        return changed

    def _rows(self, uid: str) -> Iterable[Row]:
        sheet = self._ledger.sheets.get(uid)
        return () if sheet is None else (*sheet.live.values(), *sheet.ended.values())

    def _runs(self, row: Row) -> list[Run]:
        """Those that have ended, and the one that goes on, as it was last told of, if it was."""
        one = row.occurrence
        if one.phase is not Phase.DISPATCHING or any(run.id == run_id(one) for run in row.runs):
            return list(row.runs)
        return [*row.runs, open_run(one, now=self._ledger.now())]


def _is_told(row: Row, run: Run) -> bool:
    """Whether a run has ended, or was accepted."""
    return run.ended is not None or row.occurrence.phase is Phase.AWAITING_COMPLETION
