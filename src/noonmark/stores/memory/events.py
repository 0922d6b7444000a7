"""Events: those of a tenant in the order in which they were emitted, and what becomes of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from noonmark.core.clock_trust import LEAP
from noonmark.core.filters.index import NONE, discriminators
from noonmark.core.instants import MAX_INSTANT
from noonmark.core.reactions import UnmatchedEvent
from noonmark.stores.memory import plan_writes
from noonmark.stores.memory.due_index import take
from noonmark.stores.memory.records import EventStream

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.reactions import Reaction
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def emit(uow: UnitOfWork, tenant: str, event: Event) -> bool:
    """Keep an event; False when its id is known."""
    now, stream = uow.now(), uow.streams.get(tenant)
    if stream is None:
        stream = uow.streams[tenant] = EventStream(newest=now - 1, matched_until=now - 1)
    if event.event_id in stream.ids:
        return False
    if stream.newest > now + LEAP:
        _set_back(uow, tenant, stream, now)
    stream.newest = max(now, stream.newest + 1)
    stream.ids.add(event.event_id)
    stream.waiting.append(replace(event, emitted=stream.newest))
    uow.behind.put(tenant, stream.matched_until)
    return True


def _set_back(uow: UnitOfWork, tenant: str, stream: EventStream, now: Micros) -> None:
    """Give events that a clock ahead has dated moments before now, in their order."""
    after = now + LEAP
    times = [one.emitted for one in (*stream.matched, *stream.waiting)]
    sound = [time for time in times if time <= after]
    moment = max([now - 1 - (len(times) - len(sound)), *sound[-1:]])
    for line in (stream.matched, stream.waiting):
        for place, one in enumerate(line):
            if one.emitted > after:
                moment += 1
                line[place] = replace(one, emitted=moment)
        if line is stream.matched and stream.matched_until > after:
            stream.matched_until = moment
    stream.newest = moment
    _file(uow, tenant, stream)


def unmatched(uow: UnitOfWork, limit: int) -> list[UnmatchedEvent]:
    """Events that were not matched yet, each with schedules that may want it."""
    tenants = list(take([(uow.behind, MAX_INSTANT)], limit))
    for tenant in tenants:
        uow.behind.put(tenant, uow.streams[tenant].matched_until)  # to take is to remove
    found: list[UnmatchedEvent] = []
    room = limit
    for tenant in tenants:
        cursor = uow.streams[tenant].cursor
        for event in islice(uow.streams[tenant].waiting, limit - len(found)):
            if not room:
                return found
            found.append(_audience(uow, tenant, event, cursor, room))
            room -= len(found[-1].listeners)
            cursor = ""
    return found


def commit(uow: UnitOfWork, reaction: Reaction) -> bool:
    """Write what becomes of an event; False when it, or whoever reacts to it, is no longer as it was read."""
    audience = reaction.audience
    stream = uow.streams.get(audience.tenant)
    if stream is None or not stream.waiting or stream.cursor != audience.cursor:
        return False
    if stream.waiting[0].emitted != audience.event.emitted:
        return False
    read = {one.uid: one for one in audience.listeners}
    if not all(_is_as_read(uow, read[one.uid]) for one in reaction.occurrences):
        return False
    for one in reaction.occurrences:
        plan_writes.add(uow, one)
    stream.cursor = audience.next_cursor or ""
    if audience.next_cursor is None:
        event = stream.waiting.popleft()
        stream.matched.append(event)
        stream.matched_until = event.emitted
        _file(uow, audience.tenant, stream)
    return True


def newest(uow: UnitOfWork, tenant: str, limit: int, before: Micros | None, event_type: str | None) -> list[Event]:
    """The events of a tenant, newest first."""
    stream = uow.streams.get(tenant)
    if stream is None:
        return []
    found = (
        event
        for event in chain(reversed(stream.waiting), reversed(stream.matched))
        if (before is None or event.emitted < before) and event_type in (None, event.event_type)
    )
    return list(islice(found, limit))


def one(uow: UnitOfWork, tenant: str, event_id: str) -> Event | None:
    """The event of a tenant with that id."""
    stream = uow.streams.get(tenant)
    if stream is None or event_id not in stream.ids:
        return None
    kept = chain(reversed(stream.waiting), reversed(stream.matched))
    return next(event for event in kept if event.event_id == event_id)


def prune(uow: UnitOfWork, *, before: Micros, keep: int, limit: int) -> int:
    """Forget what is old, and what is too much."""
    count = 0
    while count < limit and (oldest := uow.events_by_age.first()) is not None and oldest[0] < before:
        count += _forget(uow, oldest[2])
    while count < limit and (fullest := uow.events_by_count.first()) is not None and -fullest[0] > keep:
        count += _forget(uow, fullest[2])
    return count


def _audience(uow: UnitOfWork, tenant: str, event: Event, cursor: str, room: int) -> UnmatchedEvent:
    listening = uow.listeners.get((tenant, event.event_type), {})
    named = [fields for fields in listening if fields != NONE.fields]
    lines = [listening.get(fields, {}).get(wanted, []) for fields, wanted in (NONE, *discriminators(event, named))]
    # One more than there is room for, to know whether there are more.
    found = sorted(uid for uids in lines for uid in _after(uids, cursor, room + 1))
    page = found[:room]
    return UnmatchedEvent(
        tenant=tenant,
        event=event,
        cursor=cursor,
        listeners=tuple(uow.states[uid].schedule for uid in page),
        next_cursor=page[-1] if len(found) > room else None,
    )


def _after(uids: list[str], cursor: str, count: int) -> list[str]:
    begin = bisect_right(uids, cursor)
    return uids[begin : begin + count]


def _is_as_read(uow: UnitOfWork, read: Schedule) -> bool:
    stored = uow.states[read.uid].schedule
    return (stored.revision, stored.phase) == (read.revision, read.phase)


def _file(uow: UnitOfWork, tenant: str, stream: EventStream) -> None:
    """Put a stream where matching and pruning look, after anything about it has changed."""
    if stream.waiting:
        uow.behind.put(tenant, stream.matched_until)
    else:
        uow.behind.discard(tenant)
    if stream.matched:
        uow.events_by_age.put(tenant, stream.matched[0].emitted)
        uow.events_by_count.put(tenant, -len(stream.matched))
    else:
        uow.events_by_age.discard(tenant)
        uow.events_by_count.discard(tenant)


def _forget(uow: UnitOfWork, tenant: str) -> int:
    stream = uow.streams[tenant]
    stream.ids.discard(stream.matched.popleft().event_id)
    _file(uow, tenant, stream)
    return 1
