"""Events: those of a tenant in the order in which they were emitted, and what becomes of them.

What was matched is told by one moment per tenant: to match an event is to move that moment on, and no event is ever
written a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core import ids
from noonmark.core.clock_trust import LEAP
from noonmark.core.errors import NoonmarkError
from noonmark.core.event import Event
from noonmark.stores.sql import plan_writes
from noonmark.stores.sql.event_matching import Pages
from noonmark.stores.sql.records import Unreadable, from_json, to_json, trail
from noonmark.stores.sql.row_checks import FURTHEST, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.chain import Chain
    from noonmark.core.instants import Micros
    from noonmark.core.reactions import Reaction, UnmatchedEvent
    from noonmark.stores.damage import DamageLog
    from noonmark.stores.sql.records import ScheduleState
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import UnitOfWork

COLUMNS = ("emitted", "event_id", "event_type", "source", "payload", "behind", "tenant")
_SELECTED = "emitted, event_id, event_type, source, payload, behind"
_KNOWN = "SELECT event_id FROM events WHERE event_id IN EACH(text) AND tenant = ?"
_ADVANCE = """
    INSERT INTO event_streams (tenant, newest, matched_until) VALUES (?, ?, ?)
    ON CONFLICT (tenant) DO UPDATE SET newest = excluded.newest
"""
_BEHIND = """
    SELECT tenant, matched_until, cursor FROM event_streams
    WHERE newest > matched_until ORDER BY matched_until, tenant LIMIT ?
"""
_WAITING = f"""
    tenant = ? AND emitted > ? AND emitted <= {FURTHEST} AND CAST(emitted AS bigint) = emitted ORDER BY emitted LIMIT ?
"""
"""Not beyond all times: a damaged value may be, and matched, it would leave none for those that follow. And no fraction
of a moment, which nobody can read, and which would stand before all others for ever."""
_LAST = f"SELECT max(emitted) FROM events WHERE tenant = ? AND emitted <= {FURTHEST}"  # noqa: S608 - our own text
_AHEAD = f"SELECT key, emitted FROM events WHERE tenant = ? AND emitted > ? AND emitted <= {FURTHEST} ORDER BY emitted"  # noqa: S608 - likewise
_LAST_UNTIL = "SELECT max(emitted) FROM events WHERE tenant = ? AND emitted <= ?"
_STREAM = "SELECT newest, matched_until, cursor, matched FROM event_streams WHERE tenant = ?"
_MATCHED = "SELECT count(*) FROM events WHERE tenant = ? AND emitted <= ?"
_OLD = """
    SELECT key, events.tenant FROM events CROSS JOIN event_streams ON event_streams.tenant = events.tenant
    WHERE emitted < ? AND emitted <= matched_until ORDER BY emitted, key LIMIT ? /* quick: event_streams, events */
"""
_FULLEST = """
    SELECT tenant, matched FROM event_streams WHERE matched > ? ORDER BY matched DESC, tenant LIMIT 1
    /* quick: event_streams */
"""
_OLDEST = """
    SELECT key, tenant FROM events
    WHERE tenant = ? AND emitted <= (SELECT matched_until FROM event_streams WHERE tenant = ?)
    ORDER BY emitted LIMIT ?
"""


_FEWER = f"""
    UPDATE event_streams SET matched = CASE WHEN matched BETWEEN j.c1 AND {FURTHEST} THEN matched - j.c1 ELSE 0 END
    FROM ROWS(text, bigint) AS j WHERE tenant = j.c0
"""  # noqa: S608 - our own text
_COUNT = """
    SELECT count(*) FROM events
    WHERE tenant = ? AND emitted <= (SELECT matched_until FROM event_streams WHERE tenant = ?)
"""


@dataclass(slots=True, eq=False)
class EventStream:
    """How far a tenant's events are matched, as a transaction works on it."""

    tenant: str
    matched_until: Micros
    cursor: int
    """How far the listeners of the first that waits have been asked: all keys up to this one."""
    matched: int
    waiting: list[Micros]
    """The moments of the first events that wait, the last one first."""


def emit(uow: UnitOfWork, tenant: str, events: Sequence[Event]) -> list[bool]:
    """Keep events, in their order; False where an id is known."""
    session, now = uow.session, uow.now()
    known = {event_id for (event_id,) in session.query(_KNOWN, [one.event_id for one in events], tenant)}
    newest = _mended(session, tenant, now)
    answers, rows = [], []
    for one in events:
        answers.append(one.event_id not in known)
        if answers[-1]:
            known.add(one.event_id)
            newest = max(now, newest + 1)
            payload = "null" if one.payload is None else to_json(one.payload)
            behind = None if one.behind is None else to_json(one.behind.to_document())
            rows.append((newest, one.event_id, one.event_type, one.source, payload, behind, tenant))
    if rows:
        session.insert("events", COLUMNS, rows)
        session.execute(_ADVANCE, tenant, newest, now - 1)
    return answers


