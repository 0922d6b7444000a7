"""Targets whose work is a call of the store: events and pings. The call may block, so it is made in a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.causation import EMITTER, chain_of_emitted, why_not_emitted
from noonmark.core.errors import NoonmarkError
from noonmark.core.event import NOONMARK, Event
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.pings import begun, delivered, opened, restore_ping
from noonmark.core.reasons import Reason
from noonmark.core.system_events import early_ping_id
from noonmark.core.targets import EventTarget
from noonmark.core.targets.ping import PingTarget
from noonmark.core.triggers import EventTrigger
from noonmark.targets.outcomes import not_started, stopped, succeeded, undeliverable
from noonmark.targets.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.pings import Ping
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment, Report


MAX_THREADS = 4


class StoreTarget(ABC):
    """Serves one route with a few threads."""

    route: ClassVar[str]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: WorkerPool | None = None

    def routes(self) -> tuple[str, ...]:
        """Return its one route."""
        return (self.route,)

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Return False: the only route is always served."""
        return False

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Prepare the threads."""
        self._now = now
        self._pool = WorkerPool(self._run, report, None, now, MAX_THREADS)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Do the work of each when it is due."""
        assert self._pool is not None, "open() comes first"  # noqa: S101 - a programming error
        self._pool.submit(assignments)

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        return [] if self._pool is None else self._pool.withdraw()

    def close(self) -> None:
        """Start nothing more."""
        if self._pool is not None:
            self._pool.close()

    @abstractmethod
    def _run(self, assignment: Assignment) -> Delivered | Accepted:
        """Do the work, in a thread."""


class EventEmitter(StoreTarget):
    """Emits events. The event id derives from the occurrence, so a redelivery adds no second event."""

    route = EventTarget.route

    def _run(self, assignment: Assignment) -> Delivered:
        if assignment.stop_reason is not None:
            return not_started(assignment, assignment.stop_reason, now=self._now())
        occurrence, target = assignment.occurrence, assignment.schedule.declaration.target
        if not isinstance(target, EventTarget):
            return undeliverable(f"a {target.kind} target is not an event", now=self._now())
        chain = chain_of_emitted(occurrence)
        event = Event(
            event_type=target.event_type,
            emitted=self._now(),
            event_id=chain.event_id(occurrence.id),
            source=f"{EMITTER}{occurrence.schedule_id}",
            payload=_payload(occurrence, target),
        )
        trigger = assignment.schedule.declaration.trigger
        repeats = isinstance(trigger, EventTrigger) and trigger.matches(
            event.event_type, event.payload, source=event.source
        )
        if (why := why_not_emitted(chain, target.event_type, repeats=repeats)) is not None:
            return undeliverable(why, now=self._now())
        try:
            self._store.emit(assignment.schedule.owner.tenant, [event])
        except NoonmarkError as error:
            return undeliverable(f"the event could not be stored: {error}", now=self._now())
        return succeeded(assignment, {"event_id": event.event_id}, now=self._now())


def _payload(occurrence: Occurrence, target: EventTarget) -> Any:
    """Return the payload sent by the caller of the run, else the schedule's, else that of the triggering event."""
    if kind_of(occurrence.origin) is OriginKind.EVENT:
        return target.payload or occurrence.payload["payload"]
    return target.payload if occurrence.payload is None else occurrence.payload


class PingReceiver(StoreTarget):
    """Opens occurrences for pings, and applies those that came early."""

    route = PingTarget.route

    def _run(self, assignment: Assignment) -> Delivered | Accepted:
        if assignment.stop_reason is not None:
            return not_started(assignment, assignment.stop_reason, now=self._now())
        occurrence, schedule = assignment.occurrence, assignment.schedule
        if not isinstance(schedule.declaration.target, PingTarget):
            return undeliverable(f"a {schedule.declaration.target.kind} target is not a ping", now=self._now())
        try:
            end, start = self._early(assignment, is_start=False), self._early(assignment, is_start=True)
        except NoonmarkError:  # another node, or this one later, opens it
            return stopped(assignment, Reason.LEASE_LOST, None, now=self._now())
        now = self._now()
        if end is not None:
            return delivered(end, occurrence, now=now)
        return opened(schedule, now=now) if start is None else begun(schedule, now=now)

    def _early(self, assignment: Assignment, *, is_start: bool) -> Ping | None:
        """Return the ping that came before the occurrence was open, if there is one."""
        event_id = early_ping_id(assignment.occurrence.id, is_start=is_start)
        event = self._store.event(assignment.schedule.owner.tenant, event_id)
        return None if event is None or event.source != NOONMARK else restore_ping(event.payload)
