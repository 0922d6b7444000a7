"""Versions 0004 and 0028: stored event triggers get their discriminators, of single values and then of all.

Their schedules may never be written again. What cannot be read has none, and is shown every event of its type.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.filters.index import NONE, Discriminator, discriminator, value_discriminator
from noonmark.core.filters.match import filter_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.stores.sql.migrations import Database

_AT_ONCE = 1_000
_LISTENING = """
    SELECT key, trigger_document FROM schedules WHERE key > ? AND trigger_type = 'event' AND is_listed = 1
    ORDER BY key LIMIT ?
"""
_FILL = {
    "sqlite": """
        UPDATE event_listeners SET {0}fields = json_extract(j.value, '$[1]'), {0}wanted = json_extract(j.value, '$[2]')
        FROM json_each(?) AS j WHERE schedule = json_extract(j.value, '$[0]')
    """,
    "postgres": """
        UPDATE event_listeners SET {0}fields = j.value ->> 1, {0}wanted = j.value ->> 2
        FROM json_array_elements(CAST(? AS json)) AS j(value) WHERE schedule = CAST(j.value ->> 0 AS bigint)
    """,
}


def fill_in_values(database: Database) -> None:
    """Write what each trigger wants of single values."""
    _fill_in(database, "", value_discriminator)


def fill_in(database: Database) -> None:
    """Write the discriminator of every trigger."""
    _fill_in(database, "narrow_", discriminator)


def _fill_in(database: Database, columns: str, make: Callable[[Mapping[str, Any]], Discriminator]) -> None:
    """Write discriminators of one kind. The statements before this lock the triggers."""
    last = -1
    while batch := database.query(_LISTENING, last, _AT_ONCE):
        last = batch[-1][0]
        rows = [(key, *_made(document, make)) for key, document in batch]
        database.execute(_FILL[database.dialect].format(columns), json.dumps(rows))


def _made(document: str | None, make: Callable[[Mapping[str, Any]], Discriminator]) -> Discriminator:
    try:
        read: Any = json.loads(document or "null")
        filters = read["filters"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return NONE
    return NONE if filter_problems(filters) else make(filters)
