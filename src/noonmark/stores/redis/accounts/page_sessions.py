"""Sessions of the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.page_session import PageSession
from noonmark.stores.redis.schema.accounts import PAGE_SESSIONS
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.transaction import Transaction

MOST_DELETED = 1_000
"""How many old sessions one call deletes of each kind."""
_CHECK = RowCheck("page_sessions", PAGE_SESSIONS.columns)


def add(transaction: Transaction, added: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
    """Store a session, and delete old ones."""
    records = transaction.records(PAGE_SESSIONS)
    old = [
        *records.find_keys("by_use", before=(used_since,), limit=MOST_DELETED, hint=True),
        *records.find_keys("by_creation", before=(created_since,), limit=MOST_DELETED, hint=True),
    ]
    for key in records.get_many(old):
        records.delete(*key)
    records.put((added.digest, added.key_id, added.created, added.used))
    of_key = records.find_keys("of_key", [added.key_id], limit=most + MOST_DELETED, newest_first=True)
    for key in records.get_many(of_key[most:]):
        records.delete(*key)


def find(transaction: Transaction, digest: str) -> PageSession | None:
    """The session; a damaged one is none."""
    values = transaction.records(PAGE_SESSIONS).get(digest)
    if values is None or _CHECK.problems(values):
        return None
    _, key_id, created, used = values
    return PageSession(digest=digest, key_id=key_id, created=created, used=used)


def use(transaction: Transaction, digest: str, used: Micros) -> None:
    """Store when a session was last used."""
    session = find(transaction, digest)
    if session is not None and session.used < used:
        transaction.records(PAGE_SESSIONS).put((digest, session.key_id, session.created, used))


def delete(transaction: Transaction, digest: str) -> None:
    """Delete a session."""
    transaction.records(PAGE_SESSIONS).delete(digest)


def delete_all(transaction: Transaction, key_id: str) -> int:
    """Delete the sessions of a key."""
    records = transaction.records(PAGE_SESSIONS)
    sessions = records.find("of_key", [key_id])
    for digest, *_ in sessions:
        records.delete(digest)
    return len(sessions)
