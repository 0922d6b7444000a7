"""The next fires of a schedule or a trigger, with the trigger in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.describe import describe
from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.targets import parse_target
from noonmark.core.triggers import parse_trigger
from noonmark.operations import schedule_edits
from noonmark.operations.fires import fires_of, fires_of_schedule
from noonmark.operations.served_routes import target_warnings

if TYPE_CHECKING:
    from noonmark.core.triggers import Trigger
    from noonmark.operations.models.arguments import PreviewRequest
    from noonmark.operations.service import Caller, Service


def preview(service: Service, caller: Caller, arguments: PreviewRequest) -> dict[str, Any]:
    """Preview the next fires of a schedule or a trigger, with the trigger in words."""
    schedule_id, document, after = arguments.schedule_id, arguments.trigger, arguments.after
    if (schedule_id is None) == (document is None):
        raise InvalidRequest("name either a schedule_id or a trigger", field="trigger")
    if schedule_id is not None and arguments.target is not None:
        raise InvalidRequest("belongs to a trigger; a schedule has its own", field="target")
    now = service.store.clock()
    if schedule_id is None:
        trigger: Trigger | None = parse_trigger(document, now=from_micros(now), key=arguments.key)
        warned = [] if arguments.target is None else target_warnings(service, parse_target(arguments.target))
        times = fires_of(trigger, arguments.count, after=after, now=now)
    else:
        stored = schedule_edits.find_for(caller, service.store, schedule_id)
        trigger = stored.schedule.declaration.trigger
        warned = target_warnings(service, stored.schedule.declaration.target, stored.schedule.source)
        times = fires_of_schedule(service.store, stored, arguments.count, after=after, now=now)
    described = None if trigger is None else describe(trigger, now=from_micros(now if after is None else after))
    about_times = [] if described is None else list(described.warnings)
    return {
        "fires": [to_text(to_micros(time)) for time in times],
        "description": "when the schedules it depends on have completed" if described is None else described.text,
        "warnings": about_times + warned,
    }
