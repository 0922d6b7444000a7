"""Buckets of tokens: when each is full again. One that is full is like one that is not stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.stores.sql.session import Session

_ONE = "SELECT full_at FROM rate_buckets WHERE name = ?"
_FORGET = "DELETE FROM rate_buckets WHERE full_at < ?"
_STORED_FOR: Micros = 3_600 * SECOND


def take(session: Session, name: str, limit: RateLimit, wanted: int) -> Taken:
    """Take tokens; a damaged bucket counts as full."""
    rows, now = session.query(_ONE, name), session.now()
    full_at = rows[0][0] if rows and isinstance(rows[0][0], int) else None
    taken = limit.take(full_at, wanted, now=now)
    if taken.granted:
        session.put("rate_buckets", ("name", "full_at"), [(name, taken.full_at)])
        session.execute(_FORGET, now - _STORED_FOR)
    return taken
