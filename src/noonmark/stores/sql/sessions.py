"""Sessions, messages and mobs in the tables. The row of a session is locked while its messages are written."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import Message, Mob, Role, SessionState
from noonmark.core.agents.session import Session as AgentSession
from noonmark.core.api_key import Scope
from noonmark.core.budgets.spend import Usage
from noonmark.core.documents import Reader
from noonmark.core.errors import InvalidSchedule, StoreUnavailable
from noonmark.core.ids import stored_id
from noonmark.stores.rules import session_records as rules
from noonmark.stores.rules.records import DELIVERING, Unreadable
from noonmark.stores.rules.sessions import Stored, as_of_now, has, is_of_task, message_bytes, surplus
from noonmark.stores.sql.records import from_json, to_json
from noonmark.stores.sql.row_checks import RowCheck, describe_problems, number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.errors import Problem
    from noonmark.core.instants import Micros
    from noonmark.ports.records import PageKey
    from noonmark.stores.sql.session import Session, Values

    Report = Callable[[str, object, Mapping[str, str]], None]

SESSION_COLUMNS = (
    "key", "tenant", "session_id", "username", "spec", "tool_access_policy", "state", "schedule_id", "mob_id",
    "member_id", "role", "turn", "messages", "bytes", "usage", "created", "updated", "is_task",
    "scopes",
)  # fmt: skip
MESSAGE_COLUMNS = ("session", "number", "role", "parts", "data", "occurrence_id", "usage", "bytes", "created")
MOB_COLUMNS = ("key", "tenant", "mob_id", "username", "document", "created", "updated")
AT_ONCE = 200
"""How many sessions are read at a time, where not every one is wanted."""
PRUNED_SESSIONS = 100
"""From how many sessions a batch of messages is deleted."""
_SESSIONS, _MESSAGES = RowCheck("sessions", SESSION_COLUMNS), RowCheck("session_messages", MESSAGE_COLUMNS)
_MOBS = RowCheck("mobs", MOB_COLUMNS)
_NAMES = tuple(one.name for one in fields(Usage))

_SELECTED = ", ".join(SESSION_COLUMNS)
_ONE = "SELECT * FROM sessions WHERE tenant = ? AND session_id = ?"
_OF_MOB = "SELECT * FROM sessions WHERE tenant = ? AND mob_id = ? ORDER BY key"
_COUNT = "SELECT count(*) FROM sessions WHERE tenant = ?"
PAGE = f"""
    SELECT {_SELECTED} FROM sessions WHERE tenant = ? AND {{more}} ORDER BY created DESC, session_id DESC LIMIT ?
"""
_HAS = "SELECT 1 FROM session_messages WHERE session = ? AND occurrence_id = ? LIMIT 1"
MESSAGES = f"""
    SELECT {", ".join(f"session_messages.{one}" for one in MESSAGE_COLUMNS)} FROM sessions
    CROSS JOIN session_messages ON session_messages.session = sessions.key
    WHERE tenant = ? AND session_id = ? AND number > ? AND {{more}} ORDER BY number{{way}} LIMIT ?
"""
_MOB = f"SELECT {', '.join(MOB_COLUMNS)} FROM mobs WHERE tenant = ? AND {{more}} ORDER BY mob_id LIMIT ?"
IN_FLIGHT = "SELECT id FROM occurrences WHERE id IN EACH(text) AND phase IN EACH(text)"
_ENDS = "SELECT id, ended FROM occurrences WHERE id IN EACH(text)"
OLD = "SELECT session FROM session_messages WHERE created < ? ORDER BY created LIMIT ?"
LARGE = "SELECT key FROM sessions WHERE bytes > ? ORDER BY bytes DESC LIMIT ?"
PRUNABLE = "SELECT key, bytes, turn FROM sessions WHERE key IN EACH(bigint) ORDER BY key /* quick: sessions */"
_FIRST_OF_TURN = "SELECT min(number) FROM session_messages WHERE session = ? AND occurrence_id = ?"
_OLDEST = """
    SELECT number, created, role, bytes FROM session_messages WHERE session = ? AND number < ? ORDER BY number LIMIT ?
"""
_DELETE = "DELETE FROM session_messages WHERE session = ? AND number <= ?"
_SHRINK = "UPDATE sessions SET bytes = ? WHERE key = ?"
OVER = """
    SELECT key, turn FROM sessions
    WHERE is_task = 1 AND updated < ? AND bytes = 0 ORDER BY updated LIMIT ? /* quick: sessions */
