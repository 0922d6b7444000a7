"""What the targets of stored schedules name: workflows and bundles (version 0015), sessions and mobs (0016)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.stores.sql.migrations import Database

_AT_ONCE = 1_000
_NAMES = {"workflow": ("workflow_id",), "bundle": ("bundle_id", "digest")}
_NAMES_OF_AGENTS = {"session": ("session_id", "bound_session_id"), "mob": ("mob_id",)}
_NAMING = """
    SELECT key, tenant, route, terms_document FROM schedules
    WHERE key > ? AND is_listed = 1 AND (route IN (?, ?) OR route >= 'bundle:' AND route < 'bundle;')
    ORDER BY key LIMIT ?
"""
_ADD = "INSERT INTO target_uses (schedule, kind, name, tenant) VALUES (?, ?, ?, ?)"


def fill_in(database: Database) -> None:
    """Write which workflow or bundle each target names; a damaged schedule names nothing."""
    _fill_in(database, _NAMES)


def fill_in_agents(database: Database) -> None:
    """Write which session or mob each target names."""
    _fill_in(database, _NAMES_OF_AGENTS)


def _fill_in(database: Database, names: Mapping[str, Sequence[str]]) -> None:
    last = -1
    while rows := database.query(_NAMING, last, *names, _AT_ONCE):
        last = rows[-1][0]
        for key, tenant, route, document in rows:
            kind = route.partition(":")[0]
            if kind in names and (name := _name(document, names[kind])) is not None:
                database.execute(_ADD, key, kind, name, tenant)


def _name(document: str, fields: Sequence[str]) -> str | None:
    try:
        read: Any = json.loads(document)
        named = [read["target"].get(field) for field in fields]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return next((name for name in named if isinstance(name, str)), None)
