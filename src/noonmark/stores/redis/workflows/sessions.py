"""Sessions, messages and mobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import stored_id
from noonmark.stores.redis.schema.workflows import MOBS, SESSION_MESSAGES, SESSIONS
from noonmark.stores.rules import session_records as rules
from noonmark.stores.rules.records import DELIVERING, Unreadable
from noonmark.stores.rules.sessions import Stored, as_of_now, has, surplus
from noonmark.stores.sql.row_checks import number
from noonmark.stores.sql.sessions import (
    damaged,
    message_values,
    mob_values,
    readable,
    session_values,
    to_message,
    to_mob,
    to_session,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from noonmark.core.agents.session import Message, Mob, Session, SessionState
    from noonmark.core.instants import Micros
    from noonmark.ports.records import PageKey
    from noonmark.stores.redis.schedule_records import ScheduleRecords
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.rules.records import Row

AT_ONCE = 200
"""How many sessions are read at a time, where not every one is wanted."""
PRUNED_SESSIONS = 100
"""From how many sessions a batch of messages is deleted."""
_TURN, _BYTES = SESSIONS.columns.index("turn"), SESSIONS.columns.index("bytes")
_CREATED, _SESSION_ID = SESSIONS.columns.index("created"), SESSIONS.columns.index("session_id")


class SessionRecords(rules.SessionRecords):
    """What a transaction has read of sessions."""

    def __init__(self, uow: ScheduleRecords) -> None:
        self._uow, records = uow, uow.transaction.records
        self._sessions, self._messages, self._mobs = records(SESSIONS), records(SESSION_MESSAGES), records(MOBS)

    def find(self, tenant: str, session_id: str) -> Session | None:
        values = self._sessions.look_up("by_id", tenant, session_id)
        try:
            return None if values is None else to_session(values)
        except Unreadable as error:
            raise damaged(f"session {session_id}", error) from None

    def count(self, tenant: str) -> int:
        return self._sessions.count("by_creation", [tenant])

    def add(self, session: Session) -> None:
        [key] = self._uow.transaction.numbers("sessions", 1)
        self._sessions.add(session_values(key, session))

    def change(self, session: Session) -> None:
        self._sessions.put(session_values(self._key(session), session))

    def remove(self, session: Session) -> None:
        self._remove(self._key(session))

    def members(self, tenant: str, mob_id: str) -> list[Session]:
        sessions = sorted(self._sessions.find("of_mob", [tenant, mob_id]))
        try:
            return [to_session(values) for values in sessions]
        except Unreadable as error:
            raise damaged(f"a session of mob {mob_id}", error) from None

    def has_messages(self, session: Session, occurrence_id: str) -> bool:
        return bool(self._messages.find_keys("of_turn", [self._key(session), occurrence_id], limit=1))

    def add_messages(self, session: Session, messages: Sequence[Message]) -> None:
        key = self._key(session)
        for message in messages:
            self._messages.add(message_values(key, message))

    def find_mob(self, tenant: str, mob_id: str) -> Mob | None:
        values = self._mobs.look_up("by_id", tenant, mob_id)
        try:
            return None if values is None else to_mob(values)
        except Unreadable as error:
            raise damaged(f"mob {mob_id}", error) from None

    def add_mob(self, mob: Mob) -> None:
        [key] = self._uow.transaction.numbers("mobs", 1)
        self._mobs.add(mob_values(key, mob))

    def remove_mob(self, mob: Mob) -> None:
        values = self._mobs.look_up("by_id", mob.tenant, mob.mob_id)
        if values is not None:
            self._mobs.delete(values[0])

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
        """The sessions of a tenant, latest creation first; damaged ones are left out, and others fill the page."""
        index, partition = "by_creation", [tenant]
        if mob_id is not None:
            index, partition = "of_mob", [tenant, mob_id]
        elif user is not None:
            index, partition = "of_user", [tenant, user]
        is_filtered = state is not None or labels or (mob_id is not None and user is not None)
        size = max(limit, AT_ONCE) if is_filtered else limit
        result: list[Session] = []
        place: Any = before
        while len(result) < limit:
            rows = self._sessions.find(index, partition, before=place, limit=size, newest_first=True)
            result += [
                one
                for one in self._as_of_now(readable(self._uow.report, rows))
                if user in (None, one.user) and state in (None, one.state) and has(one, labels)
            ]
            if len(rows) < size:
                break
            place = (rows[-1][_CREATED], rows[-1][_SESSION_ID])
        return result[:limit]

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
        """Messages of a session, by their numbers; damaged ones are left out."""
        session = self._sessions.look_up("by_id", tenant, session_id)
        if session is None:
            return []
        index, partition = "of_session", [session[0]]
        if occurrence_id is not None:
            index, partition = "of_turn", [session[0], occurrence_id]
        rows = self._messages.find(
            index, partition, prefix=[session[0]], after=(after,), before=None if before is None else (before,),
            limit=limit, newest_first=newest_first,
        )  # fmt: skip
        result = []
        for values in rows:
            try:
                result.append(to_message(values))
            except Unreadable as error:
                self._uow.report("session_messages", f"{values[0]}, {values[1]}", {"row": str(error)})
        return result

    def mobs(self, tenant: str, limit: int, after: str | None) -> list[Mob]:
        """The mobs of a tenant, by id; damaged ones are left out."""
        read = []
        begin = None if after is None else (after,)
        for values in self._mobs.find("of_tenant", [tenant], after=begin, limit=limit):
            try:
                read.append(to_mob(values))
            except Unreadable as error:
                self._uow.report("mobs", values[0], {"row": str(error)})
        return read

    def prune(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        """Delete old messages, those of sessions that are too large, and sessions of tasks that have ended."""
        old = self._messages.find_keys("by_age", before=(before,), limit=limit, hint=True)
        large = self._sessions.find_keys(
            "by_size", after=(max_bytes,), limit=PRUNED_SESSIONS, newest_first=True, hint=True
        )
        keys = sorted({(session,) for session, _ in old} | set(large))[:PRUNED_SESSIONS]
        rows = self._sessions.get_many(keys)
        unended = self._unended(values[_TURN] for values in rows.values())
        deleted = 0
        for values in rows.values():
            turn = values[_TURN]
            oldest = self._oldest(values, turn if turn in unended else None, limit - deleted)
            size = number(values[_BYTES], 0, low=0)
            count = surplus(oldest, before=before, excess=max(size - max_bytes, 0), limit=limit - deleted)
            if count:
                for one in oldest[:count]:
                    self._messages.delete(values[0], one.number)
                freed = sum(one.bytes for one in oldest[:count])
                self._sessions.put((*values[:_BYTES], max(size - freed, 0), *values[_BYTES + 1 :]))
                deleted += count
        over = self._sessions.find("empty_tasks", before=(before,), limit=max(limit - deleted, 0), hint=True)
        unended = self._unended(values[_TURN] for values in over)
        ended = [values for values in over if values[_TURN] not in unended]
        for values in ended:
            self._remove(values[0])
        return deleted + len(ended)

    def _oldest(self, session: Values, turn: str | None, limit: int) -> list[Stored]:
        """The oldest messages of a session before a turn, one more than asked for; damaged sizes and times are 0."""
        first = None
        if turn is not None:
            of_turn = self._messages.find_keys("of_turn", [session[0], turn], limit=1)
            first = of_turn[0] if of_turn else None
        rows = self._messages.find("of_session", [session[0]], before=first, limit=limit + 1)
        return [
            Stored(place, number(at, 0), str(role), number(size, 0, low=0))
            for _, place, role, _, _, _, _, size, at in rows
        ]

    def _as_of_now(self, sessions: Sequence[Session]) -> list[Session]:
        rows = self._rows([one.turn for one in sessions])
        flying = {turn for turn, row in rows.items() if row.phase in DELIVERING}
        return [as_of_now(one, is_in_flight=one.turn in flying) for one in sessions]

    def _unended(self, turns: Any) -> set[str]:
        return {turn for turn, row in self._rows(list(turns)).items() if row.ended is None}

    def _rows(self, turns: Collection[Any]) -> dict[str, Row]:
        """The rows of turns."""
        ids = {turn: stored_id(turn) for turn in turns if isinstance(turn, str)}
        self._uow.load_rows(ids.values())
        return {turn: row for turn, one in ids.items() if (row := self._uow.loaded_row(one)) is not None}

    def _remove(self, key: int) -> None:
        for values in self._messages.find("of_session", [key]):
            self._messages.delete(*values[:2])
        self._sessions.delete(key)

    def _key(self, session: Session) -> int:
        values = self._sessions.look_up("by_id", session.tenant, session.session_id)
        if values is None:
            raise KeyError(session.session_id)
        key: int = values[0]
        return key
