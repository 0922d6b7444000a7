"""Events in the tables: reading them, storing them and pruning them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core import ids
from noonmark.core.errors import NoonmarkError
from noonmark.core.event import Event
from noonmark.stores.rules.records import EventStream, Unreadable, unpack_chain
from noonmark.stores.sql.records import from_json, to_json
from noonmark.stores.sql.row_checks import FURTHEST, number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.event import Chain
    from noonmark.core.instants import Micros
    from noonmark.stores.rules.unit_of_work import ReadEvent
    from noonmark.stores.sql.row_checks import DamageLog
    from noonmark.stores.sql.session import Session, Values

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
"""Damaged moments are left out: one beyond all times would, once matched, leave none for later events, and a fraction
cannot be read and would stay first for ever."""
_LAST = f"SELECT max(emitted) FROM events WHERE tenant = ? AND emitted <= {FURTHEST}"
_AHEAD = f"SELECT key, emitted FROM events WHERE tenant = ? AND emitted > ? AND emitted <= {FURTHEST} ORDER BY emitted"
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
"""
_COUNT = """
    SELECT count(*) FROM events
    WHERE tenant = ? AND emitted <= (SELECT matched_until FROM event_streams WHERE tenant = ?)
"""


def known_ids(session: Session, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
    """Those event ids that are stored."""
    return {event_id for (event_id,) in session.query(_KNOWN, list(event_ids), tenant)}


def add(session: Session, tenant: str, events: Sequence[Event]) -> None:
    """Store events with rising moments."""
    session.insert("events", COLUMNS, [(*event_values(event), tenant) for event in events])
    session.execute(_ADVANCE, tenant, events[-1].emitted, events[0].emitted - 1)


def moments_after(session: Session, tenant: str, after: Micros) -> list[Micros]:
    """The moments of the events after another moment, in order."""
    return [emitted for _, emitted in session.query(_AHEAD, tenant, after)]


def last_until(session: Session, tenant: str, until: Micros) -> Micros | None:
    """The moment of the last event up to another moment."""
    [(last,)] = session.query(_LAST_UNTIL, tenant, until)
    return last if is_sound(last) else None


def move(session: Session, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, until: Micros) -> None:
    """Give events other moments, and their stream with them."""
    if moments:
        rows = session.query(_AHEAD, tenant, min(moments) - 1)
        session.update("events", ("key", "emitted"), [(key, moments[emitted]) for key, emitted in rows])
    session.update("event_streams", ("tenant", "newest", "matched_until"), [(tenant, newest, until)])


def pending_streams(session: Session, limit: int) -> tuple[list[EventStream], list[object]]:
    """The streams with unmatched events, and the tenants of those that are damaged."""
    streams: list[EventStream] = []
    damaged: list[object] = []
    for tenant, until, cursor in session.query(_BEHIND, limit):
        if is_sound(until, cursor):
            streams.append(EventStream(tenant, until, cursor, 0, []))
        else:
            damaged.append(tenant)
    return streams, damaged


def waiting(session: Session, stream: EventStream, limit: int) -> list[ReadEvent]:
    """The first unmatched events of a stream."""
    return _read(session, _WAITING, (stream.tenant, stream.matched_until, limit))


def repair(session: Session, tenants: Sequence[object], damage: DamageLog) -> None:
    """Bring streams that claim to have unmatched events, and have none, in line with the events that exist."""
    for tenant in tenants:
        if not isinstance(tenant, str):  # a damaged name belongs to no tenant
            session.execute("UPDATE event_streams SET newest = 0, matched_until = 0 WHERE tenant = ?", tenant)
            continue
        newest_moment(session, tenant, damage)


def is_sound(*numbers: object) -> bool:
    """Whether moments and counts are numbers within bounds."""
    return all(type(one) is int and abs(one) <= FURTHEST for one in numbers)


def newest_moment(session: Session, tenant: str, damage: DamageLog | None = None) -> Micros:
    """The moment of the newest event of a tenant; a damaged stream is mended.

    If it is lost how far events were matched, all of them count as matched: none is delivered twice.
    """
    now = session.now()
    rows = session.query(_STREAM, tenant)
    if not rows:
        [(last,)] = session.query(_LAST, tenant)
        return number(last, now - 1)
    [(newest, until, cursor, matched)] = rows
    if is_sound(newest, until, cursor, matched) and newest >= until and matched >= 0 and damage is None:
        return int(newest)
    [(last,)] = session.query(_LAST, tenant)
    ahead = number(last, number(until, now - 1))
    sound_until = number(until, ahead)
    newest = max(ahead, sound_until)
    if damage is not None and not is_sound(until, cursor, matched):
        damage.note("event_streams", tenant, "newest, matched_until, cursor and matched must be integers")
    [(matched,)] = session.query(_MATCHED, tenant, sound_until)
    mended = (tenant, newest, sound_until, number(cursor, 0, low=0), matched)
    session.update("event_streams", ("tenant", "newest", "matched_until", "cursor", "matched"), [mended])
    return newest


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
    """Delete by age, then by number."""
    count = _forget(session, session.query(_OLD, before, limit))
    while count < limit and (fullest := session.query(_FULLEST, keep)):
        [(tenant, _)] = fullest
        # Counted again: by a damaged number, everything would be deleted.
        [(matched,)] = session.query(_COUNT, tenant, tenant)
        if matched <= keep:
            session.execute("UPDATE event_streams SET matched = ? WHERE tenant = ?", matched, tenant)
            continue
        rows = session.query(_OLDEST, tenant, tenant, min(matched - keep, limit - count))
        if not rows:  # they were deleted by hand
            break
        count += _forget(session, rows)
    return count


def _read(session: Session, where: str, parameters: tuple[Any, ...]) -> list[ReadEvent]:
    """Events, and what is wrong with each, if it cannot be read."""
    inner = f"(SELECT {_SELECTED} FROM events WHERE {where})"
    rows = session.gather(_SELECTED, inner, *parameters)
    return [event for columns in rows if (event := to_event(columns)) is not None]


def to_event(columns: Values) -> ReadEvent | None:
    """The event of a record, and what is wrong with it, if it cannot be read; None if it has no moment."""
    emitted, event_id, event_type, source, payload, behind = columns
    problem, value = "", None
    try:
        value = from_json(payload, "payload")
    except Unreadable as error:
        problem = str(error)
    if {type(event_id), type(event_type), type(source), type(payload)} != {str}:
        problem, value = "a column has a value of the wrong kind", None
    elif not problem and not _is_id(event_id):
        problem = "it has no id"
    if not is_sound(emitted):
        return None
    texts = (one if isinstance(one, str) else "" for one in (event_type, event_id, source))
    chain = unpack_chain(behind, "behind", from_json)
    return _event(*texts, emitted=emitted, payload=value, behind=chain), problem


def event_values(event: Event) -> Values:
    """The columns of an event that `to_event` reads."""
    return (
        event.emitted,
        event.event_id,
        event.event_type,
        event.source,
        "null" if event.payload is None else to_json(event.payload),
        None if event.behind is None else to_json(event.behind.to_document()),
    )


def _is_id(event_id: str) -> bool:
    """Whether an occurrence can have this event id in its origin."""
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


def load_streams(session: Session, tenants: Sequence[str]) -> dict[str, EventStream]:
    """The streams of tenants, with as many waiting moments as the tenant is mentioned."""
    streams: dict[str, EventStream] = {}
    columns = ("tenant", "matched_until", "cursor", "matched")
    for tenant, until, cursor, matched in session.records(
        "event_streams", columns, "tenant", list(dict.fromkeys(tenants))
    ):
        if not is_sound(until, cursor):
            continue
        waiting = session.query(
            f"SELECT emitted FROM events WHERE {_WAITING}",
            tenant,
            until,
            tenants.count(tenant),
        )
        streams[tenant] = EventStream(
            tenant, until, cursor, number(matched, 0, low=0), [emitted for (emitted,) in reversed(waiting)]
        )
    return streams


def write_streams(session: Session, streams: Iterable[EventStream]) -> None:
    """Store how far streams are matched."""
    names = ("tenant", "matched_until", "cursor", "matched")
    session.update(
        "event_streams", names, [(one.tenant, one.matched_until, one.cursor, one.matched) for one in streams]
    )


def _forget(session: Session, rows: Sequence[tuple[Any, ...]]) -> int:
    if rows:
        session.delete("events", "key", [key for key, _ in rows])
        fewer: dict[str, int] = {}
        for _, tenant in rows:
            fewer[tenant] = fewer.get(tenant, 0) + 1
        session.execute(
            _FEWER,
            list(fewer.items()),
        )
    return len(rows)
