"""Listening: which schedules want to hear of which events."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from noonmark.core.filters.index import Discriminator, discriminator
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from noonmark.core.schedule import Schedule
    from noonmark.stores.memory.unit_of_work import UnitOfWork


def listen(uow: UnitOfWork, before: Schedule | None, after: Schedule) -> None:
    """Remember which events a schedule listens for from now on."""
    old, new = set() if before is None else _heard_by(before), _heard_by(after)
    tenant, uid = after.owner.tenant, after.uid
    for event_type, (fields, wanted) in old - new:
        of_type = uow.listeners[tenant, event_type]
        uids = of_type[fields][wanted]
        del uids[bisect_left(uids, uid)]
        if not uids:
            del of_type[fields][wanted]
        if not of_type[fields]:
            del of_type[fields]
    for event_type, (fields, wanted) in new - old:
        insort(uow.listeners[tenant, event_type].setdefault(fields, {}).setdefault(wanted, []), uid)


def _heard_by(schedule: Schedule) -> set[tuple[str, Discriminator]]:
    trigger = schedule.declaration.trigger
    if schedule.phase is SchedulePhase.DELETED or not isinstance(trigger, EventTrigger):
        return set()
    own = discriminator(trigger.filters)
    return {(event_type, own) for event_type in trigger.event_types}
