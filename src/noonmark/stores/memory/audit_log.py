"""Notes of what callers did, and the keys under which they asked for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.audit import AuditEntry
    from noonmark.core.instants import Micros
    from noonmark.ports.records import KeyRecord


class AuditLog:
    """What is remembered of the callers of all tenants."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._notes: defaultdict[str, dict[int, AuditEntry]] = defaultdict(dict)
        """The notes of each tenant by their numbers, oldest first."""
        self._newest = 0
        self._keys: dict[tuple[str, str], KeyRecord] = {}

    def add(self, tenant: str, note: AuditEntry) -> None:
        """Keep a note."""
        self._newest += 1
        self._notes[tenant][self._newest] = replace(note, key=self._newest)

    def newest(self, tenant: str, limit: int, before: int | None, schedule_id: str | None) -> list[AuditEntry]:
        """The notes of a tenant, newest first."""
        notes = self._notes.get(tenant, {})
        found = (
            note
            for number, note in reversed(notes.items())
            if (before is None or number < before) and schedule_id in (None, note.schedule_id)
        )
        return list(islice(found, limit))

    def newest_time(self) -> Micros | None:
        """When the last note was kept."""
        return max(self.times(), default=None)

    def times(self) -> Iterator[Micros]:
        """When each note was kept."""
        return (note.at for notes in self._notes.values() for note in notes.values())

    def mend(self, *, now: Micros, after: Micros) -> int:
        """Set back the times of notes and keys that lie too far ahead; says how many."""
        count = 0
        for notes in self._notes.values():
            for number, note in notes.items():
                if note.at > after:
                    notes[number] = replace(note, at=now)
                    count += 1
        for name, key in self._keys.items():
            if key.created > after:
                self._keys[name] = replace(key, created=now)
                count += 1
        return count

    def prune_notes(self, before: Micros, limit: int) -> int:
        """Forget notes that are old, the oldest first."""
        old = [
            (note.at, number, tenant)
            for tenant, notes in self._notes.items()
            for number, note in notes.items()
            if note.at < before
        ]
        forgotten = nsmallest(limit, old)
        for _, number, tenant in forgotten:
            del self._notes[tenant][number]
        return len(forgotten)

    def claim_key(self, tenant: str, key: str, fresh: KeyRecord, since: Micros) -> KeyRecord:
        """Keep who used a key, unless somebody has since then; tells what is kept."""
        known = self._keys.get((tenant, key))
        if known is None or known.created < since:
            known = self._keys[tenant, key] = fresh
        return known

    def prune_keys(self, before: Micros, limit: int) -> int:
        """Forget keys that are old, the oldest first."""
        old = [(known.created, key) for key, known in self._keys.items() if known.created < before]
        forgotten = nsmallest(limit, old)
        for _, key in forgotten:
            del self._keys[key]
        return len(forgotten)
