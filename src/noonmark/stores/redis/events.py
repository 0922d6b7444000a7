"""Events as records: reading them, storing them and pruning them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.stores.redis.schema.schedules import EVENT_STREAMS, EVENTS
from noonmark.stores.rules.records import EventStream
from noonmark.stores.sql.events import event_values, is_sound, to_event
from noonmark.stores.sql.row_checks import number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Transaction
    from noonmark.stores.rules.unit_of_work import ReadEvent
    from noonmark.stores.sql.row_checks import DamageLog

_EMITTED = EVENTS.columns.index("emitted")


def known_ids(transaction: Transaction, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
    """Those event ids that are stored."""
    wanted = [(tenant, one) for one in event_ids if one is not None]
    return {event_id for _, event_id in transaction.records(EVENTS).look_up_many("by_id", wanted)}


def add(transaction: Transaction, tenant: str, events: Sequence[Event]) -> None:
    """Store events with rising moments."""
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    for key, event in zip(transaction.numbers("events", len(events)), events, strict=True):
        records.add(_event_record(key, tenant, event))
    stream = streams.get(tenant) or (tenant, 0, events[0].emitted - 1, 0, 0)
    streams.put((tenant, events[-1].emitted, *stream[2:]))


def moments_after(transaction: Transaction, tenant: str, after: Micros) -> list[Micros]:
    """The moments of the events after another moment, in order."""
    entries = transaction.records(EVENTS).entries("in_order", (tenant,), after=(after,))
    return [number(entry[0], 0) for entry in entries]


def last_until(transaction: Transaction, tenant: str, until: Micros) -> Micros | None:
    """The moment of the last event up to another moment."""
    found = transaction.records(EVENTS).entries("in_order", (tenant,), until=(until,), limit=1, newest_first=True)
    return number(found[0][0], 0) if found else None


def move(
    transaction: Transaction, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros
) -> None:
    """Give events other moments, and their stream with them."""
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    if moments:
        for values in records.find("in_order", (tenant,), since=(min(moments),)):
            records.put((*values[:_EMITTED], moments[values[_EMITTED]], *values[_EMITTED + 1 :]))
    stream = streams.get(tenant)
    if stream is not None:
        streams.put((tenant, newest, matched_until, *stream[3:]))


def pending_streams(transaction: Transaction, limit: int) -> tuple[list[EventStream], list[str]]:
    """The streams with unmatched events, and the tenants of those that are damaged."""
    streams: list[EventStream] = []
    damaged: list[str] = []
    records = transaction.records(EVENT_STREAMS)
    values = records.find("behind", limit=limit)
    records.note_strays("behind", limit=limit)
    for tenant, _, until, cursor, _ in values:
        if is_sound(until, cursor):
            streams.append(EventStream(tenant, until, cursor, 0, []))
        else:
            damaged.append(tenant)
    return streams, damaged


def waiting(transaction: Transaction, stream: EventStream, limit: int) -> list[ReadEvent]:
    """The first unmatched events of a stream."""
    records, after = transaction.records(EVENTS), (stream.matched_until,)
    events = records.find("in_order", (stream.tenant,), after=after, limit=limit)
    records.note_strays("in_order", (stream.tenant,), after=after, limit=limit)
    return _read(events)


def newest_moment(transaction: Transaction, tenant: str) -> Micros:
    """The moment of the newest event of a tenant, also if that was pruned."""
    stream = transaction.records(EVENT_STREAMS).get(tenant)
    if stream is not None and is_sound(*stream[1:]) and stream[1] >= stream[2]:
        return int(stream[1])
    return repair(transaction, tenant)


def repair(transaction: Transaction, tenant: str, damage: DamageLog | None = None) -> Micros:
    """Bring a stream in line with the events that exist; returns the moment of the newest.

    If it is lost how far events were matched, all of them count as matched: none is delivered twice.
    """
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    last = records.entries("in_order", (tenant,), limit=1, newest_first=True)
    ahead = number(last[0][0], 0) if last else None
    stream = streams.get(tenant)
    if stream is None:
        return transaction.now() - 1 if ahead is None else ahead
    _, _, until, cursor, matched = stream
    ahead = number(until, transaction.now() - 1) if ahead is None else ahead
    sound_until = number(until, ahead)
    newest = max(ahead, sound_until)
    if damage is not None and not is_sound(until, cursor, matched):
        damage.note("event_streams", tenant, "newest, matched_until, cursor and matched must be integers")
    matched = records.count("in_order", (tenant,), until=(sound_until,))
    streams.put((tenant, newest, sound_until, number(cursor, 0, low=0), matched))
    return newest


def newest(
    transaction: Transaction, tenant: str, limit: int, before: Micros | None, event_type: str | None
) -> list[Event]:
    """The events of a tenant, newest first."""
    index, prefix = ("in_order", ()) if event_type is None else ("by_type", (event_type,))
    until = None if before is None else (before,)
    events = transaction.records(EVENTS).find(
        index, (tenant,), prefix=prefix, before=until, limit=limit, newest_first=True
    )
    return [event for event, _ in _read(events)]


def one(transaction: Transaction, tenant: str, event_id: str) -> Event | None:
    """The event of a tenant with that id."""
    values = transaction.records(EVENTS).look_up("by_id", tenant, event_id)
    return None if values is None else next((event for event, _ in _read([values])), None)


def load_streams(transaction: Transaction, tenants: Sequence[str]) -> dict[str, EventStream]:
    """The streams of tenants, with as many waiting moments as the tenant is mentioned."""
    streams: dict[str, EventStream] = {}
    stored = transaction.records(EVENT_STREAMS).get_many((tenant,) for tenant in tenants)
    for tenant, _, until, cursor, matched in stored.values():
        if is_sound(until, cursor):
            entries = transaction.records(EVENTS).entries(
                "in_order", (tenant,), after=(until,), limit=tenants.count(tenant)
            )
            moments = [number(entry[0], 0) for entry in reversed(entries)]
            streams[tenant] = EventStream(tenant, until, cursor, number(matched, 0, low=0), moments)
    return streams


def write_streams(transaction: Transaction, streams: Iterable[EventStream]) -> None:
    """Store how far streams are matched."""
    records = transaction.records(EVENT_STREAMS)
    for stream in streams:
        stored = records.get(stream.tenant)
        if stored is not None:
            records.put((*stored[:2], stream.matched_until, stream.cursor, stream.matched))


def prune(transaction: Transaction, *, before: Micros, keep: int, limit: int) -> int:
    """Delete by age, then by number."""
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    count = _forget(transaction, _old(transaction, before, limit))
    while count < limit:
        fullest = streams.entries("by_count", after=(keep,), limit=1, newest_first=True)
        if not fullest:
            break
        tenant = fullest[0][1]
        stream = streams.get(tenant)
        if stream is None:
            break
        # Counted again: by a damaged number, everything would be deleted.
        matched = records.count("in_order", (tenant,), until=(stream[2],))
        if matched <= keep:
            streams.put((*stream[:4], matched))
            continue
        excess = min(matched - keep, limit - count)
        count += _forget(transaction, records.find("in_order", (tenant,), until=(stream[2],), limit=excess))
    return count


def _old(transaction: Transaction, before: Micros, limit: int) -> list[Values]:
    """The oldest events that are matched and from before a time."""
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    old: list[Values] = []
    after: Values | None = None
    while len(old) < limit:
        page = records.entries("by_age", after=after, before=(before,), limit=limit, hint=True)
        rows = list(records.get_many((key,) for _, key in page).values())
        matched = streams.get_many((values[1],) for values in rows)
        old += [
            values
            for values in rows
            if (stream := matched.get((values[1],))) is not None and values[_EMITTED] <= number(stream[2], 0)
        ]
        if len(page) < limit:
            break
        after = page[-1]
    return old[:limit]


def _event_record(key: int, tenant: str, event: Event) -> Values:
    emitted, event_id, event_type, source, payload, behind = event_values(event)
    return (key, tenant, event_id, event_type, source, payload, emitted, behind)


def _read(records: Iterable[Values]) -> list[ReadEvent]:
    """Events, and what is wrong with each, if it cannot be read."""
    read = (
        to_event((emitted, event_id, event_type, source, payload, behind))
        for _, _, event_id, event_type, source, payload, emitted, behind in records
    )
    return [event for event in read if event is not None]


def _forget(transaction: Transaction, events: Sequence[Values]) -> int:
    records, streams = transaction.records(EVENTS), transaction.records(EVENT_STREAMS)
    fewer: dict[str, int] = {}
    for values in events:
        records.delete(values[0])
        fewer[values[1]] = fewer.get(values[1], 0) + 1
    for tenant, count in fewer.items():
        stream = streams.get(tenant)
        if stream is not None:
            streams.put((*stream[:4], max(0, number(stream[4], 0) - count)))
    return len(events)
