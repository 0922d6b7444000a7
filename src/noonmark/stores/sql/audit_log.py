"""Audit entries, and the idempotency keys of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import storable
from noonmark.core.schedule import AuditEntry
from noonmark.ports.records import KeyRecord
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.sql.records import from_json, to_json
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session, Values

NOTE_COLUMNS = (
    "key", "tenant", "noted", "caller", "operation", "schedule_id", "uid", "revision_before", "revision_after",
    "reason", "request_id", "key_id", "session_id", "tool_call_id", "parent_schedule_id", "source",
    "changes",
)  # fmt: skip
_COLUMNS = [name for name in NOTE_COLUMNS if name != "tenant"]
_SELECTED = ", ".join(_COLUMNS)
_JUDGE = RowCheck("notes", _COLUMNS)
# Entries of an earlier version do not say what changed.
_CHANGES = "(changes IS NOT NULL OR coalesce(revision_before, 0) <> coalesce(revision_after, 0))"
_OLD_NOTES = "SELECT key FROM notes WHERE noted < ? ORDER BY noted, key LIMIT ? /* quick: notes */"
_KEY = "SELECT fingerprint, created FROM idempotency_keys WHERE tenant = ? AND name = ?"
_OLD_KEYS = """
    SELECT key FROM idempotency_keys WHERE created < ? ORDER BY created, key LIMIT ? /* quick: idempotency_keys */
"""


def note_values(key: int, tenant: str, note: AuditEntry) -> tuple[Any, ...]:
    """The columns of an entry."""
    return (
        key, tenant, note.at, storable(note.caller), note.operation, note.schedule_id, note.uid, note.revision_before,
        note.revision_after, _storable(note.reason), _storable(note.request_id), note.key_id,
        note.session_id, _storable(note.tool_call_id), note.parent_schedule_id, note.source,
        to_json(note.changes),
    )  # fmt: skip


def newest(
    session: Session, tenant: str, limit: int, before: int | None, schedule_id: str | None, *, changes: bool
) -> list[AuditEntry]:
    """The entries of a tenant, newest first."""
    where, values = "tenant = ?", [tenant]
    if schedule_id is not None:
        where, values = f"{where} AND schedule_id = ?", [tenant, schedule_id]
    if changes:
        where = f"{where} AND {_CHANGES}"
    if before is not None:
        where = f"{where} AND key < ?"
    inner = f"(SELECT {_SELECTED} FROM notes WHERE {where} ORDER BY key DESC LIMIT ?)"
    rows = session.gather(_SELECTED, inner, *values, *([] if before is None else [before]), limit)
    return readable(rows)


def prune_audit_entries(session: Session, *, before: Micros, limit: int) -> int:
    """Delete old entries."""
    return _forget(session, "notes", session.query(_OLD_NOTES, before, limit))


def claim_key(session: Session, tenant: str, key: str, fresh: KeyRecord, *, since: Micros) -> KeyRecord:
    """Store the use of a key, unless one since then is stored; returns what is stored."""
    for fingerprint, created in session.query(_KEY, tenant, key):
        if type(created) is int and created >= since and isinstance(fingerprint, str):
            return KeyRecord(fingerprint=fingerprint, created=created)
    names = ("tenant", "name", "fingerprint", "created")
    session.put("idempotency_keys", names, [(tenant, key, fresh.fingerprint, fresh.created)], key=2)
    return fresh


def prune_keys(session: Session, *, before: Micros, limit: int) -> int:
    """Delete old keys."""
    return _forget(session, "idempotency_keys", session.query(_OLD_KEYS, before, limit))


def _forget(session: Session, table: str, rows: list[Values]) -> int:
    if rows:
        session.delete(table, "key", [key for (key,) in rows])
    return len(rows)


def readable(rows: Iterable[Values]) -> list[AuditEntry]:
    """The entries that can be read; the columns are those of `NOTE_COLUMNS`, without the tenant."""
    return [_note(columns) for columns in rows if not _JUDGE.problems(columns)]


def _note(columns: tuple[Any, ...]) -> AuditEntry:
    key, noted, caller, operation, schedule_id, uid, before, after, reason, request_id, key_id = columns[:11]
    session_id, tool_call_id, parent_schedule_id, source, changes = columns[11:]
    return AuditEntry(
        key=key,
        at=noted,
        caller=caller,
        operation=operation,
        schedule_id=schedule_id,
        uid=uid,
        revision_before=before,
        revision_after=after,
        reason=reason,
        request_id=request_id,
        key_id=key_id,
        session_id=session_id,
        tool_call_id=tool_call_id,
        parent_schedule_id=parent_schedule_id,
        source=source,
        changes=_read_changes(changes),
    )


def _read_changes(text: str | None) -> list[Any] | None:
    """What changed of a schedule, unless it is damaged."""
    try:
        changes = from_json(text, "changes")
    except Unreadable:
        return None
    return changes if isinstance(changes, list) else None


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)