"""
_LAST = 2**31 - 1


class SessionRecords(rules.SessionRecords):
    """Reads and writes at once; rows that were read by a writer are locked."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._keys: dict[tuple[str, str], int] = {}

    def find(self, tenant: str, session_id: str) -> AgentSession | None:
        sessions = self._session.records_in("sessions", SESSION_COLUMNS, _ONE, tenant, session_id)
        if not sessions:
            return None
        try:
            return self._taken(sessions[0])
        except Unreadable as error:
            raise damaged(f"session {session_id}", error) from None

    def count(self, tenant: str) -> int:
        return int(self._session.query(_COUNT, tenant)[0][0])

    def add(self, session: AgentSession) -> None:
        [key] = self._session.numbers("sessions", 1)
        self._keys[session.tenant, session.session_id] = key
        self._session.insert("sessions", SESSION_COLUMNS, [session_values(key, session)])

    def change(self, session: AgentSession) -> None:
        self._session.update("sessions", SESSION_COLUMNS, [session_values(self._key(session), session)])

    def remove(self, session: AgentSession) -> None:
        _remove(self._session, [self._key(session)])

    def members(self, tenant: str, mob_id: str) -> list[AgentSession]:
        sessions = self._session.records_in("sessions", SESSION_COLUMNS, _OF_MOB, tenant, mob_id)
        try:
            return [self._taken(columns) for columns in sessions]
        except Unreadable as error:
            raise damaged(f"a session of mob {mob_id}", error) from None

    def has_messages(self, session: AgentSession, occurrence_id: str) -> bool:
        return bool(self._session.query(_HAS, self._key(session), occurrence_id))

    def add_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        if messages:
            key = self._key(session)
            self._session.insert("session_messages", MESSAGE_COLUMNS, [message_values(key, one) for one in messages])

    def find_mob(self, tenant: str, mob_id: str) -> Mob | None:
        rows = self._session.query(_MOB.format(more="mob_id = ?"), tenant, mob_id, 1)
        try:
            return to_mob(rows[0]) if rows else None
        except Unreadable as error:
            raise damaged(f"mob {mob_id}", error) from None

    def add_mob(self, mob: Mob) -> None:
        [key] = self._session.numbers("mobs", 1)
        self._session.insert("mobs", MOB_COLUMNS, [mob_values(key, mob)])

    def remove_mob(self, mob: Mob) -> None:
        self._session.execute("DELETE FROM mobs WHERE tenant = ? AND mob_id = ?", mob.tenant, mob.mob_id)

    def _key(self, session: AgentSession) -> int:
        return self._keys[session.tenant, session.session_id]

    def _taken(self, columns: Values) -> AgentSession:
        read = to_session(columns)
        self._keys[read.tenant, read.session_id] = columns[0]
        return read


def page(  # noqa: PLR0913 - as the port has it
    session: Session,
    report: Report,
    tenant: str,
    limit: int,
    *,
    user: str | None,
    state: SessionState | None,
    labels: Mapping[str, str] | None,
    mob_id: str | None,
    before: PageKey | None,
) -> list[AgentSession]:
    """The sessions of a tenant, latest creation first; damaged ones are left out, and others fill the page."""
    named = {"username = ?": user, "mob_id = ?": mob_id}
    # An active session is stored as another one.
    stored = state if state in (SessionState.IDLE, SessionState.SUSPENDED, SessionState.ARCHIVED) else None
    named["state = ?"] = None if stored is None else str(stored)
    given = {condition: value for condition, value in named.items() if value is not None}
    conditions = [*given, *(["turn IS NOT NULL"] if state is SessionState.ACTIVE else [])]
    size = limit if state is None and not labels else max(limit, AT_ONCE)
    result: list[AgentSession] = []
    while len(result) < limit:
        more = " AND ".join([*conditions, *(["(created, session_id) < (?, ?)"] if before is not None else [])])
        query = PAGE.format(more=more or "1 = 1")
        rows = session.query(query, tenant, *given.values(), *(before or ()), size)
        sessions = _as_of_now(session, readable(report, rows))
        result += [one for one in sessions if state in (None, one.state) and has(one, labels)]
        if len(rows) < size:
            break
        before = (rows[-1][15], rows[-1][2])
    return result[:limit]


