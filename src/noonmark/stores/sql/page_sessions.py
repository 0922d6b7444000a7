"""Sessions of the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.page_session import PageSession
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session

COLUMNS = ("digest", "key_id", "created", "used")
_CHECK = RowCheck("page_sessions", COLUMNS)
_ONE = f"SELECT {', '.join(COLUMNS)} FROM page_sessions WHERE digest = ?"
_PRUNE = "DELETE FROM page_sessions WHERE used < ? OR created < ?"
_LIMIT = """
    DELETE FROM page_sessions WHERE digest IN (
        SELECT digest FROM page_sessions WHERE key_id = ? ORDER BY used DESC, digest DESC LIMIT ? OFFSET ?
    )
"""
_MOST_DELETED = 1_000
_USE = "UPDATE page_sessions SET used = ? WHERE digest = ? AND used < ?"
_DELETE = "DELETE FROM page_sessions WHERE digest = ?"
_COUNT = "SELECT count(*) FROM page_sessions WHERE key_id = ?"
_DELETE_ALL = "DELETE FROM page_sessions WHERE key_id = ?"


def add(session: Session, added: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
    """Store a session, and delete old ones."""
    session.execute(_PRUNE, used_since, created_since)
    session.put("page_sessions", COLUMNS, [(added.digest, added.key_id, added.created, added.used)])
    session.execute(_LIMIT, added.key_id, _MOST_DELETED, most)


def find(session: Session, digest: str) -> PageSession | None:
    """The session; a damaged one is none."""
    for columns in session.query(_ONE, digest):
        if not _CHECK.problems(columns):
            _, key_id, created, used = columns
            return PageSession(digest=digest, key_id=key_id, created=created, used=used)
    return None


def use(session: Session, digest: str, used: Micros) -> None:
    """Store when a session was last used."""
    session.execute(_USE, used, digest, used)


def delete(session: Session, digest: str) -> None:
    """Delete a session."""
    session.execute(_DELETE, digest)


def delete_all(session: Session, key_id: str) -> int:
    """Delete the sessions of a key."""
    [(count,)] = session.query(_COUNT, key_id)
    session.execute(_DELETE_ALL, key_id)
    return int(count)
