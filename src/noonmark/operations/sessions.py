"""Sessions: create, get, list, archive and delete them, read their messages, and send them new ones."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.mobs import parse_session
from noonmark.core.agents.session import Session, SessionState, turn_key
from noonmark.core.api_key import session_scopes
from noonmark.core.budgets.spend import to_dollars
from noonmark.core.errors import Conflict, InvalidRequest, KeyReused, NotAllowed, NotFound, QuotaExceeded
from noonmark.core.ids import visible_id
from noonmark.core.json_values import identifier, text_of
from noonmark.core.occurrence import Overrides
from noonmark.core.quotas import Resource
from noonmark.core.schedule import Owner
from noonmark.core.targets.session import PromptAction, SessionSpec, SessionTarget, SessionType, read_prompt_action
from noonmark.core.workflows.hidden_schedules import hidden_schedule, turns_id
from noonmark.operations import schedule_edits
from noonmark.operations.models.fields import ArgumentReader, write_cursor
from noonmark.operations.serializers import occurrence_document, read_page, text
from noonmark.operations.service import cause_of_run, quotas_of, record_audit_entry
from noonmark.operations.target_policy import unserved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.agents.session import Message
    from noonmark.core.budgets.spend import Usage
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import MessageQuery, OneSession, SessionChange, SessionQuery
    from noonmark.operations.service import Caller, Service

MAX_SESSIONS = 100_000
"""How many sessions a tenant may have."""
MAX_KEY = 200
MAX_NAMED = 20
"""How many schedules the refusal to delete a session or a mob names."""
_NOTHING = PromptAction(prompt="Each message brings its own text.")
_UNCACHED = {"cache_read_tokens": 0, "cache_write_tokens": 0}
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(one.name for one in fields(SessionSpec)),
    "labels": {},
    "structured_output_retries": 0,
    "keep_alive": False,
    "enable_schedule": False,
}
"""What a session was created with, where nothing was said."""


def create_session(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create a session; a conflict if its id is taken."""
    default = {} if service.agent_model is None else {"model": service.agent_model}
    new = parse_session(default | {name: value for name, value in arguments.items() if value is not None})
    if (problem := service.model_problem(new.spec.model, new.spec.provider)) is not None:
        raise InvalidRequest(problem, field="model")
    session_id, now = new.session_id or service.fresh_id(), service.store.clock()
    session = Session(
        tenant=caller.owner.tenant,
        session_id=session_id,
        user=caller.owner.user,
        spec=new.spec,
        tool_access_policy=new.tool_access_policy,
        scopes=caller.granted,
        created=now,
        updated=now,
    )
    note = caller.audit(f"session {session_id}")(None, None, now=now)
    is_new = service.store.put_session(session, most=None if caller.is_root else MAX_SESSIONS, note=note)
    if is_new is None:
        raise QuotaExceeded(f"the tenant has {MAX_SESSIONS:,} sessions, the most that it may have")
    if not is_new:
        raise Conflict(f"there is a session {session_id!r} already", field="session_id")
    return session_document(session)


def get_session(service: Service, caller: Caller, arguments: OneSession) -> dict[str, Any]:
    """Get a session: its state, what it was created with, and what it has used."""
    return session_document(find_session(service, caller, arguments.session_id))


def list_sessions(service: Service, caller: Caller, arguments: SessionQuery) -> dict[str, Any]:
    """List the sessions that match every filter, latest creation first."""
    user, labels = arguments.owner, _labels(arguments)
    if caller.sees_own_only:
        if user not in (None, caller.owner.user):
            raise NotAllowed("must be the user of your key: you see your own sessions only", field="owner")
        user = caller.owner.user

    def fetch(count: int, last: Session | None) -> list[Session]:
        return service.store.sessions(
            caller.owner.tenant,
            count,
            user=user,
            state=arguments.state,
            labels=labels,
            mob_id=arguments.mob_id,
            before=arguments.cursor if last is None else (last.created, last.session_id),
        )

    entries, end = read_page(arguments.limit, fetch, lambda page: [session_document(one) for one in page])
    return {"sessions": entries, "next_cursor": None if end is None else write_cursor(end.created, end.session_id)}


def _labels(arguments: SessionQuery) -> dict[str, str]:
    reader = ArgumentReader({"labels": arguments.labels})
    labels = reader.labels("labels")
    reader.done()
    if arguments.label is not None:
        name, _, value = arguments.label.partition("=")
        labels[name] = value
    return labels


