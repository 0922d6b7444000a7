"""Sessions and mobs: whose turn it is, what is appended, and what may be deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from noonmark.core.agents.session import STEP, Role, SessionState
from noonmark.core.ids import carries_steps, stored_id
from noonmark.ports.workflows import UsedKind
from noonmark.stores.rules import budgets
from noonmark.stores.rules.records import DELIVERING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.agents.session import Message, Mob, Session
    from noonmark.core.instants import Micros
    from noonmark.ports.budgets import Settled
    from noonmark.ports.sessions import Turn
    from noonmark.stores.rules.unit_of_work import UnitOfWork

MAX_USERS = 100
"""How many schedules that name a session or a mob are listed at most."""
TASK = "schedule:{}:"
"""What the id of the session of a task begins with; see `core.agents.session.task_session`."""


class Stored(NamedTuple):
    """What pruning knows of a message."""

    number: int
    at: Micros
    role: str
    bytes: int


def put(uow: UnitOfWork, session: Session, most: int | None) -> bool | None:
    """Create a session; False if the id is taken, None if there are too many."""
    records = uow.sessions
    if records.find(session.tenant, session.session_id) is not None:
        return False
    if most is not None and records.count(session.tenant) >= most:
        return None
    records.add(_new(uow, session))
    return True


def get(uow: UnitOfWork, tenant: str, session_id: str) -> Session | None:
    """A session with its state as of now."""
    session = uow.sessions.find(tenant, session_id)
    if session is None or session.turn is None:
        return session
    row = uow.row(stored_id(session.turn))
    return as_of_now(session, is_in_flight=row is not None and row.phase in DELIVERING)


def as_of_now(session: Session, *, is_in_flight: bool) -> Session:
    """A session whose last turn is in flight is active, unless it was archived meanwhile."""
    is_active = is_in_flight and session.state is not SessionState.ARCHIVED
    return replace(session, state=SessionState.ACTIVE) if is_active else session


def has(session: Session, labels: Mapping[str, str] | None) -> bool:
    """Whether a session has some labels."""
    own = session.spec.labels
    return all(own.get(name) == value for name, value in (labels or {}).items())


def begin_turn(uow: UnitOfWork, turn: Turn, messages: Sequence[Message]) -> Session | None:
    """Begin or continue a turn."""
    session = _held(uow, turn)
    if session is None:
        return None
    begun = replace(session, turn=turn.occurrence_id, state=SessionState.IDLE, updated=uow.now())
    if messages and not uow.sessions.has_messages(session, turn.occurrence_id):
        begun, _ = _append(uow, begun, turn, messages)
    uow.sessions.change(begun)
    return replace(begun, state=SessionState.ACTIVE)


def append(
    uow: UnitOfWork, turn: Turn, messages: Sequence[Message], settles: Sequence[Settled]
) -> list[Message] | None:
    """Append messages of a turn, and count what its calls have used."""
    session = _held(uow, turn)
    if session is None:
        return None
    after, numbered = _append(uow, session, turn, messages)
    for settled, is_new in zip(settles, budgets.settle_all(uow, settles), strict=True):
        if is_new:
            after = replace(after, usage=after.usage.plus(settled.usage))
    uow.sessions.change(after)
    return numbered


def set_state(uow: UnitOfWork, tenant: str, session_id: str, state: SessionState) -> Session | None:
    """Set a session to idle, suspended or archived. One that was archived during a turn stays so if that is cut off."""
    session = uow.sessions.find(tenant, session_id)
    if session is None:
        return None
    stays = state is SessionState.SUSPENDED and session.state is SessionState.ARCHIVED
    if session.state is not state and not stays:
        uow.sessions.change(replace(session, state=state, updated=uow.now()))
    return get(uow, tenant, session_id)


def delete(uow: UnitOfWork, tenant: str, session_id: str) -> list[str] | None:
    """Delete a session, unless schedules name it; None if it is unknown."""
    session = uow.sessions.find(tenant, session_id)
    if session is None:
        return None
    users = uow.workflows.schedules_using(tenant, UsedKind.SESSION, session_id, MAX_USERS)
    if not users:
        uow.sessions.remove(session)
    return users


def put_mob(uow: UnitOfWork, mob: Mob, sessions: Sequence[Session]) -> bool:
    """Create a mob with the sessions of its members.

    A member whose session is left from a deleted mob of the same user goes on with it: its transcript and its usage are
    kept. What another user left is deleted.
    """
    records, now = uow.sessions, uow.now()
    if records.find_mob(mob.tenant, mob.mob_id) is not None:
        return False
    records.add_mob(replace(mob, created=mob.created or now, updated=mob.updated or now))
    for session in sessions:
        stored = records.find(session.tenant, session.session_id)
        if stored is not None and stored.user != session.user:
            records.remove(stored)
            stored = None
        if stored is None:
            records.add(_new(uow, session))
        else:
            records.change(
                replace(
                    session,
                    turn=stored.turn,
                    messages=stored.messages,
                    bytes=stored.bytes,
                    usage=stored.usage,
                    created=stored.created,
                    updated=now,
                )
            )
    return True


def delete_mob(uow: UnitOfWork, tenant: str, mob_id: str) -> list[str] | None:
    """Delete a mob and archive the sessions of its members, unless schedules name it; None if it is unknown."""
    mob = uow.sessions.find_mob(tenant, mob_id)
    if mob is None:
        return None
    users = uow.workflows.schedules_using(tenant, UsedKind.MOB, mob_id, MAX_USERS)
    if not users:
        uow.sessions.remove_mob(mob)
        for session in uow.sessions.members(tenant, mob_id):
            uow.sessions.change(replace(session, state=SessionState.ARCHIVED, updated=uow.now()))
    return users


def is_of_task(session: Session) -> bool:
    """Whether a session was made for one task or for one step of a workflow run, and ends with it."""
    session_id, schedule_id = session.session_id, session.schedule_id
    if schedule_id is None:
        return False
    return session_id.startswith(STEP if carries_steps(schedule_id) else TASK.format(schedule_id))


def message_bytes(message: Message) -> int:
    """The size of a message: that of its JSON."""
    return len(json.dumps(message.parts)) + len(json.dumps(message.data))


def surplus(messages: Sequence[Stored], *, before: Micros, excess: int, limit: int) -> int:
    """How many of the oldest messages are to be deleted: older ones, and so many that `excess` bytes are gone.

    `messages` are the first `limit` + 1 that may be deleted, or all of them. What is left does not begin with the
    answer of a tool.
    """
    count = freed = 0
    for message in messages:
        if message.at >= before and freed >= excess:
            break
        count, freed = count + 1, freed + message.bytes
    while 0 < count < len(messages) and messages[count].role == Role.TOOL:
        count += 1
    count = min(count, limit)
    while 0 < count < len(messages) and messages[count].role == Role.TOOL:
        count -= 1
    return count


def _new(uow: UnitOfWork, session: Session) -> Session:
    now = uow.now()
    return replace(session, created=session.created or now, updated=session.updated or now)


def _held(uow: UnitOfWork, turn: Turn) -> Session | None:
    """The session of a turn that is delivered with its fence, or was accepted by a host with it."""
    row = uow.row(stored_id(turn.occurrence_id))
    if row is None or row.phase not in DELIVERING or row.fence != turn.fence:
        return None
    return uow.sessions.find(turn.tenant, turn.session_id)


def _append(
    uow: UnitOfWork, session: Session, turn: Turn, messages: Sequence[Message]
) -> tuple[Session, list[Message]]:
    now, first = uow.now(), session.messages + 1
    numbered = [
        replace(message, number=number, at=now, occurrence_id=turn.occurrence_id)
        for number, message in enumerate(messages, first)
    ]
    uow.sessions.add_messages(session, numbered)
    added = sum(message_bytes(message) for message in numbered)
    after = replace(session, messages=session.messages + len(numbered), bytes=session.bytes + added, updated=now)
    return after, numbered
