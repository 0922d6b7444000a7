"""Previews: the next fires of a schedule or a trigger, with the trigger in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.forecast import forecast, month_of
from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.targets import AGENT_KINDS, parse_target
from noonmark.core.triggers import EventTrigger, fires, parse_trigger
from noonmark.operations import schedule_edits
from noonmark.operations.target_policy import target_warnings
from noonmark.operations.usage import fires_until, schedule_forecast

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.operations.models.arguments import PreviewRequest
    from noonmark.operations.service import Caller, Service
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


def preview(service: Service, caller: Caller, arguments: PreviewRequest) -> dict[str, Any]:
    """Preview the next fires of a schedule or a trigger, with the trigger in words."""
    from noonmark.core.describe import describe  # noqa: PLC0415 - loads cron-descriptor

    schedule_id, document, after = arguments.schedule_id, arguments.trigger, arguments.after
    if (schedule_id is None) == (document is None):
        raise InvalidRequest("name either a schedule_id or a trigger", field="trigger")
    if schedule_id is not None and arguments.target is not None:
        raise InvalidRequest("belongs to a trigger; a schedule has its own", field="target")
    now = service.store.clock()
    if schedule_id is None:
        trigger: Trigger | None = parse_trigger(document, now=from_micros(now), key=arguments.key)
        warned, expected = [], None
        if arguments.target is not None:
            target = parse_target(arguments.target)
            warned = target_warnings(service, caller.owner.tenant, target)
            if target.kind in AGENT_KINDS:
                expected = forecast([], fires=fires_until(trigger, now, month_of(now)[1]), now=now).to_document()
        times = fires_of(trigger, arguments.count, after=after, now=now)
    else:
        stored = schedule_edits.find_for(caller, service.store, schedule_id)
        trigger = stored.schedule.declaration.trigger
        warned = target_warnings(
            service, caller.owner.tenant, stored.schedule.declaration.target, stored.schedule.source
        )
        times = fires_of_schedule(service.store, stored, arguments.count, after=after, now=now)
        expected = schedule_forecast(service.store, stored, now=now)
    described = None if trigger is None else describe(trigger, now=from_micros(now if after is None else after))
    about_times = [] if described is None else list(described.warnings)
    return {
        "fires": [to_text(to_micros(time)) for time in times],
        "description": "when the schedules it depends on have completed" if described is None else described.text,
        "warnings": about_times + warned,
        "forecast": expected,
    }
