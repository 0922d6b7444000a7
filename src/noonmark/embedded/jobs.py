"""Jobs: schedules as a Python program sees them, with what became of their last run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import named, one_of
from noonmark.core.errors import InvalidSchedule
from noonmark.core.frozen import brief
from noonmark.core.instants import from_micros, to_micros, to_text
from noonmark.core.json_values import json_copy
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.run import Run
    from noonmark.core.triggers import Trigger
    from noonmark.ports.records import Activity, StoredSchedule


class JobStatus(StrEnum):
    """How a job stands. One that fires again and again is pending between its runs, however they ended."""

    PENDING = "pending"
    """It may fire again, and nothing of it runs now."""
    RUNNING = "running"
    """A run of it goes on, and it is neither paused nor deleted."""
    COMPLETED = "completed"
    """Nothing more is to come of it, and its last occurrence completed, or it never had one."""
    FAILED = "failed"
    """Nothing more is to come of it, and its last occurrence did not complete."""
    CANCELLED = "cancelled"
    """It was cancelled or deleted, or its last occurrence was."""
    PAUSED = "paused"
    """It was paused; a run that had begun may go on."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job:
    """A job as it was when it was asked for."""

    id: str
    """What every method takes."""
    name: str | None
    """The name it was declared under; None when it has none."""
    status: JobStatus
    """How it stands."""
    next_run: datetime | None
    """When it next fires, as far as that is known: not while it is paused, or waits for an event or for other jobs.

    A run that somebody asked for does not move it.
    """
    last_run: datetime | None
    """When it was last started."""
    run_count: int
    """How many of its occurrences were run to an end, well or badly."""
    last_result: Any = field(hash=False)
    """What its last run returned, if that ended well."""
    last_error: str | None
    """What went wrong with its last run, if that ended badly."""
    trigger: Trigger | None
    """When it fires; None when it follows other jobs."""
    labels: dict[str, str] = field(hash=False)
    """What it was labelled with."""

    def __repr__(self) -> str:
        next_run = None if self.next_run is None else to_text(to_micros(self.next_run))
        return brief(self, status=self.status, name=self.name, next_run=next_run, run_count=self.run_count, id=self.id)


def job_of(kept: StoredSchedule, activity: Activity) -> Job:
    """A schedule as its owner sees it."""
    schedule, counters = kept.schedule, kept.counters
    declared = schedule.declaration
    return Job(
        id=schedule.schedule_id,
        name=declared.name,
        status=status_of(kept, activity),
        next_run=None if kept.next_own is None else from_micros(kept.next_own),
        last_run=_last_start(counters.last_started, activity.last_run),
        run_count=counters.successful + counters.failed,
        last_result=_result(activity.last_run),
        last_error=_error(activity.last_run),
        trigger=declared.trigger,
        labels=dict(declared.labels),
    )


def status_of(kept: StoredSchedule, activity: Activity) -> JobStatus:
    """What somebody decided about the schedule comes first, then what it does."""
    match kept.schedule.phase:
        case SchedulePhase.DELETED:
            return JobStatus.CANCELLED
        case SchedulePhase.PAUSED:
            return JobStatus.PAUSED
        case _ if activity.delivering:
            return JobStatus.RUNNING
        case SchedulePhase.ACTIVE:
            return JobStatus.PENDING
    if kept.counters.last_phase is Phase.CANCELLED:
        return JobStatus.CANCELLED
    if _has_had_all_runs(kept) and activity.last_run is not None:
        # Fires that were planned beyond the last of its runs were skipped, and say nothing about it.
        return JobStatus.COMPLETED if activity.last_run.outcome is Outcome.COMPLETED else JobStatus.FAILED
    return JobStatus.COMPLETED if kept.counters.last_phase in (Phase.COMPLETED, None) else JobStatus.FAILED


def _has_had_all_runs(kept: StoredSchedule) -> bool:
    max_runs = kept.schedule.declaration.max_runs
    return kept.counters.last_phase is Phase.SKIPPED and max_runs is not None and kept.counters.admitted >= max_runs


def read_status(status: object) -> JobStatus | None:
    """A status that was asked for, as one or as text."""
    if status is None:
        return None
    try:
        return one_of(status, named(JobStatus))
    except ValueError as error:
        raise InvalidSchedule(str(error), field="status") from None


def _last_start(committed: Micros | None, run: Run | None) -> datetime | None:
    """A start is committed a little before it is due; a run tells when it really began."""
    starts = [start for start in (committed, None if run is None else run.started) if start is not None]
    return from_micros(max(starts)) if starts else None


def _result(run: Run | None) -> Any:  # noqa: ANN401 - JSON
    """A copy: what the caller does to it must not reach the store."""
    return json_copy(run.result) if run is not None and run.outcome is Outcome.COMPLETED else None


def _error(run: Run | None) -> str | None:
    if run is None or run.outcome is Outcome.COMPLETED:
        return None
    return run.error or f"the run ended as {run.outcome}"