def messages(  # noqa: PLR0913 - as the port has it
    session: Session,
    report: Report,
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
    named = {"number < ?": before, "occurrence_id = ?": occurrence_id}
    given = {condition: value for condition, value in named.items() if value is not None}
    query = MESSAGES.format(more=" AND ".join(given) or "1 = 1", way=" DESC" if newest_first else "")
    read = []
    for columns in session.query(query, tenant, session_id, after, *given.values(), limit):
        try:
            read.append(to_message(columns))
        except Unreadable as error:
            report("session_messages", f"{columns[0]}, {columns[1]}", {"row": str(error)})
    return read


def mobs(session: Session, report: Report, tenant: str, limit: int, after: str | None) -> list[Mob]:
    """The mobs of a tenant, by id; damaged ones are left out."""
    read = []
    for columns in session.query(_MOB.format(more="mob_id > ?"), tenant, after or "", limit):
        try:
            read.append(to_mob(columns))
        except Unreadable as error:
            report("mobs", columns[0], {"row": str(error)})
    return read


def prune(session: Session, *, before: Micros, max_bytes: int, limit: int) -> int:
    """Delete old messages, those of sessions that are too large, and sessions of tasks that have ended."""
    old = {key for (key,) in session.query(OLD, before, limit)}
    keys = old | {key for (key,) in session.query(LARGE, max_bytes, PRUNED_SESSIONS)}
    rows = session.query(PRUNABLE, sorted(keys)[:PRUNED_SESSIONS]) if keys else []
    unended = _unended(session, [turn for _, _, turn in rows])
    deleted = 0
    for key, size, turn in rows:
        is_open = isinstance(turn, str) and stored_id(turn) in unended
        first = session.query(_FIRST_OF_TURN, key, turn)[0][0] if is_open else None
        oldest, room = _oldest(session, key, first, limit - deleted), limit - deleted
        stored = number(size, 0, low=0)
        count = surplus(oldest, before=before, excess=max(stored - max_bytes, 0), limit=room)
        if count:
            freed = sum(one.bytes for one in oldest[:count])
            session.execute(_DELETE, key, oldest[count - 1].number)
            session.execute(_SHRINK, max(stored - freed, 0), key)
            deleted += count
    over = session.query(OVER, before, limit - deleted) if deleted < limit else []
    unended = _unended(session, [turn for _, turn in over])
    ended = [key for key, turn in over if not isinstance(turn, str) or stored_id(turn) not in unended]
    _remove(session, ended)
    return deleted + len(ended)


def _oldest(session: Session, key: int, end: int | None, limit: int) -> list[Stored]:
    """The oldest messages of a session before a number, one more than asked for; damaged sizes and times are 0."""
    rows = session.query(_OLDEST, key, _LAST if end is None else end, limit + 1)
    return [Stored(place, number(at, 0), str(role), number(size, 0, low=0)) for place, at, role, size in rows]


def _remove(session: Session, keys: Sequence[int]) -> None:
    if keys:
        session.delete("session_messages", "session", keys)
        session.delete("sessions", "key", keys)


def _in_flight(session: Session, turns: Collection[str | None]) -> set[str]:
    """The occurrences of turns that are being delivered."""
    ids, phases = _occurrences(turns), [str(phase) for phase in DELIVERING]
    return {one for (one,) in session.query(IN_FLIGHT, ids, phases)} if ids else set()


def _unended(session: Session, turns: Collection[str | None]) -> set[str]:
    """The occurrences of turns that have not ended. A condition on the end would make PostgreSQL read all of those."""
    ids = _occurrences(turns)
    return {one for one, ended in session.query(_ENDS, ids) if ended is None} if ids else set()


def _occurrences(turns: Collection[str | None]) -> list[str]:
    return sorted({stored_id(turn) for turn in turns if isinstance(turn, str)})


def _as_of_now(session: Session, sessions: Sequence[AgentSession]) -> list[AgentSession]:
    flying = _in_flight(session, [one.turn for one in sessions])
    return [as_of_now(one, is_in_flight=one.turn is not None and stored_id(one.turn) in flying) for one in sessions]


def readable(report: Report, rows: Sequence[Values]) -> list[AgentSession]:
    """The sessions that can be read."""
    sessions = []
    for columns in rows:
        try:
            sessions.append(to_session(columns))
        except Unreadable as error:
            report("sessions", columns[0], {"row": str(error)})
    return sessions


def session_values(key: int, session: AgentSession) -> Values:
    """The columns of a session."""
    policy = session.tool_access_policy
    return (
        key, session.tenant, session.session_id, session.user, to_json(session.spec.to_document()),
        None if policy is None else to_json(policy.to_document()), str(session.state), session.schedule_id,
        session.mob_id, session.member_id, session.role, session.turn, session.messages, session.bytes,
        to_json(asdict(session.usage)), session.created, session.updated, int(is_of_task(session)),
        None if session.scopes is None else to_json(sorted(session.scopes)),
    )  # fmt: skip


def to_session(columns: Values) -> AgentSession:
    """A session; raises `Unreadable`."""
    from noonmark.core.targets.mob import read_tool_access  # a program without agents does not load them
    from noonmark.core.targets.session import read_spec

    (_, tenant, session_id, user, spec, policy, state, schedule_id, mob_id, member_id, role) = columns[:11]
    turn, count, size, usage, created, updated, _, scopes = columns[11:]
    values = _checked(_SESSIONS, columns, spec=spec, tool_access_policy=policy, usage=usage, scopes=scopes)
    problems: list[Problem] = []
    reader = Reader(values["spec"], path="spec", code=InvalidSchedule.code, problems=problems)
    stored_spec = read_spec(reader)
    tools = read_tool_access(
        Reader({"tool_access_policy": values["tool_access_policy"]}, path="", code=reader.code, problems=problems)
    )
    if problems:
        raise Unreadable(str(problems[0]))
    return AgentSession(
        tenant=tenant,
        session_id=session_id,
        user=user,
        spec=stored_spec,
        tool_access_policy=tools,
        scopes=None if values["scopes"] is None else _to_scopes(values["scopes"]),
        state=SessionState(state),
        schedule_id=schedule_id,
        mob_id=mob_id,
        member_id=member_id,
        role=role,
        turn=turn,
        messages=count,
        bytes=size,
        usage=_to_usage(values["usage"]),
        created=created,
        updated=updated,
    )


def _to_scopes(names: Sequence[str]) -> frozenset[Scope]:
    try:
        return frozenset(Scope(one) for one in names)
    except (TypeError, ValueError) as error:
        raise Unreadable(str(error)) from None


def message_values(key: int, message: Message) -> Values:
    """The columns of a message of the session with that key."""
    usage = None if message.usage is None else to_json(asdict(message.usage))
    return (
        key, message.number, str(message.role), to_json(list(message.parts)), to_json(message.data),
        message.occurrence_id, usage, message_bytes(message), message.at,
    )  # fmt: skip


def to_message(columns: Values) -> Message:
    """A message; raises `Unreadable`."""
    _, number, role, parts, data, occurrence_id, usage, _, created = columns
    values = _checked(_MESSAGES, columns, parts=parts, data=data, usage=usage)
    if not isinstance(values["parts"], list) or not all(isinstance(one, dict) for one in values["parts"]):
        raise Unreadable("its parts are not objects")
    return Message(
        role=Role(role),
        parts=tuple(values["parts"]),
        data=values["data"],
        number=number,
        at=created,
        occurrence_id=occurrence_id,
        usage=None if values["usage"] is None else _to_usage(values["usage"]),
    )


def mob_values(key: int, mob: Mob) -> Values:
    """The columns of a mob."""
    return (key, mob.tenant, mob.mob_id, mob.user, to_json(mob.document), mob.created, mob.updated)


def to_mob(columns: Values) -> Mob:
    """A mob; raises `Unreadable`."""
    _, tenant, mob_id, user, document, created, updated = columns
    mob_document = _checked(_MOBS, columns, document=document)["document"]
    if not isinstance(mob_document, dict):
        raise Unreadable("its document is not an object")
    return Mob(tenant=tenant, mob_id=mob_id, user=user, document=mob_document, created=created, updated=updated)


def _to_usage(stored: Any) -> Usage:
    if not isinstance(stored, dict):
        raise Unreadable("its usage is not an object")
    fields = {name: stored[name] for name in _NAMES if name in stored}
    texts, counts = {"model", "provider"}, set(_NAMES) - {"model", "provider"}
    are_texts = all(isinstance(fields.get(name), str | None) for name in texts)
    are_counts = all(type(fields.get(name, 0)) is int or (name == "cost" and fields[name] is None) for name in counts)
    if not are_texts or not are_counts:
        raise Unreadable("its usage is not of numbers")
    return Usage(**fields)


def _checked(check: RowCheck, columns: Values, **texts: str | None) -> dict[str, Any]:
    """The values of JSON columns of a row that is sound."""
    if problems := check.problems(columns):
        raise Unreadable(describe_problems(problems))
    try:
        return {name: from_json(text, name) for name, text in texts.items()}
    except RecursionError:
        raise Unreadable("its JSON is too deep") from None


def damaged(what: str, error: Unreadable) -> StoreUnavailable:
    """The error about a record that somebody asked for."""
    return StoreUnavailable(f"the stored record of {what} is damaged: {error}; noonmark doctor says more")
