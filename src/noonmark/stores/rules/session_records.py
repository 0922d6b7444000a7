"""Session records: what the rules ask of a store about sessions and mobs, besides its unit of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.agents.session import Message, Mob, Session


class SessionRecords(ABC):
    """Finds and stores sessions, messages and mobs; a finder sees what was stored before."""

    @abstractmethod
    def find(self, tenant: str, session_id: str) -> Session | None:
        """A session as it is stored: never `active`."""

    @abstractmethod
    def count(self, tenant: str) -> int:
        """How many sessions a tenant has."""

    @abstractmethod
    def add(self, session: Session) -> None:
        """Store a new session."""

    @abstractmethod
    def change(self, session: Session) -> None:
        """Store a session that was changed."""

    @abstractmethod
    def remove(self, session: Session) -> None:
        """Delete a session with its messages."""

    @abstractmethod
    def members(self, tenant: str, mob_id: str) -> list[Session]:
        """The sessions of a mob."""

    @abstractmethod
    def has_messages(self, session: Session, occurrence_id: str) -> bool:
        """Whether a turn of a session has messages."""

    @abstractmethod
    def add_messages(self, session: Session, messages: Sequence[Message]) -> None:
        """Store messages that are numbered."""

    @abstractmethod
    def find_mob(self, tenant: str, mob_id: str) -> Mob | None:
        """A mob."""

    @abstractmethod
    def add_mob(self, mob: Mob) -> None:
        """Store a new mob."""

    @abstractmethod
    def remove_mob(self, mob: Mob) -> None:
        """Delete a mob."""
