"""Looking: jobs and their times as they are. Nothing here plans or changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import from_micros, to_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import plan
from noonmark.core.triggers import Trigger, fires, parse_trigger
from noonmark.driver.drive import drive
from noonmark.embedded.jobs import JobStatus, job_of
from noonmark.embedded.settings import whole_number
from noonmark.ports.records import Kept

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.embedded.jobs import Job
    from noonmark.ports.store import Store

PAGE = 1_000
MAX_PREVIEW = 1_000
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
    now = drive(store.clock())
    if not isinstance(job, Kept):
        # What it leaves relative counts from now, and it would fire at this very moment, if it were declared now.
        trigger = parse_trigger(_trigger(job).to_document(), now=from_micros(now))
        return fires(trigger, from_micros(now - 1 if after is None else _instant(after)), wanted)
    declared = job.schedule.declaration
    since = now if after is None else _instant(after)
    if declared.trigger is None or job.schedule.phase is SchedulePhase.COMPLETED:
        return []
    due = _due(store, job.schedule, now)
    if declared.max_runs is not None:
        skipped = declared.trigger.count_between(from_micros(now), from_micros(max(now, since)))
        left = declared.max_runs - job.tally.admitted - (0 if after is None else len(due) + skipped)
        wanted = min(wanted, max(0, left))
    begun = [from_micros(time) for time in due if after is None]
    return [*begun, *fires(declared.trigger, from_micros(since), wanted)][:wanted]


def _due(store: Store, schedule: Schedule, now: Micros) -> list[Micros]:
    """The times up to now that have yet to run."""
    snapshot = drive(store.snapshot(schedule.uid)) if schedule.phase is SchedulePhase.ACTIVE else None
    if snapshot is None:
        return []
    planned = plan(snapshot, now=now, lookahead=0)
    nominal = {one.id: one.nominal for one in snapshot.projections if one.id not in planned.gone}
    nominal |= {one.id: one.nominal for one in planned.planned}
    return sorted(time for time in nominal.values() if time <= now)


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
