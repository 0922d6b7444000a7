"""Sessions of the web page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.page_session import PageSession


class PageSessions:
    """The sessions of all keys, by digest."""

    def __init__(self) -> None:
        """There are none yet."""
        self._sessions: dict[str, PageSession] = {}

    def add(self, session: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
        """Store a session, and delete old ones."""
        self._sessions = {
            digest: one
            for digest, one in self._sessions.items()
            if one.used >= used_since and one.created >= created_since
        }
        self._sessions[session.digest] = session
        of_key = [one for one in self._sessions.values() if one.key_id == session.key_id]
        for one in sorted(of_key, key=lambda one: (one.used, one.digest), reverse=True)[most:]:
            del self._sessions[one.digest]

    def find(self, digest: str) -> PageSession | None:
        """The session."""
        return self._sessions.get(digest)

    def use(self, digest: str, used: Micros) -> None:
        """Store when a session was last used."""
        session = self._sessions.get(digest)
        if session is not None and session.used < used:
            self._sessions[digest] = replace(session, used=used)

    def delete(self, digest: str) -> None:
        """Delete a session."""
        self._sessions.pop(digest, None)

    def delete_all(self, key_id: str) -> int:
        """Delete the sessions of a key."""
        before = len(self._sessions)
        self._sessions = {digest: one for digest, one in self._sessions.items() if one.key_id != key_id}
        return before - len(self._sessions)
