"""The event target: an occurrence emits an event, which may set off other schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.causation import EMITTER, chain_of_emitted, why_not_emitted
from noonmark.core.errors import NoonmarkError
from noonmark.core.event import Event
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.policies.delivery import Delivery
from noonmark.core.targets import EventTarget
from noonmark.core.triggers import EventTrigger
from noonmark.targets.endings import not_begun, succeeded, undeliverable
from noonmark.targets.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Delivered
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment, Report

MAX_THREADS = 4


class EventEmitter:
    """Delivers by emitting; the id of an event follows from its occurrence, so that a second delivery adds none."""

    def __init__(self, store: Store) -> None:
        """Nothing is emitted until it is opened. The store is asked in threads, where it may block."""
        self._store = store
        self._workers: Workers | None = None

    def routes(self) -> tuple[str, ...]:
        """One for all events."""
        return (EventTarget.route,)

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - it serves what it can already
        """There is nothing more to serve."""
        return False

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready."""
        self._now = now
        self._workers = Workers(self._work, report, None, now, MAX_THREADS)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Emit each at its time."""
        assert self._workers is not None, "open() comes first"  # noqa: S101 - a mistake of the programmer
        self._workers.submit(assignments)

    def withdraw(self) -> list[Assignment]:
        """Take back what waits for its turn; but what must not begin twice has begun as far as the store knows."""
        return [] if self._workers is None else self._workers.withdraw(_may_begin_twice)

    def close(self) -> None:
        """Begin nothing more."""
        if self._workers is not None:
            self._workers.close()

    def _work(self, assignment: Assignment) -> Delivered:
        if assignment.stop_reason is not None:
            return not_begun(assignment, assignment.stop_reason, now=self._now())
        occurrence, target = assignment.occurrence, assignment.schedule.declaration.target
        if not isinstance(target, EventTarget):
            return undeliverable(f"a {target.kind} target is not an event", now=self._now())
        trail = chain_of_emitted(occurrence)
        event = Event(
            event_type=target.event_type,
            emitted=self._now(),
            event_id=trail.event_id(occurrence.id),
            source=f"{EMITTER}{occurrence.schedule_id}",
            payload=_payload(occurrence, target),
        )
        trigger = assignment.schedule.declaration.trigger
        repeats = isinstance(trigger, EventTrigger) and trigger.matches(
            event.event_type, event.payload, source=event.source
        )
        if (why := why_not_emitted(trail, target.event_type, repeats=repeats)) is not None:
            return undeliverable(why, now=self._now())
        try:
            self._store.emit(assignment.schedule.owner.tenant, [event])
        except NoonmarkError as error:
            return undeliverable(f"the event could not be kept: {error}", now=self._now())
        return succeeded(assignment, {"event_id": event.event_id}, now=self._now())


def _payload(occurrence: Occurrence, target: EventTarget) -> Any:  # noqa: ANN401 - JSON
    """What a call that asked for the run sent along; else what the schedule says; else what came with an event."""
    if kind_of(occurrence.origin) is OriginKind.EVENT:
        return target.payload or occurrence.payload["payload"]
    return target.payload if occurrence.payload is None else occurrence.payload


def _may_begin_twice(assignment: Assignment) -> bool:
    return assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE
