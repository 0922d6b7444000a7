"""Jobs: schedules as a Python program sees them, with the state of their last run."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import named, one_of
from noonmark.core.errors import InvalidSchedule
from noonmark.core.frozen import brief, frozen
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.json_values import json_copy
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.run import Run
    from noonmark.core.triggers import Trigger
    from noonmark.ports.records import Activity, ScheduleFilter, StoredSchedule
    from noonmark.ports.store import Store

PAGE = 1_000
MAX_READS = 20
"""How often a schedule that keeps changing is read again."""


class JobStatus(StrEnum):
    """The state of a schedule. One that fires repeatedly is pending between its runs, however they ended."""

    PENDING = "pending"
    """It may fire again, and nothing of it runs now."""
    RUNNING = "running"
    """A run is in progress, and it is neither paused nor deleted."""
    COMPLETED = "completed"
    """It will not fire again, and its last occurrence completed, or it never had one."""
    FAILED = "failed"
    """It will not fire again, and its last occurrence did not complete."""
    CANCELLED = "cancelled"
    """It was cancelled or deleted, or its last occurrence was."""
    PAUSED = "paused"
    """It was paused; a run that had begun may still be in progress."""


@frozen(kw_only=True)
class Job:
    """A schedule as it was when it was read."""

    id: str
    """What every method takes."""
    name: str | None
    """The name that it was declared with, if it has one."""
    status: JobStatus
    """Its state."""
    next_run: datetime | None
    """When it next fires, if that is known: not while it is paused, or waits for an event or for other schedules.

    `run_now` does not change it.
    """
    last_run: datetime | None
    """When it last started."""
    run_count: int
    """How many of its occurrences completed or failed."""
    last_result: Any = field(hash=False)
    """What its last run returned, if that completed."""
    last_error: str | None
    """What went wrong with its last run, if that did not complete."""
    trigger: Trigger | None
    """When it fires; None when it follows other schedules."""
    labels: dict[str, str] = field(hash=False)
    """Its labels."""

    def __repr__(self) -> str:
        next_run = None if self.next_run is None else to_text(to_micros(self.next_run))
        return brief(self, status=self.status, name=self.name, next_run=next_run, run_count=self.run_count, id=self.id)


def read_job(store: Store, stored: StoredSchedule) -> Job:
    """A schedule with its activity at one moment: both are read until the schedule did not change in between."""
    for _ in range(MAX_READS):
        [activity] = store.activities([stored.schedule.uid])
        again = store.find(stored.schedule.owner.tenant, stored.schedule.schedule_id, deleted=True)
        if again is None or again == stored or again.schedule.uid != stored.schedule.uid:
            break
        stored = again
    return job_of(stored, activity)


def read_jobs(
    store: Store, tenant: str, *, status: JobStatus | None = None, wanted: ScheduleFilter | None = None
) -> list[Job]:
    """The schedules of a tenant, or those with a status, oldest first; deleted ones only when they are asked for."""
    pairs = _read_all(store, tenant, deleted=False, wanted=wanted)
    if status is JobStatus.CANCELLED:
        pairs += _read_all(store, tenant, deleted=True, wanted=wanted)
        pairs.sort(key=lambda pair: (pair[0].schedule.created, pair[0].schedule.uid))
    return [job for _, job in pairs if status is None or job.status is status]


def _read_all(
    store: Store, tenant: str, *, deleted: bool, wanted: ScheduleFilter | None
) -> list[tuple[StoredSchedule, Job]]:
    pairs: list[tuple[StoredSchedule, Job]] = []

    def page_after(uid: str | None) -> list[StoredSchedule]:
        return store.schedules(tenant, after=uid, limit=PAGE, deleted=deleted, wanted=wanted)

    after = None
    while page := page_after(after):
        activities = store.activities([stored.schedule.uid for stored in page])
        again = {stored.schedule.uid: stored for stored in page_after(after)}
        for stored, activity in zip(page, activities, strict=True):
            is_unchanged = again.get(stored.schedule.uid) in (stored, None)
            job = job_of(stored, activity) if is_unchanged else read_job(store, again[stored.schedule.uid])
            pairs.append((stored, job))
        after = page[-1].schedule.uid
    return pairs


def job_of(stored: StoredSchedule, activity: Activity) -> Job:
    """A schedule with its activity, as a job."""
    schedule, counters = stored.schedule, stored.counters
    declared = schedule.declaration
    return Job(
        id=schedule.schedule_id,
        name=declared.name,
        status=status_of(stored, activity),
        next_run=None if stored.next_own is None else from_micros(stored.next_own),
        last_run=_last_start(counters.last_started, activity.last_run),
        run_count=counters.successful + counters.failed,
        last_result=_result(activity.last_run),
        last_error=_error(activity.last_run),
        trigger=declared.trigger,
        labels=dict(declared.labels),
    )


def status_of(stored: StoredSchedule, activity: Activity) -> JobStatus:
    """The status: whether it was deleted or paused comes first, then what it does."""
    match stored.schedule.phase:
        case SchedulePhase.DELETED:
            return JobStatus.CANCELLED
        case SchedulePhase.PAUSED:
            return JobStatus.PAUSED
        case _ if activity.delivering:
            return JobStatus.RUNNING
        case SchedulePhase.ACTIVE:
            return JobStatus.PENDING
    if stored.counters.last_phase is Phase.CANCELLED:
        return JobStatus.CANCELLED
    if _has_had_all_runs(stored) and activity.last_run is not None:
        # Fires planned beyond the last of its runs were skipped, and do not count.
        return JobStatus.COMPLETED if activity.last_run.outcome is Outcome.COMPLETED else JobStatus.FAILED
    return JobStatus.COMPLETED if stored.counters.last_phase in (Phase.COMPLETED, None) else JobStatus.FAILED


def _has_had_all_runs(stored: StoredSchedule) -> bool:
    max_runs = stored.schedule.declaration.max_runs
    return stored.counters.last_phase is Phase.SKIPPED and max_runs is not None and stored.counters.admitted >= max_runs


def status_argument(status: object) -> JobStatus | None:
    """A status or its text; None is any."""
    if status is None:
        return None
    try:
        return one_of(status, named(JobStatus))
    except ValueError as error:
        raise InvalidSchedule(str(error), field="status") from None


def _last_start(committed: Micros | None, run: Run | None) -> datetime | None:
    """A start is committed shortly before it is due; the run has the moment at which it really began."""
    starts = [start for start in (committed, None if run is None else run.started) if start is not None]
    return from_micros(max(starts)) if starts else None


def _result(run: Run | None) -> Any:
    """A copy: a change by the caller must not reach the store."""
    return json_copy(run.result) if run is not None and run.outcome is Outcome.COMPLETED else None


def _error(run: Run | None) -> str | None:
    if run is None or run.outcome is Outcome.COMPLETED:
        return None
    return run.error or f"the run ended as {run.outcome}"