def unmatched(uow: UnitOfWork, limit: int) -> tuple[list[UnmatchedEvent], list[str]]:
    """Events that were not matched yet, each with schedules that may want it; and whose streams are damaged."""
    pages = Pages(uow, limit)
    damaged = []
    for tenant, until, cursor in uow.session.query(_BEHIND, limit):
        if not pages.room:
            break
        waiting = _read(uow.session, _WAITING, (tenant, until, pages.room)) if _is_sound(until, cursor) else []
        if waiting:
            pages.add(tenant, waiting, cursor)
        else:
            damaged.append(tenant)
    return pages.audiences(), damaged


def mend(uow: UnitOfWork, tenants: Sequence[object]) -> None:
    """Bring streams that say that something waits, where nothing does, in line with the events that there are."""
    for tenant in tenants:
        if not isinstance(tenant, str):  # damaged, and nobody's
            uow.session.execute("UPDATE event_streams SET newest = 0, matched_until = 0 WHERE tenant = ?", tenant)
            continue
        _mended(uow.session, tenant, uow.now(), uow.schedule_cache.damage)


def _is_sound(*numbers: object) -> bool:
    return all(type(one) is int and abs(one) <= FURTHEST for one in numbers)


def _mended(session: Session, tenant: str, now: Micros, damage: DamageLog | None = None) -> Micros:
    """The moment of the newest event of a tenant; what is damaged about its stream is mended.

    Where it is lost how far events were matched, all that there are count as such: none is heard twice.
    """
    found = session.query(_STREAM, tenant)
    if not found:
        [(last,)] = session.query(_LAST, tenant)
        return number(last, now - 1)
    [(newest, until, cursor, matched)] = found
    if _is_sound(newest, until, cursor, matched) and newest >= until and matched >= 0 and damage is None:
        return int(newest) if newest <= now + LEAP else _set_back(session, tenant, until, now)
    [(last,)] = session.query(_LAST, tenant)
    ahead = number(last, number(until, now - 1))
    sound_until = number(until, ahead)
    newest = max(ahead, sound_until)
    if damage is not None and not _is_sound(until, cursor, matched):
        damage.note("event_streams", tenant, "newest, matched_until, cursor and matched must be whole numbers")
    [(matched,)] = session.query(_MATCHED, tenant, sound_until)
    mended = (tenant, newest, sound_until, number(cursor, 0, low=0), matched)
    session.update("event_streams", ("tenant", "newest", "matched_until", "cursor", "matched"), [mended])
    return newest


def _set_back(session: Session, tenant: str, until: Micros, now: Micros) -> Micros:
    """Give events that a clock ahead has dated moments before now, in their order; that of the newest.

    Else all that follow would have to lie ahead as well, for years.
    """
    after = now + LEAP
    found = session.query(_AHEAD, tenant, after)
    [(last,)] = session.query(_LAST_UNTIL, tenant, after)
    base = max(now - 1 - len(found), number(last, -FURTHEST))
    moments = {emitted: base + place for place, (_, emitted) in enumerate(found, 1)}
    if found:
        session.update("events", ("key", "emitted"), [(key, moments[emitted]) for key, emitted in found])
    if until > after:
        until = max((moment for emitted, moment in moments.items() if emitted <= until), default=base)
    newest = base + len(found)
    session.update("event_streams", ("tenant", "newest", "matched_until"), [(tenant, newest, until)])
    return newest


def commit(uow: UnitOfWork, reactions: Sequence[Reaction]) -> list[bool]:
    """Write what becomes of events; False where one, or whoever reacts to it, is no longer as it was read."""
    streams = _streams(uow.session, [one.audience.tenant for one in reactions])
    rows = [row for one in reactions for row in one.occurrences]
    states = uow.read_states({row.uid for row in rows}) if rows else {}
    uow.read_rows(row.id for row in rows)
    uow.reserve({row.id for row in rows})
    written = [_commit(uow, streams.get(one.audience.tenant), states, one) for one in reactions]
    if any(written):
        names = ("tenant", "matched_until", "cursor", "matched")
        values = [(one.tenant, one.matched_until, one.cursor, one.matched) for one in streams.values()]
        uow.session.update("event_streams", names, values)
    return written


def newest(session: Session, tenant: str, limit: int, before: Micros | None, event_type: str | None) -> list[Event]:
    """The events of a tenant, newest first."""
    where, values = "tenant = ?", [tenant, *(one for one in (before, event_type) if one is not None)]
    for condition, value in (("emitted < ?", before), ("event_type = ?", event_type)):
        if value is not None:
            where = f"{where} AND {condition}"
    return [event for event, _ in _read(session, f"{where} ORDER BY emitted DESC LIMIT ?", (*values, limit))]


