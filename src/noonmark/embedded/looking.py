"""Looking: jobs and their times as they are. Nothing here plans or changes anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import from_micros, parse_instant, to_micros
from noonmark.core.json_values import event_type, json_copy
from noonmark.core.triggers import Trigger, parse_trigger
from noonmark.embedded.jobs import JobStatus, job_of
from noonmark.embedded.settings import whole_number
from noonmark.operations.fires import fires_of, fires_of_schedule
from noonmark.operations.models.arguments import MAX_PREVIEW
from noonmark.ports.records import ScheduleFilter, StoredSchedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.embedded.jobs import Job
    from noonmark.ports.store import Store

PAGE = 1_000
TRIES = 20
"""So often a job that changes all the while is looked at again."""


def job(store: Store, kept: StoredSchedule) -> Job:
    """A schedule as its owner sees it, at one moment: what it does is asked for until it stands as it stood before."""
    for _ in range(TRIES):
        [activity] = store.activities([kept.schedule.uid])
        again = store.find(kept.schedule.owner.tenant, kept.schedule.schedule_id, deleted=True)
        if again is None or again == kept or again.schedule.uid != kept.schedule.uid:
            break
        kept = again
    return job_of(kept, activity)


def jobs(store: Store, tenant: str, status: JobStatus | None) -> list[Job]:
    """All jobs of a tenant, or those with a status, oldest first."""
    found = _all(store, tenant, deleted=False)
    if status is JobStatus.CANCELLED:
        found += _all(store, tenant, deleted=True)
        found.sort(key=lambda one: (one[0].schedule.created, one[0].schedule.uid))
    return [job for _, job in found if status is None or job.status is status]


def events(store: Store, tenant: str, kind: object, limit: object) -> list[Event]:
    """The last events, newest first, or those of a type."""
    wanted = whole_number("limit", limit)
    found = store.events(tenant, wanted, event_type=_event_type(kind))
    # What the caller does to a payload must not reach the store.
    return [replace(one, payload=json_copy(one.payload)) for one in found]


def triggers(store: Store, tenant: str, kind: object) -> list[Job]:
    """The jobs that events set off, or that those of a type do, oldest first."""
    wanted = ScheduleFilter(kinds=frozenset({"event"}), event_type=_event_type(kind))
    return [job for _, job in _all(store, tenant, deleted=False, wanted=wanted)]


def preview(store: Store, job: StoredSchedule | Trigger, count: object, after: datetime | None) -> list[datetime]:
    """The next times that a job or a trigger names; of a job no more than the runs it has left."""
    wanted = whole_number("count", count, high=MAX_PREVIEW)
    now, since = store.clock(), None if after is None else _instant("after", after)
    if isinstance(job, StoredSchedule):
        return fires_of_schedule(store, job, wanted, after=since, now=now)
    # What it leaves relative counts from now.
    trigger = parse_trigger(_trigger(job).to_document(), now=from_micros(now))
    return fires_of(trigger, wanted, after=since, now=now)


def explain(store: Store, kept: StoredSchedule, at: datetime | str | None) -> dict[str, Any]:
    """What a job did, does or will do at an instant, and why; without one, how its last occurrence fared."""
    from noonmark.operations.explain import explained  # noqa: PLC0415 - few programs ask

    time = None if at is None else _instant("at", at, parse_instant if isinstance(at, str) else to_micros)
    return explained(store, kept, time)


def _all(
    store: Store, tenant: str, *, deleted: bool, wanted: ScheduleFilter | None = None
) -> list[tuple[StoredSchedule, Job]]:
    found: list[tuple[StoredSchedule, Job]] = []

    def page_after(uid: str | None) -> list[StoredSchedule]:
        return store.schedules(tenant, after=uid, limit=PAGE, deleted=deleted, wanted=wanted)

    after = None
    while page := page_after(after):
        activities = store.activities([kept.schedule.uid for kept in page])
        again = {one.schedule.uid: one for one in page_after(after)}
        for kept, activity in zip(page, activities, strict=True):
            stands = again.get(kept.schedule.uid) in (kept, None)
            found.append((kept, job_of(kept, activity) if stands else job(store, again[kept.schedule.uid])))
        after = page[-1].schedule.uid
    return found


def _event_type(kind: object) -> str | None:
    try:
        return None if kind is None else event_type(kind)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="event_type") from None


def _instant(name: str, value: Any, read: Callable[[Any], Micros] = to_micros) -> Micros:  # noqa: ANN401 - judged by the reader
    try:
        return read(value)
    except ValueError as error:
        raise InvalidSchedule(str(error), field=name) from None


def _trigger(job: object) -> Trigger:
    if isinstance(job, Trigger):
        return job
    raise InvalidSchedule(f"must be the id of a job or a trigger, not {type(job).__name__}", field="job")
