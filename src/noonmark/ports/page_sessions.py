"""Sessions of the web page in a store, shared by all servers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.page_session import PageSession


class PageSessionStore(Protocol):
    """Sessions by the digest of their token."""

    def add_page_session(self, session: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
        """Store a session. Delete those that were not used or created since a time, and of its key all but `most`.

        Those that were used last stay.
        """

    def find_page_session(self, digest: str) -> PageSession | None:
        """The session; None if there is none."""

    def use_page_session(self, digest: str, used: Micros) -> None:
        """Store when a session was last used, unless that is earlier than what is stored."""

    def delete_page_session(self, digest: str) -> None:
        """Delete a session, if there is one."""

    def delete_page_sessions(self, key_id: str) -> int:
        """Delete all sessions of a key; returns how many there were."""