def one(session: Session, tenant: str, event_id: str) -> Event | None:
    """The event of a tenant with that id."""
    return next((event for event, _ in _read(session, "tenant = ? AND event_id = ?", (tenant, event_id))), None)


def prune(session: Session, *, before: Micros, keep: int, limit: int) -> int:
    """Forget what is old, and what is too much."""
    count = _forget(session, session.query(_OLD, before, limit))
    while count < limit and (fullest := session.query(_FULLEST, keep)):
        [(tenant, _)] = fullest
        # Counted, not believed: a damaged number would have everything forgotten.
        [(matched,)] = session.query(_COUNT, tenant, tenant)
        if matched <= keep:
            session.execute("UPDATE event_streams SET matched = ? WHERE tenant = ?", matched, tenant)
            continue
        found = session.query(_OLDEST, tenant, tenant, min(matched - keep, limit - count))
        if not found:  # somebody has removed them by hand
            break
        count += _forget(session, found)
    return count


def _read(session: Session, where: str, parameters: tuple[Any, ...]) -> list[tuple[Event, str]]:
    """Events, and what is wrong with each, if it cannot be read."""
    inner = f"(SELECT {_SELECTED} FROM events WHERE {where})"  # noqa: S608 - our own text
    found = []
    for emitted, event_id, event_type, source, payload, behind in session.gather(_SELECTED, inner, *parameters):
        problem, value = "", None
        try:
            value = from_json(payload, "payload")
        except Unreadable as error:
            problem = str(error)
        if {type(event_id), type(event_type), type(source), type(payload)} != {str}:
            problem, value = "a column has a value of the wrong kind", None
        elif not problem and not _is_id(event_id):
            problem = "it has no id"
        if _is_sound(emitted):
            said = (one if isinstance(one, str) else "" for one in (event_type, event_id, source))
            found.append((_event(*said, emitted=emitted, payload=value, behind=trail(behind, "behind")), problem))
    return found


def _is_id(event_id: str) -> bool:
    """Whether something can be set off under this id."""
    try:
        ids.event(event_id)
    except NoonmarkError:
        return False
    return True


def _event(
    event_type: str, event_id: str, source: str, *, emitted: Micros, payload: object, behind: Chain | None
) -> Event:
    return Event(
        event_type=event_type, emitted=emitted, event_id=event_id, source=source, payload=payload, behind=behind
    )


def _streams(session: Session, tenants: Sequence[str]) -> dict[str, EventStream]:
    """The streams of some tenants, one mention for each event that is to be matched."""
    streams: dict[str, EventStream] = {}
    columns = ("tenant", "matched_until", "cursor", "matched")
    for tenant, until, cursor, matched in session.records(
        "event_streams", columns, "tenant", list(dict.fromkeys(tenants))
    ):
        if not _is_sound(until, cursor):
            continue
        waiting = session.query(
            f"SELECT emitted FROM events WHERE {_WAITING}",  # noqa: S608 - our own text
            tenant,
            until,
            tenants.count(tenant),
        )
        streams[tenant] = EventStream(
            tenant, until, cursor, number(matched, 0, low=0), [emitted for (emitted,) in reversed(waiting)]
        )
    return streams


def _commit(uow: UnitOfWork, stream: EventStream | None, states: dict[str, ScheduleState], reaction: Reaction) -> bool:
    audience = reaction.audience
    if stream is None or not stream.waiting or stream.waiting[-1] != audience.event.emitted:
        return False
    if str(stream.cursor) != audience.cursor:
        return False
    read = {one.uid: (one.revision, one.phase) for one in audience.listeners}
    # Of a schedule whose state is gone nothing can come, and the event must not wait for it.
    rows = [row for row in reaction.occurrences if row.uid in states]
    stored = [(states[row.uid], read[row.uid]) for row in rows]
    if any((state.revision, state.phase) != then for state, then in stored):
        return False
    for row in rows:
        plan_writes.add(uow, states[row.uid], row)
    if audience.next_cursor is not None:
        stream.cursor = int(audience.next_cursor)
    else:
        stream.matched_until, stream.cursor = stream.waiting.pop(), 0
        stream.matched += 1
    return True


def _forget(session: Session, found: Sequence[tuple[Any, ...]]) -> int:
    if found:
        session.delete("events", "key", [key for key, _ in found])
        fewer: dict[str, int] = {}
        for _, tenant in found:
            fewer[tenant] = fewer.get(tenant, 0) + 1
        session.execute(
            _FEWER,
            list(fewer.items()),
        )
    return len(found)
