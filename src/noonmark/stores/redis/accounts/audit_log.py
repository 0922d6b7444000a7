"""Audit entries, and the idempotency keys of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.ports.records import KeyRecord
from noonmark.stores.redis.schema.accounts import IDEMPOTENCY_KEYS, NOTES
from noonmark.stores.sql.audit_log import note_values, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import AuditEntry
    from noonmark.stores.redis.transactions.table import Table
    from noonmark.stores.redis.transactions.transaction import Transaction

_TENANT = NOTES.columns.index("tenant")


def add(transaction: Transaction, entries: Sequence[tuple[str, AuditEntry]]) -> None:
    """Add entries, each with its tenant."""
    numbers = transaction.numbers("notes", len(entries))
    for key, (tenant, entry) in zip(numbers, entries, strict=True):
        transaction.records(NOTES).add(note_values(key, tenant, entry))


def newest(
    transaction: Transaction, tenant: str, limit: int, before: int | None, schedule_id: str | None, *, changes: bool
) -> list[AuditEntry]:
    """The entries of a tenant, newest first."""
    index = "changes" if changes else "in_order"
    partition = [tenant]
    if schedule_id is not None:
        index, partition = "changes_of_schedule" if changes else "of_schedule", [tenant, schedule_id]
    until = None if before is None else (before,)
    entries = transaction.records(NOTES).find(index, partition, before=until, limit=limit, newest_first=True)
    return readable((*values[:_TENANT], *values[_TENANT + 1 :]) for values in entries)


def prune_audit_entries(transaction: Transaction, *, before: Micros, limit: int) -> int:
    """Delete old entries."""
    return _prune(transaction, NOTES, before, limit)


def claim_key(transaction: Transaction, tenant: str, key: str, fresh: KeyRecord, *, since: Micros) -> KeyRecord:
    """Store the use of a key, unless one since then is stored; returns what is stored."""
    records = transaction.records(IDEMPOTENCY_KEYS)
    stored = records.look_up("by_name", tenant, key)
    if stored is not None:
        number, _, _, fingerprint, created = stored
        if type(created) is int and created >= since and isinstance(fingerprint, str):
            return KeyRecord(fingerprint=fingerprint, created=created)
        records.put((number, tenant, key, fresh.fingerprint, fresh.created))
        return fresh
    [number] = transaction.numbers("idempotency_keys", 1)
    records.add((number, tenant, key, fresh.fingerprint, fresh.created))
    return fresh


def prune_keys(transaction: Transaction, *, before: Micros, limit: int) -> int:
    """Delete old keys."""
    return _prune(transaction, IDEMPOTENCY_KEYS, before, limit)


def newest_time(transaction: Transaction, before: Micros | None) -> Micros | None:
    """When the newest entry was added, or the newest before a time."""
    end = None if before is None else (before,)
    entries = transaction.records(NOTES).entries("by_age", before=end, limit=1, newest_first=True, hint=True)
    return entries[0][0] if entries and type(entries[0][0]) is int else None


def repair(transaction: Transaction, *, now: Micros, after: Micros) -> int:
    """Set back the times of entries and keys that are too far ahead; returns how many."""
    count = 0
    for table, column in ((NOTES, "noted"), (IDEMPOTENCY_KEYS, "created")):
        records, place = transaction.records(table), table.columns.index(column)
        for values in records.find("by_age", after=(after,)):
            records.put((*values[:place], now, *values[place + 1 :]))
            count += 1
    return count


def _prune(transaction: Transaction, table: Table, before: Micros, limit: int) -> int:
    records = transaction.records(table)
    old = records.find("by_age", before=(before,), limit=limit, hint=True)
    for values in old:
        records.delete(values[0])
    return len(old)
