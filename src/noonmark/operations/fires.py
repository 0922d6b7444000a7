"""The next fires of a schedule or a trigger. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.triggers import EventTrigger, fires

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store


def fires_of(trigger: Trigger | None, count: int, *, after: Micros | None, now: Micros) -> list[datetime]:
    """The next fires of a trigger, as if it were declared now: one at this very moment is included."""
    if trigger is None or isinstance(trigger, EventTrigger):
        return []
    return fires(trigger, from_micros(now - 1 if after is None else after), count)


def fires_of_schedule(
    store: Store, stored: StoredSchedule, count: int, *, after: Micros | None, now: Micros
) -> list[datetime]:
    """The next fires of a schedule, limited by the runs it has left; fires that are due and not started come first."""
    declared = stored.schedule.declaration
    since = now if after is None else after
    trigger = declared.trigger
    if trigger is None or isinstance(trigger, EventTrigger) or stored.schedule.phase is SchedulePhase.COMPLETED:
        return []
    due = _due(store, stored.schedule, now)
    if declared.max_runs is not None:
        skipped = trigger.count_between(from_micros(now), from_micros(max(now, since)))
        left = declared.max_runs - stored.counters.admitted - (0 if after is None else len(due) + skipped)
        count = min(count, max(0, left))
    begun = [from_micros(time) for time in due if after is None]
    return [*begun, *fires(trigger, from_micros(since), count)][:count]


def _due(store: Store, schedule: Schedule, now: Micros) -> list[Micros]:
    """The fires up to now that have yet to run."""
    snapshot = store.snapshot(schedule.uid) if schedule.phase is SchedulePhase.ACTIVE else None
    if snapshot is None:
        return []
    planned = plan(snapshot, now=now, lookahead=0)
    nominal = {one.id: one.nominal for one in snapshot.projections if one.id not in planned.gone}
    nominal |= {one.id: one.nominal for one in planned.planned}
    return sorted(time for time in nominal.values() if time <= now)
