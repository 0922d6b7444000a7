"""Sessions and mobs in a store.

A turn is an occurrence that holds the concurrency key of its session, so a session has one turn at a time. Messages of
a turn are appended on condition that the occurrence is delivered with this fence: a node that lost its lease adds
nothing. A session is `active` while the occurrence of its last turn is in flight; that is decided when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.agents.session import Message, Mob, Session, SessionState
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import AuditEntry
    from noonmark.ports.budgets import Settled
    from noonmark.ports.records import PageKey


@frozen(kw_only=True)
class Turn:
    """The delivery that talks in a session."""

    tenant: str
    session_id: str
    occurrence_id: str
    fence: int


class SessionStore(Protocol):
    """The verbs about sessions. As everywhere, each is one transaction, and a lost race is an ordinary answer."""

    def put_session(self, session: Session, *, most: int | None = None, note: AuditEntry | None = None) -> bool | None:
        """Create a session and store an audit entry. False if the id is taken; None if the tenant has `most`."""

    def session(self, tenant: str, session_id: str) -> Session | None:
        """The session, with its state as of now."""

    def sessions(  # noqa: PLR0913 - each says which sessions
        self,
        tenant: str,
        limit: int,
        *,
        user: str | None = None,
        state: SessionState | None = None,
        labels: Mapping[str, str] | None = None,
        mob_id: str | None = None,
        before: PageKey | None = None,
    ) -> list[Session]:
        """The tenant's sessions, latest creation first, then highest id; `before` is a creation and an id."""

    def begin_turn(self, turn: Turn, messages: Sequence[Message] = ()) -> Session | None:
        """Begin or continue a turn: the session's last turn is this one, and it is neither suspended nor archived.

        The messages are appended unless the turn has messages already: then it was begun before. None if the fence no
        longer holds, or the session does not exist.
        """

    def append_messages(
        self, turn: Turn, messages: Sequence[Message], *, settles: Sequence[Settled] = ()
    ) -> list[Message] | None:
        """Append messages of a turn, and settle calls of a model in the same transaction; returns them numbered.

        The usage of the settled calls is added to the session. None, with nothing written, if the fence is another one.
        """

    def messages(  # noqa: PLR0913 - each says which messages
        self,
        tenant: str,
        session_id: str,
        limit: int,
        *,
        after: int = 0,
        before: int | None = None,
        occurrence_id: str | None = None,
        newest_first: bool = False,
    ) -> list[Message]:
        """Messages by their numbers, of one turn if it is named; `after` and `before` are numbers."""

    def set_session_state(
        self, tenant: str, session_id: str, state: SessionState, *, note: AuditEntry | None = None
    ) -> Session | None:
        """Set a session to idle, suspended or archived; None if it is unknown."""

    def delete_session(self, tenant: str, session_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        """Delete a session with its messages; an empty list if that is done, None if it is unknown.

        The ids of the schedules that name it, if there are any: then nothing is deleted. Its usage is kept.
        """

    def prune_sessions(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        """Delete messages that are older, the oldest messages of sessions beyond the size, and ended sessions of tasks.

        The first message after what was deleted is never the answer to a deleted call of a tool. Returns how many rows
        were deleted, at most `limit`.
        """

    def put_mob(self, mob: Mob, sessions: Sequence[Session], *, note: AuditEntry | None = None) -> bool:
        """Create a mob with the sessions of its members; False if the id is taken."""

    def mob(self, tenant: str, mob_id: str) -> Mob | None:
        """The mob with that id."""

    def mobs(self, tenant: str, limit: int, *, after: str | None = None) -> list[Mob]:
        """The tenant's mobs, by id; `after` continues after an id."""

    def delete_mob(self, tenant: str, mob_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        """Delete a mob; the sessions of its members are archived. As `delete_session` where schedules name it."""
