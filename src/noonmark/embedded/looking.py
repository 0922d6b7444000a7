"""Looking: jobs and their times as they are. Nothing here plans or changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import from_micros, to_micros
from noonmark.core.triggers import Trigger, parse_trigger
from noonmark.driver.drive import drive
from noonmark.embedded.jobs import JobStatus, job_of
from noonmark.embedded.settings import whole_number
from noonmark.operations.fires import MAX_PREVIEW, fires_of, fires_of_schedule
from noonmark.ports.records import Kept

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.embedded.jobs import Job
    from noonmark.ports.store import Store

PAGE = 1_000
TRIES = 20
"""So often a job that changes all the while is looked at again."""


def job(store: Store, kept: Kept) -> Job:
    """A schedule as its owner sees it, at one moment: what it does is asked for until it stands as it stood before."""
    for _ in range(TRIES):
        [activity] = drive(store.activities([kept.schedule.uid]))
        again = drive(store.find(kept.schedule.owner.tenant, kept.schedule.schedule_id, deleted=True))
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


def preview(store: Store, job: Kept | Trigger, count: object, after: datetime | None) -> list[datetime]:
    """The next times that a job or a trigger names; of a job no more than the runs it has left."""
    wanted = whole_number("count", count, high=MAX_PREVIEW)
    now, since = drive(store.clock()), None if after is None else _instant(after)
    if isinstance(job, Kept):
        return drive(fires_of_schedule(store, job, wanted, after=since, now=now))
    # What it leaves relative counts from now.
    trigger = parse_trigger(_trigger(job).to_document(), now=from_micros(now))
    return fires_of(trigger, wanted, after=since, now=now)


def _all(store: Store, tenant: str, *, deleted: bool) -> list[tuple[Kept, Job]]:
    found: list[tuple[Kept, Job]] = []
    after = None
    while page := drive(store.schedules(tenant, after=after, limit=PAGE, deleted=deleted)):
        activities = drive(store.activities([kept.schedule.uid for kept in page]))
        again = {
            one.schedule.uid: one for one in drive(store.schedules(tenant, after=after, limit=PAGE, deleted=deleted))
        }
        for kept, activity in zip(page, activities, strict=True):
            stands = again.get(kept.schedule.uid) in (kept, None)
            found.append((kept, job_of(kept, activity) if stands else job(store, again[kept.schedule.uid])))
        after = page[-1].schedule.uid
    return found


def _instant(after: datetime) -> int:
    try:
        return to_micros(after)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="after") from None


def _trigger(job: object) -> Trigger:
    if isinstance(job, Trigger):
        return job
    raise InvalidSchedule(f"must be the id of a job or a trigger, not {type(job).__name__}", field="job")
