"""Event: no clock at all; it fires when a matching event is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.errors import InvalidTrigger, Problem, refusal
from noonmark.core.filters.match import Matcher, Unmet, compile_filters
from noonmark.core.json_values import event_type, json_copy
from noonmark.core.triggers.trigger import Trigger, instant_argument

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from noonmark.core.instants import Micros

MAX_EVENT_TYPES = 100


@dataclass(frozen=True, slots=True, init=False, repr=False)
class EventTrigger(Trigger):
    """Matches events of some types whose payload passes all filters, within its bounds."""

    event_types: tuple[str, ...]
    filters: dict[str, Any] = field(hash=False)
    _matcher: Matcher = field(compare=False)

    type: ClassVar[str] = "event"

    def __init__(
        self,
        event_type: str | Iterable[str],
        filters: Mapping[str, Any] | None = None,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter_seconds: float | timedelta = 0,
    ) -> None:
        """One type or several; without filters every event of the type matches."""
        matcher = compile_filters({} if filters is None else filters)
        self._set(event_types=event_types(event_type), filters=json_copy(dict(filters or {})), _matcher=matcher)
        self._set_bounds(start_at, end_at, jitter_seconds)

    def matches(self, event_type: str, payload: object, *, source: str = "", at: datetime | None = None) -> bool:
        """Whether it matches the event; with `at`, the time of the event, also whether that is within its bounds."""
        if at is not None and not self.within_bounds(instant_argument("at", at)):
            return False
        return event_type in self.event_types and self._matcher(payload, event_type=event_type, source=source)

    def unmet(self, event_type: str, payload: object, *, source: str = "") -> Unmet | None:
        """The first filter that such an event does not pass; None when it passes all of them."""
        return self._matcher.unmet(payload, event_type=event_type, source=source)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the document; filters are compiled again, because functions cannot be pickled."""
        make = partial(EventTrigger, start_at=self.start_at, end_at=self.end_at, jitter_seconds=self.jitter_seconds)
        return make, (self.event_types, self.filters)

    def to_document(self) -> dict[str, Any]:
        """One type as text, several as a list; filters only if there are any."""
        types = self.event_types
        document: dict[str, Any] = {"type": self.type, "event_type": types[0] if len(types) == 1 else list(types)}
        if self.filters:
            document["filters"] = json_copy(self.filters)
        return document | self._bounds_document()

    def _next(self, after: Micros) -> Micros | None:  # noqa: ARG002 - events have no times of their own
        return None

    def _previous(self, before: Micros) -> Micros | None:  # noqa: ARG002 - as above
        return None

    def _count(self, after: Micros, until: Micros) -> int:  # noqa: ARG002 - as above
        return 0


def event_types(given: object) -> tuple[str, ...]:
    """One event type or a list of them, each once, in the order given."""
    listed = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if not 1 <= len(listed) <= MAX_EVENT_TYPES:
        raise InvalidTrigger(f"must hold 1 to {MAX_EVENT_TYPES} event types, not {len(listed):,}", field="event_type")
    types: dict[str, None] = {}
    problems: list[Problem] = []
    for index, value in enumerate(listed):
        try:
            types[event_type(value)] = None
        except ValueError as error:
            where = "event_type" if given is value else f"event_type[{index}]"
            problems.append(Problem(where, str(error), InvalidTrigger.code))
    if problems:
        raise refusal(problems)
    return tuple(types)
