"""The ping target: an occurrence waits for the calls of a job that runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.core.event import NOONMARK
from noonmark.core.pings import begun, delivered, opened, restore_ping
from noonmark.core.reasons import Reason
from noonmark.core.system_events import early_ping_id
from noonmark.core.targets.ping import PingTarget
from noonmark.targets.outcomes import not_started, stopped, undeliverable
from noonmark.targets.store_target import StoreTarget

if TYPE_CHECKING:
    from noonmark.core.pings import Ping
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.target import Assignment


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
