"""What the memory store holds for a schedule besides its state: the schedule itself and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase
from noonmark.ports.records import StoredSchedule
from noonmark.stores.rules.records import SCHEDULE_PHASES
from noonmark.stores.rules.snapshots import counters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import Subscription

Listed = tuple[int, str, str]
"""The position of a schedule in the list of its tenant: creation, id, uid."""


@dataclass(slots=True, eq=False)
class ScheduleEntry:
    """A schedule with its state and its rows."""

    state: ScheduleState
    schedule: Schedule
    live: dict[str, Row] = field(default_factory=dict)
    ended: dict[str, Row] = field(default_factory=dict)
    upstreams: tuple[str, ...] = ()
    subscriptions: list[Subscription] = field(default_factory=list)

    @property
    def rows(self) -> Iterator[Row]:
        """All rows."""
        yield from self.live.values()
        yield from self.ended.values()

    def current_schedule(self) -> Schedule:
        """The schedule with the phase of its state."""
        state, schedule = self.state, self.schedule
        if state.phase == schedule.phase and state.updated == schedule.updated:
            return schedule
        return evolve(schedule, phase=SCHEDULE_PHASES[state.phase], updated=state.updated)

    def to_stored(self, now: Micros) -> StoredSchedule:
        """The schedule as callers read it."""
        rows = [
            row
            for row in self.live.values()
            if row.phase == Phase.CLAIMED
            or (
                row.phase == Phase.PENDING
                and row.ready is not None
                and (row.ready <= now or row.waiting_for is None)
                and not row.held
            )
        ]
        return StoredSchedule(
            schedule=self.schedule,
            counters=counters(self.state),
            next_due=min((row.due for row in rows), default=None),
            next_own=min((row.due for row in rows if row.is_own), default=None),
        )


def listed_at(schedule: Schedule) -> Listed:
    """The position of a schedule in the list of its tenant."""
    return (schedule.created, schedule.schedule_id, schedule.uid)
