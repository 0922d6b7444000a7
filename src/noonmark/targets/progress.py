"""Progress: what a run that goes on says of itself, at most once a second."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.run import progress_result
from noonmark.core.settlement import RunInProgress

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from noonmark.ports.target import Assignment, Report

INTERVAL_SECONDS = 1.0


class ProgressReporter:
    """Takes the progress of one run, from any thread. What comes too soon after a report is reported a second later."""

    __slots__ = ("_assignment", "_is_waiting", "_latest", "_lock", "_loop", "_report")

    def __init__(self, assignment: Assignment, report: Report, loop: AbstractEventLoop) -> None:
        self._assignment, self._report, self._loop = assignment, report, loop
        self._latest: dict[str, Any] | None = None
        self._is_waiting = False
        self._lock = Lock()

    def __call__(self, progress: dict[str, Any]) -> None:
        """Report it, now or soon."""
        with self._lock:
            self._latest = progress
            if self._is_waiting:
                return
            self._is_waiting = True
        try:
            self._loop.call_soon_threadsafe(self._report_latest)
        except RuntimeError:  # the loop has ended, and this run was handed back
            self._is_waiting = False

    def _report_latest(self) -> None:
        """Report the newest, and look again in a second; nothing new ends that."""
        with self._lock:
            progress, self._latest = self._latest, None
            self._is_waiting = progress is not None
        if progress is not None:
            report_progress(self._assignment, self._report, progress)
            self._loop.call_later(INTERVAL_SECONDS, self._report_latest)


def report_progress(assignment: Assignment, report: Report, progress: dict[str, Any]) -> None:
    """Report the progress of a run that goes on."""
    if not assignment.is_closed and assignment.started is not None:
        report(assignment, RunInProgress(started=assignment.started, result=progress_result(progress)))
