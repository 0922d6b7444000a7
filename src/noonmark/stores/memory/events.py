"""The events of all tenants, in the order in which they were emitted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from noonmark.core.instants import MAX_INSTANT
from noonmark.stores.memory.due_index import DueIndex, take
from noonmark.stores.rules.records import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.stores.rules.unit_of_work import ReadEvent


@dataclass(slots=True, eq=False)
class TenantEvents:
    """The events of a tenant, oldest first."""

    newest: Micros
    """The moment of the newest, also if that was pruned."""
    matched_until: Micros
    cursor: int = 0
    waiting: deque[Event] = field(default_factory=deque)
    matched: deque[Event] = field(default_factory=deque)
    ids: set[str | None] = field(default_factory=set)


class EventLog:
    """Finds, stores and prunes events; the rules decide about their moments and matching."""

    def __init__(self, now: Callable[[], Micros]) -> None:
        self.streams: dict[str, TenantEvents] = {}
        self.behind: DueIndex[str] = DueIndex()
        """The tenants that have events to match, by the moment they are matched up to."""
        self._now = now
        self._by_age: DueIndex[str] = DueIndex()
        self._by_count: DueIndex[str] = DueIndex()

    def known_ids(self, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
        """Those event ids that are stored."""
        stream = self.streams.get(tenant)
        return set() if stream is None else stream.ids.intersection(event_ids)

    def newest_moment(self, tenant: str) -> Micros:
        """The moment of the newest event of a tenant; just before now, if there was none."""
        stream = self.streams.get(tenant)
        return self._now() - 1 if stream is None else stream.newest

    def moments(self, tenant: str) -> Iterator[Micros]:
        """The moments of the events of a tenant, in order."""
        stream = self.streams.get(tenant)
        return (one.emitted for one in (() if stream is None else chain(stream.matched, stream.waiting)))

    def move(self, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros) -> None:
        """Give events other moments."""
        stream = self.streams[tenant]
        for line in (stream.matched, stream.waiting):
            for place, event in enumerate(line):
                if event.emitted in moments:
                    line[place] = replace(event, emitted=moments[event.emitted])
        stream.newest, stream.matched_until = newest, matched_until
        self._file(tenant, stream)

    def add(self, tenant: str, events: Sequence[Event]) -> None:
        """Store events with rising moments."""
        stream = self.streams.get(tenant)
        if stream is None:
            before = events[0].emitted - 1
            stream = self.streams[tenant] = TenantEvents(newest=before, matched_until=before)
        stream.newest = events[-1].emitted
        stream.ids.update(one.event_id for one in events)
        stream.waiting.extend(events)
        self.behind.put(tenant, stream.matched_until)

    def pending_streams(self, limit: int) -> list[EventStream]:
        """The streams with unmatched events, those that lag most first."""
        tenants = list(take([(self.behind, MAX_INSTANT)], limit))
        for tenant in tenants:
            self.behind.put(tenant, self.streams[tenant].matched_until)  # to take is to remove
        return [self._record(tenant, 0) for tenant in tenants]

    def unmatched(self, tenant: str, limit: int) -> list[ReadEvent]:
        """The first unmatched events of a tenant."""
        return [(event, "") for event in islice(self.streams[tenant].waiting, limit)]

    def load(self, tenants: Sequence[str]) -> dict[str, EventStream]:
        """The streams of tenants, with as many waiting moments as the tenant is mentioned."""
        return {
            tenant: self._record(tenant, tenants.count(tenant))
            for tenant in dict.fromkeys(tenants)
            if tenant in self.streams
        }

    def match(self, matched: EventStream) -> None:
        """Store how far a stream is matched."""
        stream = self.streams[matched.tenant]
        stream.matched_until, stream.cursor = matched.matched_until, matched.cursor
        while stream.waiting and stream.waiting[0].emitted <= matched.matched_until:
            stream.matched.append(stream.waiting.popleft())
        self._file(matched.tenant, stream)

    def newest(self, tenant: str, limit: int, before: Micros | None, event_type: str | None) -> list[Event]:
        """The events of a tenant, newest first."""
        events = (
            event
            for event in self._newest_first(tenant)
            if (before is None or event.emitted < before) and event_type in (None, event.event_type)
        )
        return list(islice(events, limit))

    def find(self, tenant: str, event_id: str) -> Event | None:
        """The event of a tenant with that id."""
        if not self.known_ids(tenant, [event_id]):
            return None
        return next(event for event in self._newest_first(tenant) if event.event_id == event_id)

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Delete matched events that are old, then those of tenants that have too many."""
        count = 0
        while count < limit and (oldest := self._by_age.first()) is not None and oldest[0] < before:
            count += self._delete_oldest(oldest[2])
        while count < limit and (fullest := self._by_count.first()) is not None and -fullest[0] > keep:
            count += self._delete_oldest(fullest[2])
        return count

    def _newest_first(self, tenant: str) -> Iterator[Event]:
        stream = self.streams.get(tenant)
        return iter(()) if stream is None else chain(reversed(stream.waiting), reversed(stream.matched))

    def _record(self, tenant: str, count: int) -> EventStream:
        stream = self.streams[tenant]
        waiting = [one.emitted for one in islice(stream.waiting, count)]
        return EventStream(tenant, stream.matched_until, stream.cursor, len(stream.matched), waiting[::-1])

    def _delete_oldest(self, tenant: str) -> int:
        stream = self.streams[tenant]
        stream.ids.discard(stream.matched.popleft().event_id)
        self._file(tenant, stream)
        return 1

    def _file(self, tenant: str, stream: TenantEvents) -> None:
        """Put a stream where matching and pruning look, after anything about it has changed."""
        if stream.waiting:
            self.behind.put(tenant, stream.matched_until)
        else:
            self.behind.discard(tenant)
        if stream.matched:
            self._by_age.put(tenant, stream.matched[0].emitted)
            self._by_count.put(tenant, -len(stream.matched))
        else:
            self._by_age.discard(tenant)
            self._by_count.discard(tenant)