def list_messages(service: Service, caller: Caller, arguments: MessageQuery) -> dict[str, Any]:
    """List the messages of a session in their order, or newest first."""
    session = find_session(service, caller, arguments.session_id)
    newest_first, lowest = arguments.newest_first, arguments.after or 0

    def fetch(count: int, last: Message | None) -> list[Message]:
        place = last.number if last is not None else None if arguments.cursor is None else arguments.cursor[0]
        return service.store.messages(
            session.tenant,
            session.session_id,
            count,
            after=lowest if newest_first or place is None else max(lowest, place),
            before=place if newest_first else None,
            occurrence_id=arguments.occurrence_id,
            newest_first=newest_first,
        )

    entries, end = read_page(arguments.limit, fetch, lambda page: [message_document(one) for one in page])
    return {"messages": entries, "next_cursor": None if end is None else write_cursor(end.number)}


def send_message(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Send a message to a session. The same key again is the same turn.

    The turn begins when the one before has ended. The answer is the occurrence of the turn; the messages of the session
    that have its id are what was said.
    """
    occurrence, schedule = add_turn(service, caller, arguments)
    return occurrence_document(occurrence, schedule, unserved=unserved(service.store, schedule, service.permissions))


def add_turn(
    service: Service, caller: Caller, arguments: Mapping[str, Any], *, expect: Callable[[str], None] | None = None
) -> tuple[Occurrence, Schedule]:
    """Add the turn of a message; `expect` is called with the id of its occurrence before that is stored."""
    reader = ArgumentReader(arguments)
    session_id = reader.read("session_id", identifier)
    key = reader.read("key", text_of(1, MAX_KEY), None)
    action = read_prompt_action(reader)
    reader.done()
    session = find_session(service, caller, session_id)
    if session.state is SessionState.ARCHIVED:
        raise Conflict("it is archived, and takes no messages", field="session_id")
    _check_scopes(caller, session)
    schedule = _carrier(service, caller, session)
    behind, key = cause_of_run(service, caller, schedule.schedule_id, key)
    target = SessionTarget(type=SessionType.EXACT, session_id=session_id, action=action)
    requested = schedule_edits.run_now(
        schedule,
        key=key or service.fresh_id(),
        payload=None,
        now=service.store.clock(),
        overrides=Overrides(target=target, behind=behind),
    )
    if expect is not None:
        expect(requested.id)
    if (occurrence := service.store.occurrence(requested.id)) is None:
        service.store.add([requested], limits=quotas_of(service, caller, Resource.QUEUED))
        service.wake(None)
        record_audit_entry(service, caller, f"session {session_id}, run {requested.id}")
        occurrence = service.store.occurrence(requested.id) or requested
    elif occurrence.overrides is None or occurrence.overrides.target != target:
        raise KeyReused("this key came with another message before", field="key")
    return occurrence, schedule


def _check_scopes(caller: Caller, session: Session) -> None:
    """Refuse a message by which an agent or a proposer would have a session do what it may not do itself."""
    if caller.granted is None or not session.spec.enable_schedule:
        return
    if beyond := sorted(session_scopes(session.scopes) - caller.granted):
        raise NotAllowed(
            f"the tools of this session may do more than your key, {', '.join(beyond)}; a person can talk to it, or"
            " create a session without enable_schedule",
            field="session_id",
        )


def _carrier(service: Service, caller: Caller, session: Session) -> Schedule:
    """The hidden schedule of the messages that callers send to a session; it is created with the first one.

    A session of the same id may have had another owner before.
    """
    schedule_id, owner = turns_id(session.session_id), Owner(tenant=session.tenant, user=session.user)
    target = SessionTarget(type=SessionType.EXACT, session_id=session.session_id, action=_NOTHING)
    while (stored := service.store.find(session.tenant, schedule_id)) is None or stored.schedule.owner != owner:
        if stored is not None:
            schedule_edits.delete(service.store, stored.schedule.uid)
        schedule = hidden_schedule(
            schedule_id,
            uid=service.fresh_id(),
            owner=owner,
            source=caller.source,
            now=service.store.clock(),
            target=target,
        )
        schedule_edits.create(service.store, schedule, lookahead=service.lookahead)
    return stored.schedule


def archive_session(service: Service, caller: Caller, arguments: SessionChange) -> dict[str, Any]:
    """Archive a session: its transcript is kept, and it takes no messages."""
    session = find_session(service, caller, arguments.session_id)
    _refuse_if_in_flight(service, session)
    note = caller.audit(_about(session, arguments.reason))(None, None, now=service.store.clock())
    archived = service.store.set_session_state(session.tenant, session.session_id, SessionState.ARCHIVED, note=note)
    if archived is None:  # deleted a moment ago
        raise _unknown(session.session_id)
    return session_document(archived)


def delete_session(service: Service, caller: Caller, arguments: SessionChange) -> dict[str, Any]:
    """Delete a session with its messages, unless a turn of it is in flight or a schedule names it."""
    session = find_session(service, caller, arguments.session_id)
    _refuse_if_in_flight(service, session)
    if session.mob_id is not None and _is_member(service, session):
        raise Conflict(f"it is a member of the mob {session.mob_id}; delete that first", field="session_id")
    note = caller.audit(_about(session, arguments.reason))(None, None, now=service.store.clock())
    naming = service.store.delete_session(session.tenant, session.session_id, note=note)
    if naming is None:  # deleted a moment ago
        raise _unknown(session.session_id)
    refuse_if_named(naming, "session")
    carrier = service.store.find(session.tenant, turns_id(session.session_id))
    if carrier is not None:  # what was sent, and waits, ends with it
        schedule_edits.delete(service.store, carrier.schedule.uid)
    return session_document(session)


def _refuse_if_in_flight(service: Service, session: Session) -> None:
    """Refuse a change during a turn, also of one that starts and has not said anything yet: it holds the key."""
    if session.state is SessionState.ACTIVE:
        raise Conflict(f"a turn of it is in flight: {session.turn}; cancel that first", field="session_id")
    if service.store.count_places(session.tenant, turn_key(session.session_id)):
        raise Conflict("a turn of it is in flight, and begins; wait for its end, or cancel it", field="session_id")


def refuse_if_named(schedule_ids: list[str], what: str) -> None:
    """Refuse to delete what schedules name."""
    if schedule_ids:
        more = f" and {len(schedule_ids) - MAX_NAMED:,} more" if len(schedule_ids) > MAX_NAMED else ""
        raise Conflict(
            f"schedules name this {what}: {', '.join(schedule_ids[:MAX_NAMED])}{more}; delete or change them first",
            field=f"{what}_id",
        )


def find_session(service: Service, caller: Caller, session_id: str) -> Session:
    """Find a session that the caller sees; NotFound if there is none."""
    session = service.store.session(caller.owner.tenant, session_id)
    if session is None or (caller.sees_own_only and session.user != caller.owner.user):
        raise _unknown(session_id)
    return session


def _is_member(service: Service, session: Session) -> bool:
    mob = None if session.mob_id is None else service.store.mob(session.tenant, session.mob_id)
    return mob is not None and any(one["member_id"] == session.member_id for one in mob.document["members"])


def _unknown(session_id: str) -> NotFound:
    return NotFound(f"there is no session {session_id!r}", field="session_id")


def _about(session: Session, reason: str | None) -> str:
    what = f"session {session.session_id}"
    return what if reason is None else f"{what}: {reason}"


def session_document(session: Session) -> dict[str, Any]:
    """A session, with what it was created with."""
    policy, cost = session.tool_access_policy, session.usage.cost
    return {
        "session_id": session.session_id,
        "state": str(session.state),
        "owner": {"tenant": session.tenant, "user": session.user},
        **_FIELDS,
        **session.spec.to_document(),
        "tool_access_policy": None if policy is None else policy.to_document(),
        "schedule_id": None if session.schedule_id is None else visible_id(session.schedule_id),
        "mob_id": session.mob_id,
        "member_id": session.member_id,
        "role": session.role,
        "occurrence_id": session.turn,
        "message_count": session.messages,
        "usage": _usage(session.usage),
        "cost_usd": None if cost is None else to_dollars(cost),
        "created_at_utc": text(session.created),
        "updated_at_utc": text(session.updated),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {**_UNCACHED, **usage.to_document()}


def message_document(message: Message) -> dict[str, Any]:
    """A message, without what only its host needs."""
    texts = [str(part.get("text", "")) for part in message.parts if part.get("type") == "text"]
    return {
        "number": message.number,
        "role": str(message.role),
        "text": "\n".join(texts),
        "parts": list(message.parts),
        "at_utc": text(message.at),
        "occurrence_id": message.occurrence_id,
        "usage": None if message.usage is None else _usage(message.usage),
    }
