"""Lists of schedules, filtered and in pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import ScheduleFilter, lowered
from noonmark.stores.memory.records import listed_at

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import StoredSchedule
    from noonmark.stores.memory.records import ScheduleEntry
    from noonmark.stores.memory.unit_of_work import UnitOfWork
    from noonmark.stores.rules.records import Row

ANY = ScheduleFilter()


def page(  # noqa: PLR0913 - as the verb has it
    uow: UnitOfWork,
    tenant: str,
    wanted: ScheduleFilter,
    *,
    after: str | None,
    limit: int,
    deleted: bool,
    newest_first: bool,
) -> list[StoredSchedule]:
    """A page of a tenant's schedules."""
    listed = (uow.deleted if deleted else uow.listed).get(tenant, [])
    places = range(len(listed))
    if after is not None:
        entry = uow.entries.get(after)
        if entry is None or entry.schedule.owner.tenant != tenant:
            return []
        place = listed_at(entry.schedule)
        places = range(bisect_left(listed, place)) if newest_first else places[bisect_right(listed, place) :]
    ordered = reversed(places) if newest_first else places
    entries = (uow.entries[listed[index][2]] for index in ordered)
    selected = (entry for entry in entries if is_wanted(entry, wanted))
    return [entry.to_stored(uow.now()) for entry in islice(selected, limit)]


def count(uow: UnitOfWork, tenant: str, wanted: ScheduleFilter, *, deleted: bool) -> int:
    """How many there are."""
    listed = (uow.deleted if deleted else uow.listed).get(tenant, [])
    return sum(is_wanted(uow.entries[uid], wanted) for _, _, uid in listed)


def is_wanted(entry: ScheduleEntry, wanted: ScheduleFilter) -> bool:
    """Whether a schedule matches a filter."""
    schedule = entry.schedule
    declared = schedule.declaration
    kind = "" if declared.trigger is None else declared.trigger.type
    named = (
        (wanted.user, schedule.owner.user),
        (wanted.target, declared.target.route),
        (wanted.name, declared.name),
        (wanted.fingerprint, None if schedule.lineage is None else schedule.lineage.fingerprint),
    )
    return (
        all(one is None or one == own for one, own in named)
        and (not wanted.phases or schedule.phase in wanted.phases)
        and (not wanted.kinds or kind in wanted.kinds)
        and all(declared.labels.get(name) == value for name, value in wanted.labels.items())
        and (wanted.event_type is None or _hears(schedule, wanted.event_type))
        and (not wanted.text or _has_text(schedule, lowered(wanted.text)))
        and (not wanted.last_phases or entry.state.last_phase in wanted.last_phases)
        and (not wanted.asks_next or wanted.is_next(_next(entry)))
    )


def _next(entry: ScheduleEntry) -> Micros | None:
    """When a schedule is next due by its trigger; of rows that wait, that is not known."""
    rows = (row for row in entry.live.values() if row.is_own)
    return min((row.due for row in rows if _is_ahead(row)), default=None)


def _is_ahead(row: Row) -> bool:
    is_ready = row.phase == Phase.PENDING and not row.held and row.ready is not None and row.waiting_for is None
    return row.phase == Phase.CLAIMED or is_ready


def _hears(schedule: Schedule, event_type: str) -> bool:
    trigger = schedule.declaration.trigger
    is_there = schedule.phase is not SchedulePhase.DELETED
    return is_there and isinstance(trigger, EventTrigger) and event_type in trigger.event_types


def _has_text(schedule: Schedule, text: str) -> bool:
    declared = schedule.declaration
    return any(text in lowered(own) for own in (schedule.schedule_id, declared.name or "", declared.description))
