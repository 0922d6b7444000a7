"""Version 0015: the workflows and bundles that the targets of stored schedules name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noonmark.stores.sql.migrations import Database

_AT_ONCE = 1_000
_NAMES = {"workflow": "workflow_id", "bundle": "bundle_id"}
_NAMING = """
    SELECT key, tenant, route, terms_document FROM schedules
    WHERE key > ? AND is_listed = 1 AND route IN ('workflow', 'bundle') ORDER BY key LIMIT ?
"""
_ADD = "INSERT INTO target_uses (schedule, kind, name, tenant) VALUES (?, ?, ?, ?)"


def fill_in(database: Database) -> None:
    """Write what each target names; a damaged schedule names nothing."""
    last = -1
    while found := database.query(_NAMING, last, _AT_ONCE):
        last = found[-1][0]
        for key, tenant, kind, document in found:
            if (name := _name(document, kind)) is not None:
                database.execute(_ADD, key, kind, name, tenant)


def _name(document: str, kind: str) -> str | None:
    try:
        read: Any = json.loads(document)
        name = read["target"][_NAMES[kind]]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None
