"""Previews: the next fires of a schedule or a trigger, with the trigger in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.budgets.forecast import forecast, month_of
from noonmark.core.changes import differences
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.fire_changes import KNOWN, compare_fires
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.schedule import declare_again
from noonmark.core.targets import AGENT_KINDS, parse_target
from noonmark.core.triggers import EventTrigger, fires, parse_trigger
from noonmark.operations import schedule_edits, schedules
from noonmark.operations.target_policy import check_declaration, target_warnings, with_bundle_needs
from noonmark.operations.usage import fires_until, schedule_forecast

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.operations.models.arguments import PreviewRequest
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

MAX_CHANGES = 100
"""How many fires that an edit changes are listed."""


def fires_of(trigger: Trigger | None, count: int, *, after: Micros | None, now: Micros) -> list[datetime]:
    """The next fires of a trigger, as if it were declared now: one at this very moment is included."""
    if trigger is None or isinstance(trigger, EventTrigger):
        return []
    return fires(trigger, from_micros(now - 1 if after is None else after), count)


def fires_of_schedule(
    store: Store, stored: StoredSchedule, count: int, *, after: Micros | None, now: Micros
) -> list[datetime]:
    """The next fires of a schedule, limited by the runs it has left; fires that are due and not started come first."""
    schedule = stored.schedule
    snapshot = store.snapshot(schedule.uid) if schedule.phase is SchedulePhase.ACTIVE else None
    due = [] if snapshot is None else _due(plan(snapshot, now=now, lookahead=0), now)
    return _fires(schedule, due, stored.counters.admitted, count, after=after, now=now)


def _fires(
    schedule: Schedule, due: list[Micros], admitted: int, count: int, *, after: Micros | None, now: Micros
) -> list[datetime]:
    declared = schedule.declaration
    since = now if after is None else after
    trigger = declared.trigger
    if trigger is None or isinstance(trigger, EventTrigger) or schedule.phase is SchedulePhase.COMPLETED:
        return []
    if declared.max_runs is not None:
        skipped = trigger.count_between(from_micros(now), from_micros(max(now, since)))
        runs_left = declared.max_runs - admitted - (0 if after is None else len(due) + skipped)
        count = min(count, max(0, runs_left))
    begun = [from_micros(time) for time in due if after is None]
    return [*begun, *fires(trigger, from_micros(since), count)][:count]


def _due(planned: Plan, now: Micros) -> list[Micros]:
    """The fires up to now that have yet to run."""
    withdrawn = planned.gone.union(planned.superseded)
    nominal = {one.id: one.nominal for one in planned.snapshot.projections if one.id not in withdrawn}
    nominal |= {one.id: one.nominal for one in planned.planned}
    return sorted(time for time in nominal.values() if time <= now)


def preview(service: Service, caller: Caller, arguments: PreviewRequest) -> dict[str, Any]:
    """Preview the next fires of a schedule or a trigger, with the trigger in words.

    With a schedule and changes, as if it had been changed, with what that does to its fires.
    """
    from noonmark.core.describe import describe  # noqa: PLC0415 - loads cron-descriptor
    from noonmark.core.describe.clock_changes import clock_changes  # noqa: PLC0415 - likewise

    _check(arguments)
    now, after, impact = service.store.clock(), arguments.after, None
    if arguments.schedule_id is None:
        trigger: Trigger | None = parse_trigger(arguments.trigger, now=from_micros(now), key=arguments.key)
        warned, expected = [], None
        if arguments.target is not None:
            target = parse_target(arguments.target)
            warned = target_warnings(service, caller.owner.tenant, target)
            if target.kind in AGENT_KINDS:
                expected = forecast([], fires=fires_until(trigger, now, month_of(now)[1]), now=now).to_document()
        times = fires_of(trigger, arguments.count, after=after, now=now)
    else:
        stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
        if arguments.changes is None:
            times = fires_of_schedule(service.store, stored, arguments.count, after=after, now=now)
        else:
            stored, times, impact = _edited(service, caller, stored, arguments, now=now)
        trigger = stored.schedule.declaration.trigger
        warned = target_warnings(
            service, caller.owner.tenant, stored.schedule.declaration.target, stored.schedule.source
        )
        expected = schedule_forecast(service.store, stored, now=now)
    since = now if after is None else after
    described = None if trigger is None else describe(trigger, now=from_micros(since))
    about_times = [] if described is None else list(described.warnings)
    return {
        "fires": [to_text(to_micros(time)) for time in times],
        "description": "when the schedules it depends on have completed" if described is None else described.text,
        "warnings": about_times + warned,
        "forecast": expected,
        "clock_changes": [
            {
                "at_utc": to_text(one.at),
                "shift_seconds": one.shift_seconds,
                "text": one.text,
                "is_affected": one.is_affected,
            }
            for one in ([] if trigger is None else clock_changes(trigger, since))
        ],
        "impact": impact,
    }


def _check(arguments: PreviewRequest) -> None:
    if (arguments.schedule_id is None) == (arguments.trigger is None):
        raise InvalidRequest("name either a schedule_id or a trigger", field="trigger")
    if arguments.schedule_id is not None and arguments.target is not None:
        raise InvalidRequest("belongs to a trigger; a schedule has its own", field="target")
    if arguments.schedule_id is None and arguments.changes is not None:
        raise InvalidRequest("belongs to a schedule_id", field="changes")


def _edited(
    service: Service, caller: Caller, stored: StoredSchedule, arguments: PreviewRequest, *, now: Micros
) -> tuple[StoredSchedule, list[datetime], dict[str, Any]]:
    """A schedule as changes would make it, its fires then, and what differs."""
    changes, before = arguments.changes or {}, stored.schedule
    schedules.check_changes(changes)
    changes = with_bundle_needs(service.store, before.owner.tenant, changes)
    document = schedules.changed(before.declaration, changes)
    declared = check_declaration(service, caller, declare_again(document, before, now=from_micros(now)), before)
    snapshot = service.store.snapshot(before.uid)
    if snapshot is None:
        raise NotFound("the schedule was deleted", field="schedule_id")
    edited = edits.edit(snapshot, declared, now=now, lookahead=0)
    after = edited.schedule or before
    is_paused = before.phase is SchedulePhase.PAUSED
    stays_paused = changes["enabled"] is False if "enabled" in changes else is_paused
    runs = stored.counters.admitted
    # One that is paused and stays so is compared as if it were resumed.
    old = _upcoming(plan(snapshot, now=now, lookahead=0), runs, now) if stays_paused or not is_paused else []
    new = _upcoming(edited, runs, now) if is_paused or not stays_paused else []
    compared = compare_fires([to_micros(one) for one in old], [to_micros(one) for one in new], now=now)
    impact = {
        "changes": [
            {"field": one.field, "before": one.before, "after": one.after}
            for one in differences("", before.declaration.to_document(), declared.to_document())
        ],
        "revision_before": before.revision,
        "revision_after": after.revision,
        "before": [to_text(to_micros(one)) for one in old[: arguments.count]],
        "until_utc": to_text(compared.until),
        "kept": compared.kept,
        "moved": compared.moved,
        "added": compared.added,
        "removed": compared.removed,
        "fires": [
            {"before_utc": _text(one.before), "after_utc": _text(one.after)} for one in compared.changes[:MAX_CHANGES]
        ],
    }
    times = new
    if new and arguments.after is not None:
        times = _fires(after, _due(edited, now), runs, arguments.count, after=arguments.after, now=now)
    return replace(stored, schedule=after), times[: arguments.count], impact


def _upcoming(planned: Plan, runs: int, now: Micros) -> list[datetime]:
    """The next fires of a schedule as a plan leaves it."""
    schedule = planned.schedule or planned.snapshot.schedule
    due = _due(planned, now) if schedule.phase is SchedulePhase.ACTIVE else []
    return _fires(schedule, due, runs, KNOWN, after=None, now=now)


def _text(instant: Micros | None) -> str | None:
    return None if instant is None else to_text(instant)
