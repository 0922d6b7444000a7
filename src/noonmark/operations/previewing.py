"""Previewing: the next times of a schedule or a trigger, with the trigger in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.describe import describe
from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.json_values import identifier
from noonmark.core.triggers import parse_trigger
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments
from noonmark.operations.fires import MAX_PREVIEW, fires_of, fires_of_schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.triggers import Trigger
    from noonmark.operations.service import Caller, Service

USUAL_COUNT = 5


def preview(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The next times of a stored schedule, or of a trigger document, with the trigger in words."""
    asked = Arguments(arguments)
    schedule_id, document = asked.read("schedule_id", identifier, None), asked.raw("trigger")
    after = asked.instant("after", None)
    count = asked.integer("count", USUAL_COUNT, low=1, high=MAX_PREVIEW)
    key = asked.text("key", "", low=0)
    asked.done()
    if (schedule_id is None) == (document is None):
        raise InvalidRequest("name either a schedule_id or a trigger", field="trigger")
    now = service.store.clock()
    if schedule_id is None:
        trigger: Trigger | None = parse_trigger(document, now=from_micros(now), key=key)
        times = fires_of(trigger, count, after=after, now=now)
    else:
        kept = schedules.find(service.store, caller.owner.tenant, schedule_id)
        trigger = kept.schedule.declaration.trigger
        times = fires_of_schedule(service.store, kept, count, after=after, now=now)
    described = None if trigger is None else describe(trigger, now=from_micros(now if after is None else after))
    return {
        "fires": [to_text(to_micros(one)) for one in times],
        "description": "when the schedules it depends on have completed" if described is None else described.text,
        "warnings": [] if described is None else list(described.warnings),
    }
