"""Names of another in-process scheduler, as thin subclasses. New code uses the classes of `noonmark` itself.

Instants stay aware datetimes. `docs/compatibility.md` lists the other differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.clocks import SystemClock
from noonmark.core import triggers
from noonmark.embedded.scheduler import Scheduler

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import PurePath

__all__ = ["CronTrigger", "DependencyScheduler", "IntervalTrigger", "OnceTrigger", "PersistentScheduler", "Scheduler"]


def _next_run(trigger: triggers.Trigger, from_time: datetime | None) -> datetime | None:
    after = SystemClock().now() if from_time is None else from_time
    return trigger.bind(now=after).next_after(after)


class OnceTrigger(triggers.OnceTrigger):
    """Fires at one instant."""

    __slots__ = ()

    def __init__(self, run_at: datetime) -> None:
        """The instant is called `run_at` here."""
        super().__init__(run_at)

    def get_next_run(self, from_time: datetime | None = None) -> datetime | None:
        """The first fire after a time, by default after now."""
        return _next_run(self, from_time)


class IntervalTrigger(triggers.IntervalTrigger):
    """Fires at an interval."""

    __slots__ = ()

    def get_next_run(self, from_time: datetime | None = None) -> datetime | None:
        """The first fire after a time, by default after now; without a start, one interval later."""
        return _next_run(self, from_time)


class CronTrigger(triggers.CronTrigger):
    """Fires by a cron expression."""

    __slots__ = ()

    def get_next_run(self, from_time: datetime | None = None) -> datetime | None:
        """The first fire after a time, by default after now."""
        return _next_run(self, from_time)


class DependencyScheduler(Scheduler):
    """A scheduler: every one has `add_dependency` and `schedule_with_deps`."""


class PersistentScheduler(Scheduler):
    """A scheduler that keeps its schedules in a SQLite file."""

    def __init__(self, state_path: str | PurePath = "scheduler_state.db", **settings: Any) -> None:
        """The file is created with its first use. The settings are those of `Scheduler`."""
        super().__init__(f"sqlite:///{state_path}", **settings)
