"""Audiences: events, each with a page of the schedules that may want it, while there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.filters.index import NONE, discriminators
from noonmark.core.reactions import UnmatchedEvent
from noonmark.stores.sql import subscriptions
from noonmark.stores.sql.records import Unreadable
from noonmark.stores.sql.subscriptions import EventQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.event import Event
    from noonmark.stores.sql.unit_of_work import UnitOfWork

Read = tuple["Event", str]
"""An event, and what is wrong with it, if it cannot be read."""


class Pages:
    """Events with the keys of their listeners; the schedules are read together in the end."""

    def __init__(self, uow: UnitOfWork, limit: int) -> None:
        """So many events at most, and as many listeners in all."""
        self._uow, self._limit, self._room = uow, limit, limit
        self._found: list[tuple[str, Event, str, int, list[int], int | None]] = []

    @property
    def room(self) -> int:
        """How many more events there may be: none, when there can be no more listeners."""
        return self._limit - len(self._found) if self._room else 0

    def add(self, tenant: str, events: Sequence[Read], begin: int) -> None:
        """The first events of a tenant, as many as there is room for; the first of them from a cursor on.

        They are asked about in portions, each as large as all before: what is found for an event for which there is
        no room is found in vain.
        """
        hall = _Hall(self._uow, tenant, self._room + 1)
        done = 0
        while done < len(events) and self._room:
            portion = events[done : done + max(1, len(self._found))]
            asked = hall.ask(portion, begin)
            for (event, problem), wanted in zip(portion, asked, strict=True):
                if not self._room:
                    break
                keys = hall.heard(wanted)
                page = keys[: self._room]
                following = page[-1] if len(keys) > len(page) else None
                self._room -= len(page)
                self._found.append((tenant, event, problem, begin, page, following))
                begin = 0
            done += len(portion)

    def audiences(self) -> list[UnmatchedEvent]:
        """All of them, with those of their schedules that can be read."""
        uow = self._uow
        states = uow.states_of({key for *_, keys, _ in self._found for key in keys})
        read = uow.schedule_cache.read(uow.session, {state.schedule: state.version for state in states})
        sound = {key: one for key, one in read.items() if not isinstance(one, Unreadable)}
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


class _Hall:
    """Those of a tenant who listen, as far as they were asked for: a burst is of few types, and for few of them."""

    def __init__(self, uow: UnitOfWork, tenant: str, limit: int) -> None:
        self._session, self._tenant, self._limit = uow.session, tenant, limit
        self._fields: dict[str, list[str]] = {}
        self._known: dict[EventQuestion, list[int]] = {}

    def ask(self, events: Sequence[Read], begin: int) -> list[list[EventQuestion]]:
        """Who may want each of some events, the first of them from a cursor on."""
        types = {event.event_type for event, problem in events if not problem} - self._fields.keys()
        if types:
            self._fields |= subscriptions.fields_of(self._session, self._tenant, types)
        asked = [
            [] if problem else self._asked(event, 0 if place else begin)
            for place, (event, problem) in enumerate(events)
        ]
        unknown = list({one: None for each in asked for one in each if one not in self._known})
        if unknown:
            found = subscriptions.listeners(self._session, self._tenant, unknown, self._limit)
            self._known.update(zip(unknown, found, strict=True))
        return asked

    def heard(self, asked: Sequence[EventQuestion]) -> list[int]:
        """The keys of those that were asked for, in order: all, or more than there is room for."""
        return sorted(key for one in asked for key in self._known[one])

    def _asked(self, event: Event, after: int) -> list[EventQuestion]:
        own = (NONE, *discriminators(event, self._fields[event.event_type]))
        return [EventQuestion(event.event_type, one, after) for one in own]
