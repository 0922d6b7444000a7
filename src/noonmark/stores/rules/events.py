"""Events: those of a tenant in the order in which they were emitted, and their fan-out to subscribed schedules.

How far the events of a tenant are matched is one moment per stream: to match an event is to move that moment on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.causation import UnmatchedEvent
from noonmark.core.clock_trust import LEAP
from noonmark.core.filters.index import NONE, discriminators
from noonmark.core.schedule import Owner
from noonmark.stores.rules import plan_writes, quotas, step_ends
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.unit_of_work import ListenerQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.causation import Reaction
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.stores.rules.records import EventStream, ScheduleState
    from noonmark.stores.rules.unit_of_work import ReadEvent, UnitOfWork


def emit(
    uow: UnitOfWork, tenant: str, events: Sequence[Event], *, user: str = "", limits: Sequence[Quota] = ()
) -> list[bool]:
    """Store events, in their order; False where the id is known, and QuotaExceeded if the others do not fit."""
    stored_ids = uow.known_event_ids(tenant, [one.event_id for one in events])
    if limits and (new := {one.event_id for one in events} - stored_ids):
        quotas.check_queue(uow, limits, Owner(tenant=tenant, user=user), 1)
        quotas.take_events(uow, limits, tenant, user, len(new))
    now, newest = uow.now(), uow.newest_moment(tenant)
    if newest > now + LEAP:
        newest = _set_back(uow, tenant, now)
    answers, added = [], []
    for event in events:
        answers.append(event.event_id not in stored_ids)
        if answers[-1]:
            stored_ids.add(event.event_id)
            newest = max(now, newest + 1)
            added.append(replace(event, emitted=newest))
    if added:
        uow.add_events(tenant, added)
    return answers


def _set_back(uow: UnitOfWork, tenant: str, now: Micros) -> Micros:
    """Give events from a clock that was ahead moments before now, in their order; returns that of the newest.

    Otherwise all later events would have to be dated ahead as well, for years.
    """
    after = now + LEAP
    ahead = uow.events_after(tenant, after)
    last = uow.last_event_until(tenant, after)
    base = now - 1 - len(ahead)
    base = base if last is None else max(base, last)
    moments = {moment: base + place for place, moment in enumerate(ahead, 1)}
    stream = uow.load_streams([tenant]).get(tenant)
    until = after if stream is None else stream.matched_until
    if until > after:
        until = max((moment for emitted, moment in moments.items() if emitted <= until), default=base)
    newest = base + len(ahead)
    uow.move_events(tenant, moments, newest, until)
    return newest


def unmatched(uow: UnitOfWork, limit: int) -> list[UnmatchedEvent]:
    """Events that are not matched yet, each with a page of the schedules that may match it."""
    pages = _Pages(uow, limit)
    for stream in uow.pending_streams(limit):
        if not pages.room:
            break
        pages.add(stream, uow.unmatched_events(stream, pages.room))
    return pages.read()


def commit(uow: UnitOfWork, reactions: Sequence[Reaction]) -> list[bool]:
    """Write the reactions to events; False where an event or a schedule that reacts has changed since it was read."""
    streams = uow.load_streams([one.audience.tenant for one in reactions])
    occurrences = [one for reaction in reactions for one in reaction.occurrences]
    states = uow.load_states({one.uid for one in occurrences}) if occurrences else {}
    uow.load_rows(one.id for one in occurrences)
    uow.reserve({one.id for one in occurrences})
    written = [_commit(uow, streams.get(one.audience.tenant), states, one) for one in reactions]
    if any(written):
        uow.changed_streams(streams.values())
        audiences = [one.audience for one, is_written in zip(reactions, written, strict=True) if is_written]
        matched = [one for one in audiences if one.next_cursor is None and not one.problem]
        if matched:
            step_ends.end_waits(uow, [(one.tenant, one.event) for one in matched])
    return written


def _commit(
    uow: UnitOfWork, stream: EventStream | None, states: Mapping[str, ScheduleState], reaction: Reaction
) -> bool:
    audience = reaction.audience
    if stream is None or not stream.waiting or stream.waiting[-1] != audience.event.emitted:
        return False
    if str(stream.cursor) != audience.cursor:
        return False
    read = {one.uid: (one.revision, one.phase) for one in audience.listeners}
    # A schedule whose state is gone cannot react, and the event must not wait for it.
    occurrences = [one for one in reaction.occurrences if one.uid in states]
    stored = [(states[one.uid], read[one.uid]) for one in occurrences]
    if any((state.revision, state.phase) != then for state, then in stored):
        return False
    for occurrence in occurrences:
        plan_writes.add(uow, states[occurrence.uid], occurrence)
    if audience.next_cursor is not None:
        stream.cursor = int(audience.next_cursor)
    else:
        stream.matched_until, stream.cursor = stream.waiting.pop(), 0
        stream.matched += 1
    return True


class _Pages:
    """Events with the keys of their listeners; the schedules are read together at the end."""

    def __init__(self, uow: UnitOfWork, limit: int) -> None:
        """At most `limit` events, and as many listeners in all."""
        self._uow, self._limit, self._room = uow, limit, limit
        self._found: list[tuple[str, Event, str, int, list[int], int | None]] = []

    @property
    def room(self) -> int:
        """How many more events fit: none, if no more listeners do."""
        return self._limit - len(self._found) if self._room else 0

    def add(self, stream: EventStream, events: Sequence[ReadEvent]) -> None:
        """Add the first events of a tenant, as many as fit; the first of them from its cursor on.

        Listeners are looked up in portions, each as large as all before, so that few lookups are wasted.
        """
        listeners = _Listeners(self._uow, stream.tenant, self._room + 1)
        begin, done = stream.cursor, 0
        while done < len(events) and self._room:
            portion = events[done : done + max(1, len(self._found))]
            listening = listeners.look_up(portion, begin)
            for (event, problem), questions in zip(portion, listening, strict=True):
                if not self._room:
                    break
                keys = listeners.keys(questions)
                page = keys[: self._room]
                following = page[-1] if len(keys) > len(page) else None
                self._room -= len(page)
                self._found.append((stream.tenant, event, problem, begin, page, following))
                begin = 0
            done += len(portion)

    def read(self) -> list[UnmatchedEvent]:
        """All events, with those of their schedules that can be read."""
        states = self._uow.states_of({key for *_, keys, _ in self._found for key in keys})
        schedules = self._uow.schedules_of(states)
        sound = {key: one for key, one in schedules.items() if not isinstance(one, Unreadable)}
        return [
            UnmatchedEvent(
                tenant=tenant,
                event=event,
                cursor=str(begin),
                listeners=tuple(sound[key] for key in keys if key in sound),
                next_cursor=None if following is None else str(following),
                problem=problem,
            )
            for tenant, event, problem, begin, keys, following in self._found
        ]


class _Listeners:
    """The listeners of a tenant, as far as they were looked up: a burst has few types of events."""

    def __init__(self, uow: UnitOfWork, tenant: str, limit: int) -> None:
        self._uow, self._tenant, self._limit = uow, tenant, limit
        self._fields: dict[str, list[str]] = {}
        self._known: dict[ListenerQuestion, list[int]] = {}

    def look_up(self, events: Sequence[ReadEvent], begin: int) -> list[list[ListenerQuestion]]:
        """Look up the schedules that may match events, the first of them from a cursor on; returns their queries."""
        types = {event.event_type for event, problem in events if not problem} - self._fields.keys()
        if types:
            self._fields |= self._uow.listener_fields(self._tenant, types)
        questions = [
            [] if problem else self._questions(event, 0 if place else begin)
            for place, (event, problem) in enumerate(events)
        ]
        unknown = list({one: None for each in questions for one in each if one not in self._known})
        if unknown:
            answers = self._uow.listeners(self._tenant, unknown, self._limit)
            self._known.update(zip(unknown, answers, strict=True))
        return questions

    def keys(self, questions: Sequence[ListenerQuestion]) -> list[int]:
        """The keys of the schedules that were asked for, in order: all, or more than fit."""
        return sorted(key for one in questions for key in self._known[one])

    def _questions(self, event: Event, after: int) -> list[ListenerQuestion]:
        own = (NONE, *discriminators(event, self._fields[event.event_type]))
        return [ListenerQuestion(event.event_type, one, after) for one in own]
