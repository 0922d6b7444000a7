"""Audit entries, and the idempotency keys of requests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import AuditEntry
    from noonmark.ports.records import KeyRecord


class AuditLog:
    """The audit entries and idempotency keys of all tenants."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._notes: defaultdict[str, dict[int, AuditEntry]] = defaultdict(dict)
        """The entries of each tenant by number, oldest first."""
        self._newest = 0
        self._keys: dict[tuple[str, str], KeyRecord] = {}

    def add(self, tenant: str, note: AuditEntry) -> None:
        """Add an entry."""
        self._newest += 1
        self._notes[tenant][self._newest] = replace(note, key=self._newest)

    def newest(
        self, tenant: str, limit: int, before: int | None, schedule_id: str | None, *, changes: bool
    ) -> list[AuditEntry]:
        """The entries of a tenant, newest first."""
        notes = self._notes.get(tenant, {})
        entries = (
            note
            for number, note in reversed(notes.items())
            if (before is None or number < before)
            and schedule_id in (None, note.schedule_id)
            and (not changes or _has_changes(note))
        )
        return list(islice(entries, limit))

    def newest_time(self) -> Micros | None:
        """When the last entry was added."""
        return max(self.times(), default=None)

    def times(self) -> Iterator[Micros]:
        """When each entry was added."""
        return (note.at for notes in self._notes.values() for note in notes.values())

    def repair(self, *, now: Micros, after: Micros) -> int:
        """Set back the times of entries and keys that are too far ahead; returns how many."""
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

    def prune_audit_entries(self, before: Micros, limit: int) -> int:
        """Delete old entries, the oldest first."""
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
        """Store the use of a key, unless one since then is stored; returns what is stored."""
        record = self._keys.get((tenant, key))
        if record is None or record.created < since:
            record = self._keys[tenant, key] = fresh
        return record

    def prune_keys(self, before: Micros, limit: int) -> int:
        """Delete old keys, the oldest first."""
        old = [(known.created, key) for key, known in self._keys.items() if known.created < before]
        forgotten = nsmallest(limit, old)
        for _, key in forgotten:
            del self._keys[key]
        return len(forgotten)


def _has_changes(note: AuditEntry) -> bool:
    """Whether a schedule was changed; entries of an earlier version do not say how."""
    return note.changes is not None or (note.revision_before or 0) != (note.revision_after or 0)
