"""Sessions, messages and mobs."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING

from noonmark.core.ids import stored_id
from noonmark.stores.rules import session_records as rules
from noonmark.stores.rules.records import DELIVERING
from noonmark.stores.rules.sessions import Stored, as_of_now, has, is_of_task, message_bytes, surplus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.agents.session import Message, Mob, Session, SessionState
    from noonmark.core.instants import Micros
    from noonmark.ports.records import PageKey
    from noonmark.stores.rules.records import Row


class SessionRecords(rules.SessionRecords):
    """The sessions of all tenants."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        """There is nothing yet; the rows are those of the store, by id."""
        self._rows = rows
        self._sessions: dict[tuple[str, str], Session] = {}
        self._messages: dict[tuple[str, str], list[Message]] = {}
        self._mobs: dict[tuple[str, str], Mob] = {}

    def find(self, tenant: str, session_id: str) -> Session | None:
        return self._sessions.get((tenant, session_id))

    def count(self, tenant: str) -> int:
        return sum(owner == tenant for owner, _ in self._sessions)

    def add(self, session: Session) -> None:
        self._sessions[_key(session)], self._messages[_key(session)] = session, []

    def change(self, session: Session) -> None:
        self._sessions[_key(session)] = session

    def remove(self, session: Session) -> None:
        del self._sessions[_key(session)], self._messages[_key(session)]

    def members(self, tenant: str, mob_id: str) -> list[Session]:
        return [one for one in self._sessions.values() if (one.tenant, one.mob_id) == (tenant, mob_id)]

    def has_messages(self, session: Session, occurrence_id: str) -> bool:
        return any(one.occurrence_id == occurrence_id for one in self._messages[_key(session)])

    def add_messages(self, session: Session, messages: Sequence[Message]) -> None:
        self._messages[_key(session)] += messages

    def find_mob(self, tenant: str, mob_id: str) -> Mob | None:
        return self._mobs.get((tenant, mob_id))

    def add_mob(self, mob: Mob) -> None:
        self._mobs[mob.tenant, mob.mob_id] = mob

    def remove_mob(self, mob: Mob) -> None:
        del self._mobs[mob.tenant, mob.mob_id]

    # Reads

    def page(  # noqa: PLR0913 - as the port has it
        self,
        tenant: str,
        limit: int,
        *,
        user: str | None,
        state: SessionState | None,
        labels: Mapping[str, str] | None,
        mob_id: str | None,
        before: PageKey | None,
    ) -> list[Session]:
        """The sessions of a tenant, latest creation first."""
        own = (one for one in self._sessions.values() if one.tenant == tenant)
        sessions = [
            one
            for one in (as_of_now(session, is_in_flight=self._is_in(session, flight=True)) for session in own)
            if user in (None, one.user)
            and state in (None, one.state)
            and mob_id in (None, one.mob_id)
            and (before is None or (one.created, one.session_id) < before)
            and has(one, labels)
        ]
        return nlargest(limit, sessions, key=lambda one: (one.created, one.session_id))

    def messages(  # noqa: PLR0913 - likewise
        self,
        tenant: str,
        session_id: str,
        limit: int,
        *,
        after: int,
        before: int | None,
        occurrence_id: str | None,
        newest_first: bool,
    ) -> list[Message]:
        """Messages of a session, by their numbers."""
        matching = [
            one
            for one in self._messages.get((tenant, session_id), [])
            if one.number > after
            and (before is None or one.number < before)
            and occurrence_id in (None, one.occurrence_id)
        ]
        return (matching[::-1] if newest_first else matching)[:limit]

    def mobs(self, tenant: str, limit: int, after: str | None) -> list[Mob]:
        """The mobs of a tenant, by id."""
        ids = sorted(one for owner, one in self._mobs if owner == tenant and one > (after or ""))
        return [self._mobs[tenant, one] for one in ids[:limit]]

    def prune(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        """Delete old messages, those of sessions that are too large, and sessions of tasks that have ended."""
        deleted = 0
        for key, session in list(self._sessions.items()):
            keeps = session.turn if self._is_in(session, flight=False) else None
            messages = self._messages[key]
            old = [one for one in messages if keeps is None or one.occurrence_id != keeps][: limit - deleted + 1]
            stored = [Stored(one.number, one.at, one.role, message_bytes(one)) for one in old]
            excess = max(session.bytes - max_bytes, 0)
            count = surplus(stored, before=before, excess=excess, limit=limit - deleted)
            if count:
                freed = sum(one.bytes for one in stored[:count])
                self._messages[key] = messages = messages[count:]
                self._sessions[key] = replace(session, bytes=session.bytes - freed)
                deleted += count
            is_over = keeps is None and is_of_task(session) and session.updated < before
            if is_over and not messages and deleted < limit:
                self.remove(session)
                deleted += 1
        return deleted

    def _is_in(self, session: Session, *, flight: bool) -> bool:
        """Whether the last turn is in flight, or has at least not ended."""
        row = None if session.turn is None else self._rows.get(stored_id(session.turn))
        return row is not None and (row.phase in DELIVERING if flight else row.ended is None)


def _key(session: Session) -> tuple[str, str]:
    return session.tenant, session.session_id
